"""Programs that end the processes of functions of others without exit handlers: what the log says there, and
that a producer cannot be sent to them."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.producer import AsyncProducer, Producer, ProducerThreads

from .model_client import ModelClient

pytestmark = pytest.mark.timeout(60)

HERE = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}

#: A process that is known as one of a host's, and ends at once after it has put.
ENDS_AT_ONCE = """
import asyncio, os, sys, types
from kpl_codec.producer import AsyncProducer, Producer
from tests.producer.model_client import AsyncModelClient, ModelClient

async def put_in_a_loop():
    producer = AsyncProducer("orders", client=AsyncModelClient(ModelClient()))
    if how == "async with":
        await producer.__aenter__()
    await producer.put("k", b"data")
    os._exit(0)

module, variable, how = sys.argv[1:]
sys.modules.setdefault(module, types.ModuleType(module))
os.environ[variable] = "1"
if how.startswith("async"):
    asyncio.run(put_in_a_loop())
producer = Producer("orders", client=ModelClient())
if how == "with":
    producer.__enter__()
producer.put("k", b"data")
os._exit(0)
"""


@pytest.mark.requirement("PRD-78")
@pytest.mark.parametrize("how", ["put", "with", "async put", "async with"])
@pytest.mark.parametrize(
    ("module", "variable", "said"),
    [
        ("rq", "RQ_JOB_ID", "RQ ends this process without exit handlers: call flush() or close()"),
        ("airflow.task.task_runner.standard_task_runner", "AIRFLOW_CTX_TASK_ID", "Airflow ends this process"),
        ("pyspark", "PYTHON_WORKER_FACTORY_SECRET", "PySpark ends this process"),
        ("json", "AWS_LAMBDA_FUNCTION_NAME", "Lambda stops this process when the handler returns"),
        ("nothing", "OF_NO_HOST", ""),
    ],
    ids=["rq", "airflow", "pyspark", "lambda", "none"],
)
def test_the_first_put_logs_what_is_lost(module: str, variable: str, said: str, how: str) -> None:
    program = [sys.executable, "-c", ENDS_AT_ONCE, module, variable, how]
    done = subprocess.run(program, capture_output=True, text=True, timeout=50, env=HERE, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == bool(said and how.endswith("put")), done.stderr
    assert all(line.startswith(said) for line in lines)


POOL = """
import sys
from functools import partial
from multiprocessing import get_context
from kpl_codec.producer import Producer, ProducerConfig
from tests.producer.model_client import ModelClient

class Client(ModelClient):
    def put_records(self, *, Records, **_):
        with open(sys.argv[1], "ab") as file:
            for record in Records:
                file.write(record["Data"])
        return super().put_records(Records=Records)

CONFIG = ProducerConfig(aggregation_enabled=False, record_max_buffered_time_ms=60_000, record_ttl_ms=120_000)

KEPT = []  # a producer that is dropped delivers

def put(block, number):
    KEPT.append(Producer("s", client=Client(), config=CONFIG))
    if block:
        KEPT[-1].__enter__()
    KEPT[-1].put("k", b"%d" % number)
    if block:
        KEPT[-1].__exit__()

if __name__ == "__main__":
    with get_context(sys.argv[2]).Pool(1) as pool:
        pool.map(partial(put, sys.argv[3] == "with"), range(5))
"""


@pytest.mark.requirement("PRD-78")
@pytest.mark.parametrize("how", ["put", "with"])
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_pool_that_a_with_block_ends(how: str, start: str, tmp_path: Path) -> None:
    program, delivered = tmp_path / "program.py", tmp_path / "delivered"
    program.write_text(POOL)
    delivered.touch()
    command = [sys.executable, str(program), str(delivered), start, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, env=HERE, check=True)
    if how == "with":
        assert sorted(delivered.read_bytes()) == list(b"01234")
    # One process has put all, and says it once.
    assert done.stderr.count("multiprocessing.Pool, and its terminate(), end this process") == (how == "put")


FORGOTTEN = """
import atexit, os, sys
from kpl_codec.producer import Producer, ProducerConfig
from tests.producer.model_client import ModelClient

class Client(ModelClient):
    def put_records(self, *, Records, **_):
        os.write(1, b"".join(record["Data"] for record in Records))
        return super().put_records(Records=Records)

if os.fork():
    os.wait()
else:
    atexit._clear()  # as Airflow 3 does in the process of a task
    producer = Producer("s", client=Client(), config=ProducerConfig(aggregation_enabled=False))
    for number in range(7):
        producer.put("k", b"%d" % number)
    atexit._run_exitfuncs()
    os._exit(0)
"""


@pytest.mark.requirement("PRD-61")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork is what is tested: this system has none")
def test_a_child_that_forgets_the_exit_handlers_of_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", FORGOTTEN], capture_output=True, timeout=50, env=HERE)
    assert sorted(done.stdout) == list(b"0123456"), done.stderr


@pytest.mark.requirement("PRD-79")
@pytest.mark.parametrize("what", ["producer", "async", "threads", "future"])
@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_a_producer_stays_in_its_process(what: str, how: Any) -> None:
    with Producer("s", client=ModelClient()) as producer:
        sent: dict[str, Any] = {
            "producer": producer,
            "async": AsyncProducer("s", client=ModelClient()),
            "threads": ProducerThreads(),
            "future": producer.put("k", b"data"),
        }
        with pytest.raises(TypeError, match=r" belongs? to one process: (make|give) "):
            how(sent[what])
