"""A program that uses full producers from one place: ``python -m tests.producer.anywhere PLACE``.

It prints what came of each use. `faulthandler` ends it when one does not return.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import logging
import logging.config
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from botocore.exceptions import ClientError

from kpl_codec.producer import Producer, ProducerConfig, threads
from kpl_codec.producer.process import LOCK

from .model_client import ModelClient

#: Seconds after which the program ends as one that hangs. The time to live is 4 s.
BOUND = int(os.environ.get("BOUND", "60"))
CONFIG = ProducerConfig(record_max_buffered_time_ms=5, record_ttl_ms=4000, max_outstanding_records=2)


class Client(ModelClient):
    """Its first PutRecords fails, so that the producer has something to log."""

    failed = False

    def put_records(self, **arguments: Any) -> Any:
        if not self.failed:
            self.failed = True
            raise ClientError({"Error": {"Code": "InternalFailure"}}, "PutRecords")
        return super().put_records(**arguments)


if __name__ != "tests.producer.anywhere":  # in the program, and in a child of a fork server
    threads.new_client = lambda *_: Client(latency=0.05)


def full() -> tuple[Producer, Any]:
    producer = Producer("s", config=CONFIG, exit_timeout=3).start()
    producer.put("k", b"first")
    return producer, producer.put("k", b"second")


USES: dict[str, Callable[[Producer, Any], object]] = {
    "put": lambda producer, future: producer.put("k", b"third"),
    "flush": lambda producer, future: producer.flush(),
    "close": lambda producer, future: producer.close(),
    "result": lambda producer, future: future.result(),
    "wait": lambda producer, future: wait([future]),
}


def tell(name: str, use: Callable[[], object]) -> None:
    try:
        use()
        came = "returned"
    except BaseException as error:  # noqa: BLE001 - it is told
        came = f"{type(error).__name__} {error}"
    os.write(1, f"{name}: {came}\n".encode())


def use_all(producers: dict[str, tuple[Producer, Any]] | None = None) -> None:
    """``producers``: those to use, else new ones."""
    for name, use in USES.items():
        tell(name, lambda name=name, use=use: use(*(full() if producers is None else producers[name])))


def in_child() -> None:
    """In a forked child: with a producer of the parent's, which is empty here, and starts anew."""
    for name, use in USES.items():
        producer = PARENTS[name][0].start()

        def used(use: Any = use, producer: Producer = producer) -> None:
            producer.put("k", b"first")
            use(producer, producer.put("k", b"second"))

        tell(name, used)


PARENTS: dict[str, tuple[Producer, Any]] = {}


def fork() -> None:
    if (child := os.fork()) == 0:
        try:
            signal.alarm(BOUND)  # (faulthandler waits for its thread, which is the parent's)
            in_child()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def fork_while(lock: Any) -> None:
    """While another thread holds ``lock``."""
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            go.wait(BOUND)

    PARENTS.update({name: full() for name in USES})
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    threading.Timer(1, go.set).start()  # (for those whose fork waits for the lock)
    fork()
    go.set()
    thread.join()


class Hangs(logging.Handler):
    def emit(self, line: logging.LogRecord) -> None:
        threading.Event().wait()


def fill() -> None:
    PARENTS.update({name: full() for name in USES})


def os_fork() -> None:
    fill()
    fork()


def fork_with_the_lock_held() -> None:
    fork_while(LOCK)


def fork_in_a_callback() -> None:
    fill()
    done = threading.Event()
    producer = Producer("s", config=CONFIG).start()
    producer.put("k", b"x").add_done_callback(lambda _: (fork(), done.set()))
    done.wait()


def log_handler_that_hangs() -> None:
    logging.getLogger().addHandler(Hangs())
    atexit.unregister(logging.shutdown)  # it waits for the handler's lock
    use_all()


def callback() -> None:
    done = threading.Event()
    producer = Producer("s", config=CONFIG).start()
    producer.put("k", b"x").add_done_callback(lambda _: (use_all(), done.set()))
    done.wait()


def at_exit() -> None:
    fill()
    atexit.register(use_all, PARENTS)


def import_of_a_module() -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "uses_producers.py").write_text(
            "from tests.producer.anywhere import use_all\nuse_all()\n"
        )
        sys.path.insert(0, folder)
        importlib.import_module("uses_producers")


PLACES = [
    os_fork, fork_with_the_lock_held, fork_in_a_callback, log_handler_that_hangs, callback, at_exit,
    import_of_a_module,
]  # fmt: skip

if __name__ == "__main__":
    faulthandler.dump_traceback_later(BOUND, exit=True)
    globals()[sys.argv[1]]()
