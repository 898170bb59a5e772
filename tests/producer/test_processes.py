"""Processes that end, each in its own way, and who closes a producer there: real ones, with and without what
the guide services.md says. User records wait for others until the process ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kpl_codec.testing.local_kinesis import LocalKinesis

pytestmark = [
    pytest.mark.requirement("PRD-61", "PRD-92"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are tested: this system has none"),
]

#: A producer whose client writes the data of user records, but 0, into a file, a line each; `put_all` puts
#: six. `nowhere` is one that nobody answers. `use_all` uses full producers, and prints what comes of each.
SENDER = """
import asyncio, logging, os, signal, sys, threading, time
from concurrent.futures import wait
from botocore.exceptions import ClientError
import kpl_codec as kpl
from kpl_codec.producer import (
    AsyncProducer, NotStarted, Producer, ProducerClosed, ProducerConfig, config, threads,
)
from tests.producer.model_client import ModelClient

class Client(ModelClient):
    fails = 0
    def put_records(self, *, Records, **_):
        time.sleep(0.1)
        if Client.fails:
            Client.fails -= 1
            raise ClientError({"Error": {"Code": "InternalFailure"}}, "PutRecords")
        records = [kpl.KinesisRecord(one["PartitionKey"], one["Data"]) for one in Records]
        with open(os.environ["DELIVERED"], "ab") as file:
            file.writelines(one.data + b"\\n" for one in kpl.deaggregate(records) if one.data != b"0")
        return super().put_records(Records=Records)

threads.new_client = lambda *given: config.new_client(*given) if given[-1] else Client()
WAITS = ProducerConfig(record_max_buffered_time_ms=15_000)
NOBODY = {
    "endpoint_url": "http://127.0.0.1:9", "region": "us-east-1",
    "access_key_id": "x", "secret_access_key": "x",
}

def new(stream="s"):
    return Producer(stream, config=WAITS)

def new_async():
    return AsyncProducer("s", config=WAITS)

def put_all(producer):
    for number in range(1, 7):
        producer.put("k", b"%d" % number)

def filled():
    producer = new().start()
    put_all(producer)
    return producer

async def put_all_async(producer):
    for number in range(1, 7):
        await producer.put("k", b"%d" % number)

def nowhere(ttl, **options):
    return Producer("s", client_settings=NOBODY, config=ProducerConfig(record_ttl_ms=ttl), **options)

def tell(error):
    os.write(1, f"{error.outcome}\\n".encode())  # at once: the log goes there, too

called = threading.Event()

def hang(*_):
    called.set()
    threading.Event().wait()

USES = {
    "put": lambda producer, future: producer.put("k", b"0"),
    "flush": lambda producer, future: producer.flush(),
    "close": lambda producer, future: producer.close(),
    "result": lambda producer, future: future.result(),
    "wait": lambda producer, future: wait([future]),
}
FULL = ProducerConfig(record_max_buffered_time_ms=5, record_ttl_ms=4000, max_outstanding_records=2)

def fill(producer=None):
    producer = (producer or Producer("s", config=FULL, exit_timeout=3)).start()
    producer.put("k", b"0")
    return producer, producer.put("k", b"0")

def use_all(producers=(None,) * len(USES)):
    for (name, use), producer in zip(USES.items(), producers):
        came = "returned"
        try:
            use(*fill(producer))
        except BaseException as error:
            came = type(error).__name__
        os.write(1, f"{name} {came}\\n".encode())

def fork(producers):
    if os.fork() == 0:
        try:
            signal.alarm(60)
            use_all(producers)
        finally:
            os._exit(0)
    os.wait()

def in_a_callback(function):
    done = threading.Event()
    fill()[1].add_done_callback(lambda _: (function(), done.set()))
    done.wait()
"""
#: It forks a process for each program, whose folder is a line of its input, and prints how that has ended. So
#: Python and the package are loaded once.
STARTS_PROGRAMS = """
from sender import *

for folder in sys.stdin:
    if (child := os.fork()) == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    os._exit(0)
os.chdir(folder.strip())
os.environ["DELIVERED"] = os.path.abspath("delivered")
log = os.open("log", os.O_WRONLY | os.O_CREAT)
os.dup2(log, 1), os.dup2(log, 2)
signal.alarm(60)
exec(open("program.py").read())
"""
NUMBERS = [1, 2, 3, 4, 5, 6]
NEW = "NotStarted: the producer has not started: use a with block, or start() and, at the end, close()"
FORKED = "NotStarted: the producer has not started in this process, which was forked"
#: What comes of each use of a full producer, and in a callback.
RETURNED = "put returned\nflush returned\nclose returned\nresult returned\nwait returned\n"
REFUSED = RETURNED.replace("put returned", "put ProducerFull").replace("returned", "WouldDeadlock")


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
    """``delivered``: whether all six were. ``status``: the program's. ``says``: what its log has; None: there
    is none."""

    code: str
    delivered: bool = True
    status: int = 0
    says: str | None = None


FORKS = """
import multiprocessing
context = multiprocessing.get_context("fork")
def starts():
    global producer
    producer = filled()
"""
LOOP = """
async def starts(p):
    async with p:
        future = await p.put("k", b"0")
        await p.flush()
        assert future.result()

def child(p):
    if os.fork() == 0:
        for name, arguments in (("put", ("k", b"0")), ("flush", ()), ("wait_ready", ())):
            try:
                asyncio.run(getattr(p, name)(*arguments))
            except NotStarted as refused:
                assert (refused.code, p.outstanding) == ("forked", 0)
            else:
                assert name == "flush"
        asyncio.run(loop.shutdown_asyncgens())
        asyncio.run(starts(p))
        os._exit(0)
    assert os.wait()[1] == 0

async def main(forks):
    p = await new_async().start()
    await put_all_async(p)
    if forks:
        child(p)
    return p

loop = asyncio.new_event_loop()
"""
#: The outcomes of two producers with these options, of which all calls fail, when a block and close are over.
FAILS = """
Client.fails = 99
def new_one():
    return Producer("s", client=Client(), {})

with new_one() as producer:
    first = producer.put("k", b"0")
producer = new_one().start()
second = producer.put("k", b"0")
producer.close()
print(first.exception(0).outcome, second.exception(0).outcome)
"""
PROGRAMS = {
    "put without a start": Program("put_all(new())", False, 1, NEW),
    "with": Program("with new() as producer: put_all(producer)"),
    "start": Program("put_all(new().start())"),
    "start, without multiprocessing": Program("sys.modules.pop('multiprocessing.util', None)\nfilled()"),
    "start, sys.exit": Program("filled()\nsys.exit(3)", True, 3),
    "start, os._exit": Program("filled()\nos._exit(0)", False),
    "a forked child puts": Program("""
producer = filled()
if os.fork() == 0:
    assert producer.outstanding == 0
    put_all(producer)
os.wait()
""", True, 0, FORKED),
    "a forked child starts": Program("""
producer = new().start()
future = producer.put("k", b"7")
threading.Thread(target=future._condition.acquire).start()
if os.fork() == 0:
    assert future.exception().code == "forked" and wait([future]).done
    put_all(producer.start())
else:
    os.wait()
    os._exit(0)
"""),
    "a forked child asks, and has the client of its parent": Program("""
calls = []
with Producer("s", client=Client(), config=WAITS) as producer:
    put_all(producer)
    future = producer.put("k", b"0")
    future.add_done_callback(calls.append)
    if os.fork() == 0:
        assert future.exception(60).code == "forked" and not calls
        assert producer.outstanding == 0
        try:
            producer.start()
        except ProducerClosed as closed:
            os._exit(closed.code != "forked")
    assert os.wait()[1] == 0
assert len(calls) == 1
"""),
    "gevent, a forked child starts": Program("""
from gevent import monkey
monkey.patch_all()
from sender import *
producer = new().start()
producer.put("k", b"1")
producer.flush()
os.remove(os.environ["DELIVERED"])
futures = [producer.put("k", b"0") for _ in range(9)]
if os.fork() == 0:
    assert {future.exception().code for future in futures} == {"forked"}
    put_all(producer.start())
    time.sleep(1)
else:
    os.wait()
    os._exit(0)
"""),
    "gevent, after the import": Program("""
from sender import *
from gevent import monkey
monkey.patch_all()
filled()
""", False, 1, "NotStarted: threads were replaced by greenlets after the import of kpl_codec"),
    "Process, a producer of the module": Program(FORKS + """
producer = new().start()
child = context.Process(target=put_all, args=(producer,))
child.start()
child.join()
sys.exit(child.exitcode)
""", False, 1, FORKED),
    "Process, started in it": Program(FORKS + """
child = context.Process(target=starts)
child.start()
child.join()
"""),
    "a Pool that is terminated, started in it": Program(FORKS + """
with context.Pool(1) as pool:
    pool.apply(starts)
""", False),
    "asyncio, a forked child while its loop runs": Program(LOOP + """
producer = loop.run_until_complete(main(True))
loop.run_until_complete(producer.close())
"""),
    "asyncio, a forked child while its loop rests": Program(LOOP + """
producer = loop.run_until_complete(main(False))
child(producer)
loop.run_until_complete(producer.close())
"""),
    "asyncio, a loop that is closed before its producer": Program(LOOP + """
producer = loop.run_until_complete(main(False))
loop.close()
"""),
    "asyncio, put without a start": Program("asyncio.run(new_async().put('k', b'1'))", False, 1, NEW),
    "asyncio, start": Program("""
async def main():
    await put_all_async(await new_async().start())
asyncio.run(main())
""", says="stream s: the event loop of a producer ends: it closes it, with 6 user records outstanding"),
}  # fmt: skip
#: Full producers, each of whose uses returns.
FULL = {
    "used in a forked child of their process": "fork([fill()[0] for _ in USES])",
    "a fork while another thread has the lock": """
from kpl_codec.producer.process import LOCK
held, go = threading.Event(), threading.Event()

def hold():
    with LOCK:
        held.set()
        go.wait(60)

parents = [fill()[0] for _ in USES]
threading.Thread(target=hold).start()
held.wait()
threading.Timer(1, go.set).start()
fork(parents)
""",
    "a fork in a callback": "parents = [fill()[0] for _ in USES]\nin_a_callback(lambda: fork(parents))",
    "used at exit": "import atexit\natexit.register(use_all, [fill()[0] for _ in USES])",
    "used in an import": """
with open("uses.py", "w") as file:
    file.write("from sender import *\\nuse_all()")
import uses
""",
    "a log handler that hangs": """
import atexit
Client.fails = 1
atexit.unregister(logging.shutdown)
logging.getLogger().addHandler(type("H", (logging.Handler,), {"emit": hang})())
use_all()
""",
}
#: Programs that deliver nothing, and what their logs have.
UNDELIVERED = {
    "a forked child of a closed one puts": ("""
producer = new().start()
producer.close()
if os.fork() == 0:
    put_all(producer)
os.wait()
""", "ProducerClosed: the producer takes no records: it is closed"),
    "full producers in a callback": ("in_a_callback(use_all)", REFUSED),
    "a child that is forked in on_undelivered closes": ("""
def hook(error):
    if os.fork() == 0:
        closed = False
        try:
            closed = producer.close()
        finally:
            os._exit(not closed)
    print("status", os.wait()[1])

producer = nowhere(100, on_undelivered=hook).start()
producer.put("k", b"x")
""", "status 0\n"),
    "children that are forked in on_undelivered and a callback return": ("""
parent, children = os.getpid(), {}

def fork(given):
    if os.getpid() != parent:
        os._exit(7)
    if type(given) not in children:
        children[type(given)] = child = os.fork()
        if not child:
            signal.setitimer(signal.ITIMER_REAL, 0.5)

with nowhere(100, on_undelivered=fork) as producer:
    for _ in range(5):
        producer.put("k", b"x").add_done_callback(fork)
print([os.waitpid(child, 0)[1] for child in children.values()])
""", "[14, 14]\n"),
    "exit, nobody answers": ("nowhere(400, on_undelivered=tell).start().put('k', b'x')", "expired\n"),
    "exit after exit_timeout": ("""
nowhere(60_000, exit_timeout=0.2, on_undelivered=tell).start().put("k", b"x")
""", "closed\n"),
    "a block and close, nothing is taken": (
        FAILS.format("config=ProducerConfig(record_ttl_ms=400)"), "expired expired\n"
    ),
    "a block and close after exit_timeout": (
        FAILS.format("config=ProducerConfig(record_ttl_ms=60_000), exit_timeout=0.2"), "closed closed\n"
    ),
    "asyncio, its loop ends, nothing is taken": ("""
Client.fails = 99
config = ProducerConfig(record_ttl_ms=400)

async def main():
    client = Client()
    producer = AsyncProducer("s", client=client, config=config, on_undelivered=tell)
    await (await producer.start()).put("k", b"0")
asyncio.run(main())
""", "expired\n"),
    "on_undelivered never returns": ("""
nowhere(100, exit_timeout=0.5, on_undelivered=hang).start().put("k", b"x")
called.wait()
""", "1 user record without a result: the process ends"),
    "on_undelivered never returns, close does": ("""
producer = nowhere(100, exit_timeout=0.5, on_undelivered=hang).start()
producer.put("k", b"x")
called.wait()
print(producer.close(0.1))
""", "False\n"),
    "a callback never returns, close does": ("""
producer = nowhere(100, exit_timeout=0.5).start()
producer.put("k", b"x").add_done_callback(hang)
called.wait()
print(producer.close(0.1))
""", "False\n"),
    "the start comes after the end of the main thread": ("""
producer = nowhere(300)

def put():
    threading.main_thread().join()
    print(producer.start().put("k", b"x").exception(60))
threading.Thread(target=put).start()
""", "expired (EndpointConnectionError: Could not connect"),
}  # fmt: skip
UNDELIVERED |= {f"full producers: {name}": (code, RETURNED) for name, code in FULL.items()}
PROGRAMS |= {name: Program(code, False, says=says) for name, (code, says) in UNDELIVERED.items()}


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    place = Place(tmp_path_factory.mktemp("starter"))
    command = [sys.executable, "-c", STARTS_PROGRAMS]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=place.environment, **pipes) as process:
        yield process


@pytest.mark.requirement("PRD-39", "PRD-40", "PRD-41", "PRD-72", "PRD-73", "PRD-75", "PRD-90")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, place: Place, starter: Any) -> None:
    program = PROGRAMS[name]
    (place.folder / "program.py").write_text(program.code)
    if "main_thread" in program.code and (3, 12) <= sys.version_info < (3, 12, 2):
        pytest.skip("Python 3.12.0 and 3.12.1 start no thread at the end (CPython gh-113964)")
    if "gevent" in program.code:  # it is first in its process
        pytest.importorskip("gevent")
        status = place.start("program.py").wait(60)
    else:
        print(place.folder, file=starter.stdin, flush=True)
        status = int(starter.stdout.readline())
    log = place.log.read_text()
    assert (status, place.delivered()) == (program.status, NUMBERS if program.delivered else []), log
    assert program.says in log if program.says else log == ""


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
    "gunicorn --preload, started at import": Server(
        "gunicorn", STARTS, _gunicorn("sync", "--preload"), False, FORKED.removeprefix("NotStarted: ")
    ),
    "gunicorn --preload, started in post_fork": Server(
        "gunicorn", WSGI, _gunicorn("sync", "--preload"), True, None, POST_FORK
    ),
    "gevent, started at import": Server("gevent", STARTS, _gunicorn("gevent"), True),
    "gevent --preload, started at import and in post_fork": Server(
        "gevent", STARTS, _gunicorn("gevent", "--preload"), True, None, POST_FORK
    ),
    "uvicorn, lifespan": Server("uvicorn", CLOSES, UVICORN, True),
    "uvicorn, started and not closed": Server("uvicorn", LIFESPAN.replace("CLOSE", "pass"), UVICORN, False),
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
        port = free.getsockname()[1]
    process = place.start("-m", *(part.replace("PORT", str(port)) for part in server.command))
    statuses = set()
    try:
        wait_until_it_listens(port, process)
        for number in NUMBERS:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/{number}", timeout=60) as answer:
                    statuses.add(answer.status)
            except urllib.error.HTTPError as error:
                statuses.add(error.code)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        log = place.log.read_text()
        print(log)
    assert statuses == {500 if server.says else 200}
    assert place.delivered() == (NUMBERS if server.delivered else [])
    assert (server.says or "") in log


def wait_until_it_listens(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 60):
            return
        time.sleep(0.05)


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


# -- the first call ---------------------------------------------------------------------------------

FIRST_CALL = """
import logging, sys
from kpl_codec.producer import Producer, ProducerConfig

logging.disable()
settings = eval(sys.argv[2])
producer = Producer(sys.argv[1], client_settings=settings, config=ProducerConfig(record_ttl_ms=5000))
before = set(sys.modules)
future = producer.start().put("k", b"x")
ended = future.exception(60) or future.result()
producer.close()
print(ended.attempts[-1].outcome, sorted(set(sys.modules) - before))
"""


@pytest.mark.server
@pytest.mark.requirement("PRD-74")
@pytest.mark.parametrize(
    ("scheme", "credentials"), [("http", "default"), ("http", "from a process"), ("https", "given")]
)
def test_a_first_call_loads_nothing(
    scheme: str, credentials: str, kinesis_local: LocalKinesis, stream: str, place: Place
) -> None:
    settings: dict[str, Any] = dict(kinesis_local.client_settings)
    environment = {name: text for name, text in place.environment.items() if not name.startswith("AWS_")}
    if credentials != "given":
        keys = {name: settings.pop(name) for name in list(settings) if name.startswith("aws_")}
        environment["AWS_CONFIG_FILE"] = str(place.folder / "config")
        if credentials == "default":
            environment |= {name.upper(): text for name, text in keys.items()}
        else:
            answer = {"Version": 1, "AccessKeyId": "x", "SecretAccessKey": "x"}
            text = f"[default]\ncredential_process = echo '{json.dumps(answer)}'\n"
            (place.folder / "config").write_text(text)
    place.environment = environment
    if scheme == "https":  # the server speaks no TLS: the call ends with the handshake
        settings["endpoint_url"] = f"https://localhost:{kinesis_local.endpoint_url.rpartition(':')[2]}"
    assert place.start("-c", FIRST_CALL, stream, repr(settings)).wait(100) == 0
    outcome = "delivered" if scheme == "http" else "no-answer"
    assert place.log.read_text() == f"{outcome} []\n"
