"""Handlers under the real Lambda runtime client, in a Python that has nothing but kpl_codec.

They stand on PYTHONPATH as those of a layer in /opt/python; the runtime client (awslambdaric) stands in the
site-packages, as in Lambda. Nothing else is installed there. How to build the layer is in
spec/guides/lambda.md.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import venv
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.base.compiled import speedups

from ..every import every
from ..test_layers import PACKAGE
from .conftest import FIRST, expected_user_records, load
from .runtime_api import run_function

TASK = str(Path(__file__).parent / "function")


class Bare:
    """``python``: an interpreter without packages but Lambda's own; ``path``: as of a layer; ``pure_path``:
    of a layer for another platform, without the compiled twin."""

    def __init__(self, home: Path) -> None:
        venv.EnvBuilder(with_pip=False, symlinks=True).create(home / "venv")
        self.python = str(home / "venv/bin/python")
        show = [self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        site = Path(subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip())
        for distribution in ("awslambdaric", "simplejson", "snapshot-restore-py"):
            _install(distribution, site)
        self.path = str(home / "opt/python")
        self.pure_path = str(home / "pure/python")
        for path, without in ((self.path, "__pycache__"), (self.pure_path, "_speedups*")):
            shutil.copytree(PACKAGE, Path(path) / PACKAGE.name, ignore=shutil.ignore_patterns(without))
        self.home = str(home)
        optional = ["boto3", "aws_lambda_powertools", "pydantic", "pyarrow", "six", "aws_kinesis_agg"]
        found = f"import importlib.util; print([*filter(importlib.util.find_spec, {optional})])"
        assert self.run(found) == "[]\n"

    def run(self, code: str) -> str:
        # The working directory comes first on the path of ``-c``: it must not be ours.
        return subprocess.run(
            [self.python, "-c", code], capture_output=True, text=True, check=True, timeout=60,
            cwd=self.home, env={"PYTHONPATH": self.path},
        ).stdout  # fmt: skip


def _install(distribution: str, folder: Path) -> None:
    for file in importlib.metadata.files(distribution) or ():
        if ".." not in file.parts:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), folder / file)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    return Bare(tmp_path_factory.mktemp("lambda"))


#: What it holds it sends after a minute, or at a flush; what was sent is a line of the file. It refuses
#: the data "refused".
HOLDS = """
import os
from kpl_codec.aws_lambda import aio
from kpl_codec.producer import AsyncProducer, Producer, ProducerConfig, delivers
from tests.producer.model_client import ModelClient

class Client(ModelClient):
    def put_records(self, *, Records, **_):
        with open(os.environ["SIDE_EFFECTS"], "ab") as out:
            out.writelines(record["Data"] + b"\\n" for record in Records)
        if any(record["Data"] == b"refused" for record in Records):
            return {"Records": [{"ErrorCode": "AccessDeniedException"}] * len(Records)}
        return super().put_records(Records=Records)

CONFIG = ProducerConfig(aggregation_enabled=False, record_max_buffered_time_ms=60_000, record_ttl_ms=300_000)
threads = Producer("orders", client=Client(), config=CONFIG)
in_a_loop = AsyncProducer("orders", client=Client(), config=CONFIG)

def ends(event):
    if event["raises"]:
        raise ValueError("asked to fail")
    return "answer"

@delivers(threads)
def of_threads(event, context):
    threads.put("k", event["data"].encode())
    return ends(event)

@delivers(in_a_loop)
async def handle(event):
    await in_a_loop.put("k", event["data"].encode())
    return ends(event)

def of_asyncio(event, context):
    return aio.run(handle(event))

def in_a_block(event, context):
    with Producer("orders", client=Client(), config=CONFIG) as producer:
        producer.put("k", event["data"].encode())
    return ends(event)

def not_started(event, context):
    threads.put("k", b"data")

def started(event, context):
    threads.start()

def started_in_a_loop(event, context):
    aio.run(in_a_loop.start())

def dispatch(event, context):
    return globals()[event["handler"]](event, context)
"""


@pytest.mark.requirement("PRD-93", "PRD-78", "PRD-92")
def test_what_an_invocation_put_is_delivered_before_lambda_has_its_answer(tmp_path: Path) -> None:
    """What Lambda would freeze is refused. (It ends a process without SIGTERM.)"""
    (tmp_path / "app.py").write_text(HOLDS)
    instead = {
        "not_started": "or start() and, at the end, close()",
        "started": "put @delivers(producer) over the handler",
        "started_in_a_loop": "put @delivers(producer) over the handler",
    }
    events: list[dict[str, Any]] = [{"handler": handler} for handler in instead]
    for handler in ("of_threads", "of_asyncio", "in_a_block"):
        for data in ("one", "two", "refused", "four"):
            events.append({"handler": handler, "data": data, "raises": data == "two"})
    place = str(tmp_path), tmp_path / "effects", str(PACKAGE.parent)
    answers, printed = run_function(events, "app.dispatch", *place)
    assert len(answers) == len(events), printed
    for event, answer in zip(events, answers, strict=True):
        handler, data = event["handler"], event.get("data")
        assert answer.effects == ([data] if data else []), event
        if handler in instead:
            assert answer.body["errorType"] == "NotStarted"
            assert instead[handler] in answer.body["errorMessage"]
        elif event["raises"]:
            assert answer.body["errorType"] == "ValueError"
        elif data == "refused" and handler != "in_a_block":
            assert answer.body["errorType"] == "DeliveryError"
            assert "AccessDeniedException" in answer.body["errorMessage"]
        else:
            assert answer[:3] == ("response", "answer", 8), event


ROWS = [[row[3], row[4], row[2].hex()] for row in expected_user_records()]


@pytest.mark.requirement("LMB-1", "LMB-2")
@every("layer", ["path", "pure_path"])
def test_handlers_of_every_kind_in_one_process(layer: str, bare: Bare, tmp_path: Path, event: Any) -> None:
    """Each twice. The service sees which record failed, and the log says where, without its text."""
    sound: dict[str, Any] = {"batchItemFailures": []}
    kinds: dict[str, tuple[Any, list[Any]]] = {
        "process": (sound, ROWS),
        "asynchronous": (sound, ROWS),
        "window": ({"state": {"order-7": 1, "3g0": 5, "a": 1, "b": 1}}, []),
        "old_code": ([row[2] for row in ROWS], []),
    }
    # A transformation keeps below the service's limit.
    large = load("firehose_direct_put.json")
    data = b64encode(b"x" * 1_000_000).decode()
    large["records"] = [{**large["records"][0], "recordId": str(i), "data": data} for i in range(4)]
    events = [{**event, "handler": kind} for kind in kinds for _ in range(2)]
    events += [{**event, "handler": "process", "fail": ROWS[3][2]}, {**large, "handler": "firehose"}]
    place = TASK, tmp_path / layer, getattr(bare, layer)
    answers, printed = run_function(events, "app.dispatch", *place, bare.python)
    assert len(answers) == len(events), printed
    *every_kind, one_fails, transformed = answers
    for sent, answer in zip(events[:-2], every_kind, strict=True):
        body, effects = kinds[sent["handler"]]
        assert (answer.kind, answer.body) == ("response", body), sent["handler"]
        assert sorted(map(json.loads, answer.effects)) == sorted(effects), sent["handler"]
    assert every_kind[0].size == 25
    failed = {"batchItemFailures": [{"itemIdentifier": str(FIRST + 1)}]}
    assert (one_fails.kind, one_fails.body) == ("response", failed)
    assert [json.loads(line) for line in one_fails.effects] == ROWS[:3]
    assert transformed.size <= 6 * 1024 * 1024
    results = [record["result"] for record in transformed.body["records"]]
    assert results == ["Ok"] * 2 + ["ProcessingFailed"] * 2
    assert re.search(r"Error in \S*/app\.py, line \d+", printed)
    assert "asked to fail" not in printed
    assert f"{FIRST + 1}/2" in printed


# -- what is there and what is loaded ----------------------------------------------------------------


def test_the_import_loads_nothing_else(bare: Bare) -> None:
    """Few folders of kpl_codec, no third-party package, and nothing that takes its time."""
    code = """
import json, logging, sys  # as the runtime client has done
before = set(sys.modules)
import kpl_codec.aws_lambda
new = set(sys.modules) - before
std = {n for n in new if n.partition(".")[0] in sys.stdlib_module_names}
print(*sorted(n for n in new - std if "cython" not in n))
print(*sorted(std))
"""
    ours, std = bare.run(code).split("\n")[:2]
    assert {name.split(".")[0] for name in ours.split()} == {"kpl_codec"}
    rooms = {name.split(".")[1] for name in ours.split() if "." in name} - {"_speedups"}
    assert rooms == {"adapters", "aws_lambda", "base", "deaggregation", "errors", "format", "shards"}
    assert len(ours.split()) < 40
    assert not set(std.split()) & (HEAVY | {"hashlib"} if speedups else HEAVY)


#: Parts of the standard library that take their time to load.
HEAVY = {
    "argparse", "asyncio", "decimal", "email", "http", "json", "logging", "pickle", "socket", "ssl",
    "tempfile", "threading", "urllib",
}  # fmt: skip
