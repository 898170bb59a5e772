"""Handlers under the real Lambda runtime client, in a Python that has nothing but kpl_codec.

They stand on PYTHONPATH as those of a layer in /opt/python; the runtime client (awslambdaric) stands in the
site-packages, as in Lambda. Nothing else is installed there. Powertools' own test runs in this environment.
How to build the layer is in spec/guides/lambda.md.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import venv
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..test_layers import PACKAGE
from .conftest import FIRST, expected_user_records, load
from .runtime_api import Answer, Function

TASK = str(Path(__file__).parent / "function")


class Bare:
    """``python``: an interpreter without packages but Lambda's own; ``path``: as of a layer."""

    def __init__(self, home: Path) -> None:
        venv.EnvBuilder(with_pip=False, symlinks=True).create(home / "venv")
        self.python = str(home / "venv/bin/python")
        show = [self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        site = Path(subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip())
        for distribution in ("awslambdaric", "simplejson", "snapshot-restore-py"):
            _install(distribution, site)
        self.path = str(home / "opt/python")
        shutil.copytree(PACKAGE, Path(self.path) / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
        self.home = str(home)
        optional = ["boto3", "aws_lambda_powertools", "pydantic", "pyarrow", "six", "aws_kinesis_agg"]
        found = f"import importlib.util; print([*filter(importlib.util.find_spec, {optional})])"
        assert self.run(found) == "[]\n"

    def run(self, code: str, path: str = "") -> str:
        # The working directory comes first on the path of ``-c``: it must not be ours.
        return subprocess.run(
            [self.python, "-c", code], capture_output=True, text=True, check=True, timeout=60,
            cwd=self.home, env={"PYTHONPATH": path or self.path},
        ).stdout  # fmt: skip


def _install(distribution: str, folder: Path) -> None:
    for file in importlib.metadata.files(distribution) or ():
        if ".." not in file.parts:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), folder / file)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    return Bare(tmp_path_factory.mktemp("lambda"))


Start = Callable[..., Function]


@pytest.fixture
def start(bare: Bare, tmp_path: Path) -> Iterator[Start]:
    """Start a handler of function/app.py; ended with the test."""
    running: list[Function] = []

    def started(handler: str, *, with_everything: bool = False, **environment: str) -> Function:
        environment["SIDE_EFFECTS"] = str(tmp_path / "side-effects")
        python = sys.executable if with_everything else bare.python
        environment["PYTHONPATH"] = str(PACKAGE.parent) if with_everything else bare.path
        running.append(Function(f"app.{handler}", TASK, environment, python))
        return running[-1]

    yield started
    for function in running:
        function.stop()


def side_effects(tmp_path: Path) -> list[Any]:
    path = tmp_path / "side-effects"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


#: What it holds it sends after a minute, or at a flush; what was sent is a line of the file. It refuses
#: the data "refused".
HOLDS = """
import os
from kpl_codec.aws_lambda import aio
from kpl_codec.producer import AsyncProducer, Producer, ProducerConfig, delivers
from tests.producer.model_client import AsyncModelClient, ModelClient

class Client(ModelClient):
    def put_records(self, *, Records, **_):
        with open(os.environ["SIDE_EFFECTS"], "ab") as out:
            out.writelines(record["Data"] + b"\\n" for record in Records)
        if any(record["Data"] == b"refused" for record in Records):
            return {"Records": [{"ErrorCode": "AccessDeniedException"}] * len(Records)}
        return super().put_records(Records=Records)

CONFIG = ProducerConfig(aggregation_enabled=False, record_max_buffered_time_ms=60_000, record_ttl_ms=300_000)
threads = Producer("orders", client=Client(), config=CONFIG)
in_a_loop = AsyncProducer("orders", client=AsyncModelClient(Client()), config=CONFIG)

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
"""


@pytest.fixture
def holds(tmp_path: Path) -> Iterator[Callable[[str], Function]]:
    """Start one of the handlers above; ended with the test, as Lambda does, which sends no SIGTERM."""
    (tmp_path / "app.py").write_text(HOLDS)
    running: list[Function] = []

    def started(handler: str) -> Function:
        environment = {"PYTHONPATH": str(PACKAGE.parent), "SIDE_EFFECTS": str(tmp_path / "effects")}
        running.append(Function(f"app.{handler}", str(tmp_path), environment))
        return running[-1]

    yield started
    for function in running:
        function.stop()


@pytest.mark.requirement("PRD-93")
@pytest.mark.parametrize("handler", ["of_threads", "of_asyncio", "in_a_block"])
def test_what_an_invocation_put_is_delivered_before_lambda_has_its_answer(
    handler: str, holds: Callable[[str], Function], tmp_path: Path
) -> None:
    function = holds(handler)
    put = []
    for data, raises in [("one", False), ("two", True), ("refused", False), ("four", False)]:
        put.append(data)
        answer = function.invoke({"data": data, "raises": raises})
        assert (tmp_path / "effects").read_text().split() == put
        if raises:
            assert answer.body["errorType"] == "ValueError"
        elif data == "refused" and handler != "in_a_block":
            assert answer.body["errorType"] == "DeliveryError"
            assert "AccessDeniedException" in answer.body["errorMessage"]
        else:
            assert answer == Answer("response", "answer", 8)


@pytest.mark.requirement("PRD-78", "PRD-92")
@pytest.mark.parametrize(
    ("handler", "instead"),
    [
        ("not_started", "or start() and, at the end, close()"),
        ("started", "put @delivers(producer) over the handler"),
        ("started_in_a_loop", "put @delivers(producer) over the handler"),
    ],
)
def test_what_lambda_would_freeze_is_refused(
    handler: str, instead: str, holds: Callable[[str], Function]
) -> None:
    answer = holds(handler).invoke({})
    assert answer.body["errorType"] == "NotStarted"
    assert instead in answer.body["errorMessage"]


ROWS = [[row[3], row[4], row[2].hex()] for row in expected_user_records()]


def test_every_user_record_is_handled(start: Start, tmp_path: Path, event: Any) -> None:
    function = start("process")
    assert function.invoke(event) == Answer("response", {"batchItemFailures": []}, 25)
    assert side_effects(tmp_path) == ROWS
    # the same process, the next batch
    assert function.invoke(event).body == {"batchItemFailures": []}
    assert side_effects(tmp_path) == ROWS * 2


@pytest.mark.parametrize(
    ("handler", "body", "expected_effects"),
    [
        ("asynchronous", {"batchItemFailures": []}, ROWS),
        ("window", {"state": {"order-7": 1, "3g0": 5, "a": 1, "b": 1}}, []),
        ("old_code", [row[2] for row in ROWS], []),
        ("powertools", {"batchItemFailures": [{"itemIdentifier": str(FIRST + 1)}]}, []),
    ],
)
def test_the_other_handlers(
    start: Start, tmp_path: Path, event: Any, handler: str, body: Any, expected_effects: list[Any]
) -> None:
    """Twice in one process. That of Powertools fails on a user record."""
    settings = {"with_everything": True, "FAIL": ROWS[3][2]} if handler == "powertools" else {}
    function = start(handler, **settings)
    for _ in range(2):
        assert function.invoke(event).body == body
    assert sorted(side_effects(tmp_path)) == sorted(expected_effects * 2)


@pytest.mark.requirement("LMB-1", "LMB-2")
def test_partial_failure_as_the_service_sees_it(start: Start, tmp_path: Path, event: Any) -> None:
    function = start("process", FAIL=ROWS[3][2])
    response = function.invoke(event)
    assert response.kind == "response"
    assert response.body == {"batchItemFailures": [{"itemIdentifier": str(FIRST + 1)}]}
    assert side_effects(tmp_path) == ROWS[:3]
    printed = function.stop()
    assert re.search(r"Error in \S*/app\.py, line \d+", printed)
    assert "asked to fail" not in printed
    assert f"{FIRST + 1}/2" in printed


def test_a_transformation_keeps_below_the_service_limit(start: Start) -> None:
    event = load("firehose_direct_put.json")
    data = b64encode(b"x" * 1_000_000).decode()
    event["records"] = [{**event["records"][0], "recordId": str(i), "data": data} for i in range(4)]
    response = start("firehose").invoke(event)
    assert response.size <= 6 * 1024 * 1024
    assert [r["result"] for r in response.body["records"]] == ["Ok"] * 2 + ["ProcessingFailed"] * 2


# -- what is there and what is loaded ----------------------------------------------------------------


def test_the_import_loads_nothing_else(bare: Bare) -> None:
    """The list: kpl_codec's own modules, and no third-party package."""
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
    assert set(ours.split()) == {
        "kpl_codec",
        *(
            f"kpl_codec.{name}"
            for name in (
                "_speedups", "adapters", "adapters.events_in", "adapters.shapes", "adapters.events_out",
                "aws_lambda", "aws_lambda.batch", "aws_lambda.events",
                "base", "base.arguments", "base.compiled", "base.lazy", "base.values", "deaggregation",
                "deaggregation.kcl",
                "deaggregation.policies",
                "deaggregation.policy_rules",
                "deaggregation.deaggregated_record", "errors",
                "format", "format.codec", "format.compression", "format.frame",
                "format.hash_keys", "format.message", "format.limits",
                "format.records", "format.wire",
                "shards", "shards.lineage", "shards.placement", "shards.sequence_numbers", "shards.shard",
                "shards.shard_map",
            )
        ),
    } - ({"kpl_codec._speedups"} if not has_speedups() else set())  # fmt: skip
    assert not set(std.split()) & (HEAVY | {"hashlib"} if has_speedups() else HEAVY)


def test_the_import_compiles_no_annotations(bare: Bare) -> None:
    """Of a NamedTuple in a module with ``from __future__ import annotations`` each would be, from a text."""
    code = """
import typing
texts, make = [], typing.ForwardRef.__init__
def made(self, text, *more, **named):
    texts.append(text)
    make(self, text, *more, **named)
typing.ForwardRef.__init__ = made
import kpl_codec.aws_lambda
print(texts)
"""
    assert bare.run(code) == "[]\n"


#: Parts of the standard library that take their time to load.
HEAVY = {
    "argparse", "asyncio", "decimal", "email", "http", "json", "logging", "pickle", "socket", "ssl",
    "tempfile", "threading", "urllib",
}  # fmt: skip


def has_speedups() -> bool:
    from kpl_codec.base.compiled import speedups

    return speedups is not None


def test_it_works_without_the_compiled_twin(bare: Bare, tmp_path: Path, event: Any) -> None:
    """As in a layer for another platform."""
    slow = tmp_path / "python"
    shutil.copytree(bare.path, slow, ignore=shutil.ignore_patterns("_speedups*"))
    (tmp_path / "event.json").write_text(json.dumps(event))
    code = f"""
import json, sys
from kpl_codec.aws_lambda import user_records
rows = list(user_records(json.load(open({str(tmp_path / "event.json")!r}))))
print(json.dumps([[r.sequence_number, r.sub_sequence_number, r.data.hex()] for r in rows]))
print("kpl_codec._speedups" in sys.modules)
"""
    rows, loaded = bare.run(code, str(slow)).splitlines()
    assert json.loads(rows) == ROWS
    assert loaded == "False"
