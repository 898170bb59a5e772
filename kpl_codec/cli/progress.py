"""Says on standard error what a command does where it takes long: a sentence before two seconds are over.

`waiting` says it once. `progress` says how much is done, every ten seconds.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import KplError
from ..pictures.terminal import note


class SparkFailed(KplError, RuntimeError):
    """A Spark job failed. ``reason``: its first line; ``log``: the file with more."""

    code = "spark-failed"
    reason: str
    log: str
    text = "Spark failed: {reason} (more in {log})"
    concerns = "Whoever runs the command. Nothing was written."
    todo = "Read the log that the text names."


@contextmanager
def spark_errors(log: str | None) -> Iterator[None]:
    """Failures of Spark become one line that says where to look. Other errors pass."""
    # Ctrl-C ends Java too, and py4j logs that at length to the root logger.
    logging.getLogger().addFilter(_not_py4j)
    try:
        yield
    except Exception as error:
        # By name: a job without Spark does not import these modules.
        if type(error).__module__.partition(".")[0] not in ("py4j", "pyspark"):
            raise
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        reason = (_cause(str(error)) or type(error).__name__)[:300]
        if log is not None:
            with open(log, "a") as out:
                out.write(f"\n{error}\n")
        raise SparkFailed(reason=reason, log=log or "the logs of Spark") from error


def _cause(text: str) -> str:
    """The line of an error of Spark that says most: our own error from a worker, else the error at the end of
    a worker's traceback, else what Java says first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if re.match(r"kpl_codec(\.\w+)+: ", line)]
    of_python = re.findall(r"^Traceback .*\n(?:[ \t].*\n|\n)+(\S.*)", text, re.MULTILINE)
    of_java = [line.removeprefix(": ") for line in lines if line.startswith((":", "Caused by:"))]
    return next(iter(ours or of_python[:1] or of_java or lines), "")


def _not_py4j(line: logging.LogRecord) -> bool:
    return "py4j" not in line.pathname


#: Seconds until the first sentence, and between two that follow.
_SOON, _AGAIN = 1.5, 10.0


@contextmanager
def waiting(what: str) -> Iterator[Callable[[], None]]:
    """Says ``what`` if the block takes long, unless what it gives was called before: there is something to
    show."""
    # SPK-97: "A command that has nothing to show for two seconds MUST say on standard error what it waits
    # for."
    timer = threading.Timer(_SOON, note, [f"{what} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()


#: Tasks done, and tasks known.
Tasks = Callable[[], tuple[int, int]]


@contextmanager
def progress(tasks: Tasks, what: str, *, quiet: bool = False) -> Iterator[None]:
    """Shows ``what`` and how many of the ``tasks`` are done, until the block ends."""
    if quiet:
        yield
        return
    end = threading.Event()
    thread = threading.Thread(target=_log, args=(tasks, what, end), daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(5)


def _log(tasks: Tasks, what: str, end: threading.Event) -> None:
    started = time.monotonic()
    pause = _SOON
    while not end.wait(pause):
        pause = _AGAIN
        done, total = tasks()
        note(f"{what}: task {done} of {total}, {time.monotonic() - started:.0f} s")
