"""Who closes a producer, in each kind of process: for real, with and without what the guide services.md says.
A producer's user records wait for others until the process ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [
    pytest.mark.requirement("PRD-61", "PRD-92"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are tested: this system has none"),
]

#: A producer whose client writes the data of user records into a file, a line each; `put_all` puts six.
SENDER = """
import logging, os, time
import kpl_codec as kpl
from kpl_codec.producer import AsyncProducer, Producer, ProducerConfig, threads
from tests.producer.model_client import AsyncModelClient, ModelClient

class Client(ModelClient):
    def put_records(self, *, Records, **_):
        time.sleep(0.1)
        records = [kpl.KinesisRecord(one["PartitionKey"], one["Data"]) for one in Records]
        with open(os.environ["DELIVERED"], "ab") as file:
            file.writelines(one.data + b"\\n" for one in kpl.deaggregate(records))
        return super().put_records(Records=Records)

threads.new_client = lambda *_: Client()
WAITS = ProducerConfig(record_max_buffered_time_ms=15_000)

def new(stream="s"):
    return Producer(stream, config=WAITS)

def new_async():
    return AsyncProducer("s", client=AsyncModelClient(Client()), config=WAITS)

def put_all(producer):
    for number in range(1, 7):
        producer.put("k", b"%d" % number)
"""
NUMBERS = [1, 2, 3, 4, 5, 6]
NEW = "NotStarted: the producer has not started: use a with block, or start() and, at the end, close()"
FORKED = "NotStarted: the producer has not started in this process, which was forked"


class Place:
    """A folder with the programs, and what was delivered."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        (folder / "sender.py").write_text(SENDER)
        here = os.pathsep.join([os.getcwd(), str(folder), *sys.path])
        self.environment = {**os.environ, "PYTHONPATH": here, "DELIVERED": str(folder / "delivered")}
        self.environment["PYTHONWARNINGS"] = "ignore"  # of other libraries

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [sys.executable, *command], cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )

    def delivered(self) -> list[int]:
        file = self.folder / "delivered"
        return sorted(map(int, file.read_text().split())) if file.exists() else []


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class Program(NamedTuple):
    """``delivered``: whether all six were. ``status``: the program's. ``says``: what its log has."""

    code: str
    delivered: bool = True
    status: int = 0
    says: str | None = None


FORKS = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
context = multiprocessing.get_context("fork")
def starts():
    global producer
    producer = new().start()
    put_all(producer)
"""
PROGRAMS = {
    "put without a start": Program("put_all(new())", False, 1, NEW),
    "with": Program("with new() as producer: put_all(producer)"),
    "start": Program("put_all(new().start())"),
    "start, sys.exit": Program("producer = new().start(); put_all(producer); sys.exit(3)", True, 3),
    "start, raise": Program("p = new().start(); put_all(p); 1 / 0", True, 1, "ZeroDivisionError"),
    "start, os._exit": Program("producer = new().start(); put_all(producer); os._exit(0)", False),
    "SIGTERM": Program("producer = new().start(); put_all(producer); os.kill(os.getpid(), 15)", False, -15),
    "SIGTERM with a handler, start": Program(
        "signal.signal(15, lambda *_: sys.exit(143))\n"
        "producer = new().start(); put_all(producer); os.kill(os.getpid(), 15)", True, 143
    ),
    "SIGTERM with a handler, with": Program(
        "signal.signal(15, lambda *_: sys.exit(143))\n"
        "with new() as producer:\n  put_all(producer); os.kill(os.getpid(), 15)", True, 143
    ),
    "a forked child puts": Program(
        "producer = new().start(); put_all(producer)\n"
        "if os.fork() == 0:\n  assert producer.outstanding == 0\n  put_all(producer)\nos.wait()",
        True, 0, FORKED
    ),
    "a forked child starts": Program(
        "producer = new().start(); future = producer.put('k', b'7')\n"
        "if os.fork() == 0:\n  assert future.exception().code == 'forked'\n  put_all(producer.start())\n"
        "else:\n  os.wait()\n  os._exit(0)"
    ),
    "gevent, a forked child starts": Program(
        "from gevent import monkey\nmonkey.patch_all()\n# --\n"
        "producer = new().start(); producer.put('k', b'1'); producer.flush()\n"
        "os.remove(os.environ['DELIVERED'])\n"
        "futures = [producer.put('k', b'0') for _ in range(9)]\n"
        "if os.fork() == 0:\n  assert {future.exception().code for future in futures} == {'forked'}\n"
        "  put_all(producer.start()); time.sleep(1)\nelse:\n  os.wait()\n  os._exit(0)"
    ),
    "gevent, after the import": Program(
        "from gevent import monkey\nmonkey.patch_all()\nput_all(new().start())", False, 1,
        "NotStarted: threads were replaced by greenlets after the import of kpl_codec",
    ),
    "Process, a producer of the module": Program(
        FORKS + "producer = new().start()\nchild = context.Process(target=put_all, args=(producer,))\n"
        "child.start(); child.join(); sys.exit(child.exitcode)", False, 1, FORKED
    ),
    "an executor, a producer of the module": Program(
        FORKS + "producer = new().start()\ndef put(): put_all(producer)\n"
        "with ProcessPoolExecutor(1, mp_context=context) as pool: pool.submit(put).result()", False, 1, FORKED
    ),
    "Process, started in it": Program(FORKS + "p = context.Process(target=starts); p.start(); p.join()"),
    "an executor, started in it": Program(
        FORKS + "with ProcessPoolExecutor(1, mp_context=context) as pool: pool.submit(starts).result()"
    ),
    "a Pool that is terminated, started in it": Program(
        FORKS + "with context.Pool(1) as pool: pool.apply(starts)", False
    ),
    "asyncio, put without a start": Program("asyncio.run(new_async().put('k', b'1'))", False, 1, NEW),
    "asyncio, with": Program(
        "async def main():\n  async with new_async() as p:\n"
        "    for n in range(1, 7): await p.put('k', b'%d' % n)\nasyncio.run(main())"
    ),
    "asyncio, start": Program(
        "async def main():\n  p = await new_async().start()\n"
        "  for n in range(1, 7): await p.put('k', b'%d' % n)\nasyncio.run(main())",
        says="stream s: the event loop of a producer ends: it closes it, with 6 user records outstanding",
    ),
    "a signal handler puts, a thousand times a second": Program(
        """
futures, n = [], 0
def put(*_):
    global n
    n += 1
    futures.append(producer.put("k", b"0"))
signal.signal(signal.SIGALRM, put)
with Producer("s") as producer:
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    own = 0
    while n < 200:
        futures.append(producer.put("k", b"0"))
        own += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
assert len(futures) == n + own and all(future.result(0) for future in futures)
os.remove(os.environ["DELIVERED"])
with new() as producer: put_all(producer)
"""
    ),
}  # fmt: skip


@pytest.mark.requirement("PRD-39", "PRD-40")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, place: Place) -> None:
    program = PROGRAMS[name]
    head = "import asyncio, os, signal, sys, time\nfrom sender import *\nsignal.alarm(60)\n"
    first, _, code = program.code.rpartition("# --\n")
    if "gevent" in first:
        pytest.importorskip("gevent")
    (place.folder / "program.py").write_text(first + head + code)
    status = place.start("program.py").wait(60)
    log = place.log.read_text()
    assert (status, place.delivered()) == (program.status, NUMBERS if program.delivered else []), log
    assert (program.says or "") in log
    if program.says is None:
        assert log == ""


# -- servers ----------------------------------------------------------------------------------------

WSGI = """
import os
from sender import new
producer = new()

def app(environ, start_response):
    producer.put("k", environ["PATH_INFO"][1:].encode())
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"ok"]
"""
STARTS = WSGI.replace("new()\n", "new().start()\n")
POST_FORK = "def post_fork(server, worker):\n    import web\n    web.producer.start()\n"
ASGI = """
from sender import new_async
producer = new_async()

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        START
        await send({"type": "lifespan.startup.complete"})
        await receive()
        CLOSE
        return await send({"type": "lifespan.shutdown.complete"})
    await producer.put("k", scope["path"][1:].encode())
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""
LIFESPAN = ASGI.replace("START", "await producer.start()")


class Server(NamedTuple):
    """``module``: that it needs; ``web``: the program; ``config``: of gunicorn."""

    module: str
    web: str
    command: tuple[str, ...]
    delivered: bool
    says: str | None = None
    config: str = ""


def _gunicorn(kind: str, *more: str) -> tuple[str, ...]:
    return ("gunicorn", "web:app", "-c", "settings.py", "-w", "1", "-k", kind, *more, "-b", "127.0.0.1:PORT")


UVICORN = ("uvicorn", "web:app", "--port", "PORT")
CLOSES = LIFESPAN.replace("CLOSE", "await producer.close()")
SERVERS = {
    "gunicorn, started at import": Server("gunicorn", STARTS, _gunicorn("sync"), True),
    "gthread, started at import": Server("gunicorn", STARTS, _gunicorn("gthread"), True),
    "gunicorn --preload, started at import": Server(
        "gunicorn", STARTS, _gunicorn("sync", "--preload"), False, FORKED.removeprefix("NotStarted: ")
    ),
    "gunicorn --preload, started in post_fork": Server(
        "gunicorn", WSGI, _gunicorn("sync", "--preload"), True, None, POST_FORK
    ),
    "gunicorn --preload, started at import and in post_fork": Server(
        "gunicorn", STARTS, _gunicorn("sync", "--preload"), True, None, POST_FORK
    ),
    "gevent, started at import": Server("gevent", STARTS, _gunicorn("gevent"), True),
    "gevent --preload, started at import and in post_fork": Server(
        "gevent", STARTS, _gunicorn("gevent", "--preload"), True, None, POST_FORK
    ),
    "uvicorn, lifespan": Server("uvicorn", CLOSES, UVICORN, True),
    "uvicorn, started and not closed": Server("uvicorn", LIFESPAN.replace("CLOSE", "pass"), UVICORN, False),
    "uvicorn, neither": Server(
        "uvicorn", ASGI.replace("START", "pass").replace("CLOSE", "pass"), UVICORN, False, NEW[12:]
    ),
    "gunicorn with uvicorn's worker, lifespan": Server(
        "uvicorn_worker", CLOSES, _gunicorn("uvicorn_worker.UvicornWorker"), True
    ),
    "hypercorn, lifespan": Server(
        "hypercorn", CLOSES, ("hypercorn", "web:app", "-b", "127.0.0.1:PORT"), True
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
def test_servers_that_are_stopped(name: str, place: Place) -> None:
    server = SERVERS[name]
    pytest.importorskip(server.module)
    (place.folder / "web.py").write_text(server.web)
    (place.folder / "settings.py").write_text(server.config)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    process = place.start("-m", *(part.replace("PORT", port) for part in server.command))
    try:
        for number in NUMBERS:
            until = time.monotonic() + 60
            while time.monotonic() < until and process.poll() is None:
                with suppress(urllib.error.HTTPError):
                    with suppress(ConnectionError, urllib.error.URLError):
                        urllib.request.urlopen(f"http://127.0.0.1:{port}/{number}", timeout=60).read()
                        break
                    time.sleep(0.05)  # it does not listen yet
                    continue
                break
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
    log = place.log.read_text()
    assert place.delivered() == (NUMBERS if server.delivered else []), log
    assert (server.says or "") in log


# -- tasks of Celery --------------------------------------------------------------------------------

TASKS = """
import os
from celery import Celery
from celery.signals import worker_process_init, worker_process_shutdown
import sender

folder = os.environ["QUEUE"]
app = Celery("tasks", broker="filesystem://")
app.conf.broker_transport_options = {
    "data_folder_in": folder, "data_folder_out": folder, "control_folder": folder + "-control",
}
app.conf.update(
    worker_max_tasks_per_child=2, worker_prefetch_multiplier=1, task_ignore_result=True,
    broker_connection_retry_on_startup=False,
)
producer = sender.new()
worker_process_init.connect(lambda **_: producer.start(), weak=False)
worker_process_shutdown.connect(lambda **_: producer.close(), weak=False)

@app.task
def send(number):
    producer.put("k", b"%d" % number)
    open(f"{os.environ['BEGUN']}/{number}", "w").close()

if __name__ == "__main__":
    for number in range(1, 7):
        send.delay(number)
"""


@pytest.mark.slow
def test_workers_of_celery(place: Place) -> None:
    """Also one that is recycled, after two tasks."""
    pytest.importorskip("celery")
    queue, begun = place.folder / "queue", place.folder / "begun"
    for folder in (queue, begun, place.folder / "queue-control"):
        folder.mkdir()
    place.environment |= {"QUEUE": str(queue), "BEGUN": str(begun)}
    (place.folder / "tasks.py").write_text(TASKS)
    assert place.start("tasks.py").wait(60) == 0
    options = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-c", "2")
    worker = place.start("-m", "celery", "-A", "tasks", "worker", "-P", "prefork", *options)
    try:
        while len(list(begun.iterdir())) < len(NUMBERS) and worker.poll() is None:
            time.sleep(0.05)
        worker.terminate()
        # Its children have ended by then, or deliver nothing more. Its own end may never come: billiard 4.3.2
        # hangs in some shutdowns, without a producer, too.
        with suppress(subprocess.TimeoutExpired):
            worker.wait(60)
    finally:
        worker.kill()
    assert place.delivered() == NUMBERS, place.log.read_text()
