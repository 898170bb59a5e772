"""The table "Who waits at the end" of the guide services.md: each of its processes for real, with and without
what the row says to do, and each way in which it ends. A producer's user records wait for others until the
process ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from .skins import NO_THREADS_AT_THE_END

pytestmark = pytest.mark.requirement("PRD-61")
GUIDE = Path(__file__).parents[2] / "spec" / "guides" / "services.md"

#: `put` and `flush` of a producer whose client writes the data of user records into a file, a line each.
SENDER = """
import os, time
import kpl_codec as kpl
from kpl_codec.producer import Producer, ProducerConfig
from tests.producer.model_client import ModelClient

class Client(ModelClient):
    def put_records(self, *, Records, **_):
        time.sleep(0.1)
        records = [kpl.KinesisRecord(one["PartitionKey"], one["Data"]) for one in Records]
        with open(os.environ["DELIVERED"], "ab") as file:
            file.writelines(one.data + b"\\n" for one in kpl.deaggregate(records))
        return super().put_records(Records=Records)

WAITS = ProducerConfig(record_max_buffered_time_ms=15_000)
producers = []

def producer():
    if not producers:  # in the process that puts
        producers.append(Producer("s", client=Client(), config=WAITS))
    return producers[0]

def note(number):
    with open(os.environ["DELIVERED"] + "-put", "a") as file:
        print(number, file=file)

def put(number, flush=False):
    producer().put("k", b"%d" % int(number))
    note(number)
    if flush:
        producer().flush()
"""
NUMBERS = list(range(1, 7))


class Place:
    """A folder with the programs, and what was delivered."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        (folder / "sender.py").write_text(SENDER)
        here = os.pathsep.join([os.getcwd(), str(folder), *sys.path])
        self.environment = {**os.environ, "PYTHONPATH": here, "DELIVERED": str(folder / "delivered")}
        self.environment["PYTHONWARNINGS"] = "ignore"  # of other libraries

    def start(self, *command: str, **more: str) -> subprocess.Popen[bytes]:
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [sys.executable, *command],
                cwd=self.folder,
                env={**self.environment, **more},
                stdout=log,
                stderr=log,
            )

    def run(self, program: str, *arguments: str, **more: str) -> int:
        (self.folder / "program.py").write_text(program)
        return self.start("program.py", *arguments, **more).wait(60)

    def numbers(self, name: str) -> list[int]:
        file = self.folder / name
        return sorted(map(int, file.read_text().split())) if file.exists() else []


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def closes_itself(word: str) -> bool:
    """Whether the row of the guide's table with this word says that something closes the producers."""
    text = GUIDE.read_text().partition("## Who waits at the end")[2].partition("\n\n## ")[0]
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    (row,) = (row for row in rows if re.search(rf"(?<![\w.]){re.escape(word)}(?![\w(])", row[0]))
    return "**nothing**" not in row[1]


def check(place: Place, word: str, remedy: bool) -> None:
    """All was put; and delivered was what the table says, or all with its remedy."""
    right = NUMBERS if remedy or closes_itself(word) else []
    assert place.numbers("delivered-put") == NUMBERS, place.log.read_text()
    assert place.numbers("delivered") == right, place.log.read_text()


# -- servers --------------------------------------------------------------------------------------

WSGI = """
from sender import put

def app(environ, start_response):
    put(environ["PATH_INFO"][1:])
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"ok"]
"""
ASGI = """
import os
from sender import producer, put

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            ends = message["type"].endswith("shutdown")
            if ends and os.environ["REMEDY"] == "True":
                producer().close()
            await send({"type": message["type"] + ".complete"})
            if ends:
                return
    put(scope["path"][1:])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""
GUNICORN = ("-m", "gunicorn", "web:app", "-w", "1", "-b")
#: By a word of the table: modules that it needs, the program, the command without the address.
SERVERS = {
    "sync": ("gunicorn", WSGI, ("-m", "gunicorn", "-k", "sync", *GUNICORN[2:])),
    "gthread": ("gunicorn", WSGI, ("-m", "gunicorn", "-k", "gthread", *GUNICORN[2:])),
    "gevent": ("gunicorn gevent", WSGI, ("-m", "gunicorn", "-k", "gevent", *GUNICORN[2:])),
    "uvicorn": ("uvicorn", ASGI, ("-m", "uvicorn", "web:app", "--port")),
    "uvicorn.workers.UvicornWorker": (
        "gunicorn uvicorn",
        ASGI,
        ("-m", "gunicorn", "-k", "uvicorn.workers.UvicornWorker", *GUNICORN[2:]),
    ),
    "uvicorn_worker.UvicornWorker": (
        "gunicorn uvicorn_worker",
        ASGI,
        ("-m", "gunicorn", "-k", "uvicorn_worker.UvicornWorker", *GUNICORN[2:]),
    ),
    "hypercorn": ("hypercorn", ASGI, ("-m", "hypercorn", "web:app", "-b")),
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize("remedy", [False, True], ids=["as-it-is", "closed-in-the-lifespan"])
@pytest.mark.parametrize("word", SERVERS)
def test_a_server_that_is_stopped(word: str, remedy: bool, place: Place) -> None:
    modules, program, command = SERVERS[word]
    for module in modules.split():
        pytest.importorskip(module)
    if remedy and program is WSGI:
        pytest.skip("WSGI has no lifespan")
    (place.folder / "web.py").write_text(program)
    port = free_port()
    address = str(port) if word == "uvicorn" else f"127.0.0.1:{port}"
    server = place.start(*command, address, REMEDY=str(remedy))
    try:
        for number in NUMBERS:
            until = time.monotonic() + 60
            while time.monotonic() < until and server.poll() is None:
                with suppress(ConnectionError, urllib.error.URLError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/{number}", timeout=60).read()
                    break
                time.sleep(0.05)  # it does not listen yet
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    finally:
        server.kill()
    check(place, word, remedy)


# -- multiprocessing ------------------------------------------------------------------------------

PROCESSES = """
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from sender import producers, put

context = import_module(sys.argv[4]).get_context(sys.argv[2])

def put_all(numbers, end=None):
    for number in numbers:
        put(number)
    if end == "sys.exit":
        sys.exit(3)
    if end == "raise":
        raise ZeroDivisionError
    if end == "drop":
        producers.clear()

def start(target, *arguments, daemon=False):
    process = context.Process(target=target, args=arguments, daemon=daemon)
    process.start()
    process.join()

if __name__ == "__main__":
    how, flush = sys.argv[1], sys.argv[3] == "True"
    numbers, send = range(1, 7), partial(put, flush=flush)
    if how == "with Pool() as pool":
        with context.Pool(2) as pool:
            pool.map(send, numbers)
    elif how == "Pool.terminate":
        pool = context.Pool(2)
        pool.map(send, numbers)
        pool.terminate()
        pool.join()
    elif how == "Pool":
        pool = context.Pool(2)
        pool.map(send, numbers)
        pool.close()
        pool.join()
    elif how == "ProcessPoolExecutor":
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            list(pool.map(send, numbers))
    elif how == "nested":
        start(start, put_all, numbers)
    else:
        start(put_all, numbers, how, daemon=how == "daemon")
"""
OF_A_PROCESS = ["return", "daemon", "nested", "sys.exit", "raise", "drop"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize(
    "method", ["fork", *(pytest.param(one, marks=pytest.mark.slow) for one in ("spawn", "forkserver"))]
)
@pytest.mark.parametrize(
    ("how", "word", "remedy"),
    [
        *((end, "Process", False) for end in OF_A_PROCESS),
        ("ProcessPoolExecutor", "ProcessPoolExecutor", False),
        ("Pool", "a `Pool` after `close()` and `join()`", False),
        ("with Pool() as pool", "with Pool() as pool", False),
        ("with Pool() as pool", "with Pool() as pool", True),
        ("Pool.terminate", "Pool.terminate", False),
        ("Pool.terminate", "Pool.terminate", True),
    ],
    ids=[*OF_A_PROCESS, "executor", "joined", "block", "block-flush", "terminate", "terminate-flush"],
)
def test_processes_of_multiprocessing(how: str, word: str, remedy: bool, method: str, place: Place) -> None:
    place.run(PROCESSES, how, method, str(remedy), "multiprocessing")
    check(place, word, remedy)
    # PRD-78
    told = "multiprocessing.Pool, and its terminate(), end this process" in place.log.read_text()
    assert told is (how in ("Pool", "Pool.terminate", "with Pool() as pool"))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize(
    ("how", "word", "remedy"),
    [
        *((end, "billiard.Process", False) for end in OF_A_PROCESS),
        ("Pool", "billiard.Pool", False),
        ("Pool", "billiard.Pool", True),
        ("Pool.terminate", "billiard.Pool", False),
        ("Pool.terminate", "billiard.Pool", True),
    ],
    ids=[*OF_A_PROCESS, "joined", "joined-flush", "terminate", "terminate-flush"],
)
def test_processes_of_billiard_without_celery(how: str, word: str, remedy: bool, place: Place) -> None:
    pytest.importorskip("billiard")
    place.run(PROCESSES, how, "fork", str(remedy), "billiard")
    check(place, word, remedy)
    # PRD-78
    told = "billiard.Pool ends this process without exit handlers" in place.log.read_text()
    assert told is how.startswith("Pool")


#: A program whose process, or whose child, ends without exit handlers.
NO_EXIT_HANDLERS = {
    "os._exit": """
    put_all()
    os._exit(0)
""",
    "a child of os.fork": """
    if os.fork() == 0:
        put_all()
        os._exit(0)
    os.wait()
""",
    "os.execvp": """
    put_all()
    os.execvp("true", ["true"])
""",
    "ForkingMixIn": """
    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            put_all()
            self.wfile.write(b"done")

    with socketserver.ForkingTCPServer(("127.0.0.1", 0), Handler) as server:
        with socket.create_connection(server.server_address) as connection:
            server.handle_request()
            connection.makefile().read()
""",
    "asyncio": """
    import asyncio
    from kpl_codec.producer import AsyncProducer
    from tests.producer.model_client import AsyncModelClient

    async def main():
        client = AsyncModelClient(sender.Client())
        producer = AsyncProducer("s", client=client, config=sender.WAITS)
        for number in range(1, 7):
            await producer.put("k", b"%d" % number)
            sender.note(number)
        if flush:
            await producer.flush()
        os._exit(0)

    asyncio.run(main())
""",
}
PUTS_ALL = """
import os, socket, socketserver, sys
import sender

flush = sys.argv[1] == "True"

def put_all():
    for number in range(1, 7):
        sender.put(number, flush=flush)

if __name__ == "__main__":
"""


@pytest.mark.requirement("PRD-91")
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize("remedy", [False, True], ids=["as-it-is", "flush"])
@pytest.mark.parametrize("how", NO_EXIT_HANDLERS)
def test_a_process_that_ends_without_exit_handlers_says_what_it_loses(
    how: str, remedy: bool, place: Place
) -> None:
    place.run(PUTS_ALL + NO_EXIT_HANDLERS[how], str(remedy))
    check(place, "os._exit", remedy)
    way = "os.execv" if how == "os.execvp" else "os._exit"
    lost = f"stream s: 6 user records without a result: {way} ends this process without exit handlers"
    assert place.log.read_text().count(lost) == (not remedy), place.log.read_text()


# -- queues of tasks ------------------------------------------------------------------------------

TASKS = """
import os
from celery import Celery
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

@app.task
def send(number):
    sender.put(number)
    open(f"{os.environ['BEGUN']}/{number}", "w").close()

if __name__ == "__main__":
    for number in range(1, 7):
        send.delay(number)
"""


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["prefork", "solo", "threads"])
def test_pools_of_celery(pool: str, place: Place) -> None:
    """Also of a worker that is recycled, after two tasks."""
    pytest.importorskip("celery")
    queue, begun = place.folder / "queue", place.folder / "begun"
    for folder in (queue, begun, place.folder / "queue-control"):
        folder.mkdir()
    place.environment |= {"QUEUE": str(queue), "BEGUN": str(begun)}
    (place.folder / "tasks.py").write_text(TASKS)
    assert place.start("tasks.py").wait(60) == 0
    options = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-c", "2")
    worker = place.start("-m", "celery", "-A", "tasks", "worker", "-P", pool, *options)
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
    check(place, "Celery with the pools prefork, solo, threads", remedy=False)


@contextmanager
def redis_server() -> Iterator[int]:
    server = pytest.importorskip("fakeredis").TcpFakeServer(("127.0.0.1", 0))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


WORKER = """
import sys
from redis import Redis
from rq import Queue, Worker
from sender import put

connection = Redis(port=int(sys.argv[1]))
connection.set_response_callback("CLIENT INFO", lambda *_, **__: {"addr": ""})  # fakeredis has none
queue = Queue(connection=connection)
for number in range(1, 7):
    queue.enqueue(put, number, sys.argv[2] == "True")
Worker([queue], connection=connection).work(burst=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("remedy", [False, True], ids=["as-it-is", "flush"])
def test_jobs_of_rq(remedy: bool, place: Place) -> None:
    pytest.importorskip("rq")
    with redis_server() as port:
        place.run(WORKER, str(port), str(remedy))
    check(place, "RQ", remedy)


# -- programs -------------------------------------------------------------------------------------

PROGRAM = """
import atexit, os, signal, sys, threading, time
from sender import producers, put

def put_all():
    for number in range(1, 7):
        put(number, flush=how == "flush")

def put_at_last():
    threading.main_thread().join()
    put_all()

how = sys.argv[1]
if how == "handler":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
if how == "thread":
    threading.Thread(target=put_at_last).start()
elif how in ("os.fork", "forgets") and os.fork():
    os.wait()
elif how == "forgets":
    atexit._clear()  # as Airflow 3 does in the process of a task
    put_all()
    atexit._run_exitfuncs()
    os._exit(0)
else:
    put_all()
if how == "sys.exit":
    sys.exit(3)
elif how == "raise":
    raise ZeroDivisionError
elif how == "drop":
    producers.clear()
elif how in ("SIGTERM", "handler"):
    os.kill(os.getpid(), signal.SIGTERM)
elif how == "kill -9":
    os.kill(os.getpid(), signal.SIGKILL)
elif how in ("os._exit", "flush"):
    os._exit(0)
"""
OF_A_PROGRAM = ["return", "sys.exit", "raise", "drop", "os.fork", "forgets"]


@pytest.mark.parametrize(
    ("how", "word", "remedy"),
    [
        *((end, "a program", False) for end in OF_A_PROGRAM),
        pytest.param("thread", "a program", False, marks=NO_THREADS_AT_THE_END),
        ("os._exit", "os._exit", False),
        ("flush", "os._exit", True),
        ("SIGTERM", "SIGTERM without a handler", False),
        ("handler", "SIGTERM without a handler", True),
        ("kill -9", "kill -9", False),
    ],
    ids=[
        *OF_A_PROGRAM, "thread", "os-exit", "os-exit-after-flush", "sigterm", "sigterm-with-the-line", "kill"
    ],
)  # fmt: skip
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork is what is tested: this system has none")
def test_programs(how: str, word: str, remedy: bool, place: Place) -> None:
    place.run(PROGRAM, how)
    check(place, word, remedy)
