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


#: What it holds it sends after a minute, or at a flush; what was sent is a line of the file.
HOLDS = """
import asyncio, os, threading
from kpl_codec.producer import AsyncProducer, Producer, ProducerConfig
from tests.producer.model_client import AsyncModelClient, ModelClient

class Client(ModelClient):
    def put_records(self, *, Records, **_):
        with open(os.environ["SIDE_EFFECTS"], "ab") as out:
            out.writelines(record["Data"] + b"\\n" for record in Records)
        return super().put_records(Records=Records)

CONFIG = ProducerConfig(aggregation_enabled=False, record_max_buffered_time_ms=60_000, record_ttl_ms=300_000)

def handler(event, context):
    put(b"%d" % event["number"])
    if event["raises"]:
        raise ValueError("asked to fail")
"""
IN_A_LOOP = """
async def made():
    return AsyncProducer("orders", client=AsyncModelClient(Client()), config=CONFIG)

loop = asyncio.new_event_loop()
producer = loop.run_until_complete(made())
"""
PRODUCERS = {
    "threads": """
producer = Producer("orders", client=Client(), config=CONFIG)

def put(data):
    producer.put("k", data)
""",
    "a-loop-of-the-module": f"""{IN_A_LOOP}
def put(data):
    loop.run_until_complete(producer.put("k", data))
""",
    "a-loop-in-a-thread": f"""{IN_A_LOOP}
threading.Thread(target=loop.run_forever, daemon=True).start()

def put(data):
    asyncio.run_coroutine_threadsafe(producer.put("k", data), loop).result()
""",
}


@pytest.mark.requirement("PRD-77")
@pytest.mark.parametrize("how", PRODUCERS)
def test_what_an_invocation_put_is_delivered_before_lambda_has_its_answer(how: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(HOLDS + PRODUCERS[how])
    effects = tmp_path / "side-effects"
    environment = {"PYTHONPATH": str(PACKAGE.parent), "SIDE_EFFECTS": str(effects)}
    function = Function("app.handler", str(tmp_path), environment)
    try:
        for number, raises in enumerate([False, True, False]):
            answer = function.invoke({"number": number, "raises": raises})
            assert answer.kind == ("error" if raises else "response"), answer
            assert effects.read_text().split() == [str(one) for one in range(number + 1)]
    finally:
        printed = function.stop()  # as Lambda does, which sends no SIGTERM
    assert "exit handlers" not in printed


#: An event loop that cannot deliver before the answer, and what the log says then.
HINDERED = {
    "a-loop-that-was-closed": (
        f"""{IN_A_LOOP}
def put(data):
    loop.run_until_complete(producer.put("k", data))
    loop.close()
""",
        "stream orders: 1 user record not delivered: the producer was never closed",
    ),
    # Its module, which the runtime loads, runs the runtime itself.
    "the-loop-that-runs-the-handler": (
        """
import awslambdaric.__main__

def put(data):
    pass

async def run():
    producer = AsyncProducer("orders", client=AsyncModelClient(Client()), config=CONFIG)
    await producer.put("k", b"0")
    awslambdaric.__main__.main(["", "app.handler"])

asyncio.run(run())
""",
        "stream orders: 1 user record outstanding where a task or an invocation ends: await flush() before",
    ),
}


@pytest.mark.requirement("PRD-75", "PRD-77")
@pytest.mark.parametrize("how", HINDERED)
def test_what_no_event_loop_can_deliver_before_the_answer_is_logged(how: str, tmp_path: Path) -> None:
    program, logged = HINDERED[how]
    (tmp_path / "app.py").write_text(HOLDS + program)
    environment = {"PYTHONPATH": str(PACKAGE.parent), "SIDE_EFFECTS": str(tmp_path / "side-effects")}
    function = Function("app.handler", str(tmp_path), environment)
    try:
        assert function.invoke({"number": 0, "raises": False}).kind == "response"
    finally:
        printed = function.stop()
    assert logged in printed


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
                "arguments", "aws_lambda", "aws_lambda.batch", "aws_lambda.events",
                "compiled", "deaggregation",
                "deaggregation.kcl",
                "deaggregation.policies",
                "deaggregation.policy_rules",
                "deaggregation.deaggregated_record", "errors",
                "format", "format.codec", "format.compression", "format.frame",
                "format.hash_keys", "format.message", "format.records", "format.wire", "lazy",
                "limits", "values",
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
    from kpl_codec.compiled import speedups

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
