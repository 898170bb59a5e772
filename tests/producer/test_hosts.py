"""Programs that end the processes of functions of others without exit handlers: what the log says there, and
that a producer cannot be sent to them."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest

from kpl_codec.producer import AsyncProducer, Producer, ProducerThreads

from .model_client import ModelClient

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


@pytest.mark.requirement("PRD-78", "PRD-91")
@pytest.mark.parametrize("how", ["put", "with", "async put", "async with"])
@pytest.mark.parametrize(
    ("module", "variable", "said"),
    [
        ("rq", "RQ_JOB_ID", "RQ ends this process without exit handlers: call flush() or close()"),
        ("airflow.task.task_runner.standard_task_runner", "AIRFLOW_CTX_TASK_ID", "Airflow ends this process"),
        ("pyspark", "PYTHON_WORKER_FACTORY_SECRET", "PySpark ends this process"),
        ("json", "AWS_LAMBDA_FUNCTION_NAME", "Lambda stops this process when the handler returns"),
        ("ray", "RAY_RAYLET_PID", "Ray ends this process without exit handlers when its job has ended"),
        ("nothing", "OF_NO_HOST", ""),
    ],
    ids=["rq", "airflow", "pyspark", "lambda", "ray", "none"],
)
def test_the_first_put_logs_what_is_lost(module: str, variable: str, said: str, how: str) -> None:
    program = [sys.executable, "-c", ENDS_AT_ONCE, module, variable, how]
    done = subprocess.run(program, capture_output=True, text=True, timeout=100, env=HERE, check=True)
    *lines, last = done.stderr.splitlines()
    assert len(lines) == bool(said and how.endswith("put")), done.stderr
    assert all(line.startswith(said) for line in lines)
    # PRD-91
    assert last.startswith("stream orders: 1 user record without a result: os._exit ends this process")


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
