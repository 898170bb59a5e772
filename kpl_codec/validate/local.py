"""Runs tasks on this machine, without Java: small jobs in this process, others in several."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from ..base.arguments import check_arguments
from ..base.without_pandas import hide_pandas
from ..errors import KplError
from .task import Job

#: A job with fewer bytes runs in this process, because a worker takes about half a second to start.
IN_PROCESS_BYTES = 8 * 1024 * 1024
#: What a worker runs. With -c Python has the working folder in its path, as an empty text: captures may lie
#: there, and this process runs none of it.
_WORKER = f"""
import sys
sys.path[:] = filter(None, sys.path)
from {hide_pandas.__module__} import hide_pandas
hide_pandas()
from {__name__} import serve
serve()
"""
#: The most memory of a worker in bytes, for any input; measured by tests/validate/test_memory.py.
WORKER_MEMORY = 768 * 1024 * 1024


class WorkerLost(KplError, RuntimeError):
    """A worker process ended in the middle of a task, with exit status ``status`` (below 0: by a signal)."""

    code = "worker-lost"
    requirement = "SPK-42"
    status: int
    text = (
        "a worker process ended with status {status} in the middle of a task; nothing was reported as done "
        "(-9: the machine was out of memory, perhaps: try fewer cores)"
    )
    concerns = "Whoever runs the command. Nothing was written."
    todo = "Give the job fewer cores (--cores of kpl-codec): the worker probably ran out of memory."


class LocalEngine:
    """``cores``: worker processes, by default one per core. ``memory_bytes`` bounds all of them together, by
    default three quarters of the machine's memory."""

    def __init__(self, *, cores: int | None = None, memory_bytes: int | None = None) -> None:
        check_arguments("LocalEngine", locals())
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        # SPK-41: "The local engine MUST hold at most 768 MiB in each worker process, whatever it reads, and
        # start no more of them than fit in the memory it is given."
        if memory_bytes is None:
            memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4
        self.cores = max(1, min(cores or usable, memory_bytes // WORKER_MEMORY))
        self._finished: list[int] = []
        self._total = 0

    def progress(self) -> tuple[int, int]:
        """How many tasks are done, and how many there are."""
        return len(self._finished), self._total

    def run(self, job: Job) -> None:
        """Runs every task. Raises what a task raises, and WorkerLost."""
        self._finished, self._total = [], len(job.tasks)
        size = sum(part.weight for task in job.tasks for part in task)
        count = 1 if size < IN_PROCESS_BYTES else min(self.cores, self._total)
        numbers = SimpleQueue[int | None]()
        for number in (*range(self._total), *[None] * count):
            numbers.put(number)
        if count <= 1:
            self._run_tasks(job.run, numbers)
            return
        workers = [_Worker(job) for _ in range(count)]
        with ThreadPoolExecutor(count) as pool:
            try:
                futures = [pool.submit(self._run_tasks, worker.run, numbers) for worker in workers]
                for finished in wait(futures, return_when=FIRST_EXCEPTION).done:
                    finished.result()
            finally:
                # Needed at Ctrl-C, too: the pool waits for its threads, and these for their workers.
                for worker in workers:
                    worker.kill()

    def _run_tasks(self, run: Callable[[int], Any], numbers: SimpleQueue[int | None]) -> None:
        """Runs the tasks whose numbers come from the queue, until None comes. Several threads share the
        queue."""
        for number in iter(numbers.get, None):
            run(number)
            self._finished.append(number)


class _Worker:
    """A process that does tasks. It ends with this process: when its input is closed."""

    def __init__(self, job: Job) -> None:
        # The worker can import the same modules as this process.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for this process, also while the worker still starts
        )
        self._send(job)

    def _send(self, value: Any) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `run` notices that the process has ended
            pickle.dump(value, self._process.stdin)
            self._process.stdin.flush()

    def run(self, number: int) -> None:
        assert self._process.stdout is not None
        self._send(number)
        try:
            error = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            raise WorkerLost(status=self._process.wait()) from None
        if error is not None:
            raise error

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def serve() -> None:
    """A worker: reads the job, then numbers, pickled, from standard input; answers each with None or the
    error."""
    # Output of libraries must not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    with suppress(EOFError, pickle.UnpicklingError):  # the process that started us ended
        job: Job = pickle.load(requests)
        while True:
            number, error = pickle.load(requests), None
            try:
                job.run(number)
            except Exception as caught:  # noqa: BLE001  raised where the job was started
                error = caught
            try:
                answer = pickle.dumps(error)
            except Exception:  # noqa: BLE001  an error that cannot be pickled
                answer = pickle.dumps(RuntimeError(repr(error)))
            try:
                answers.write(answer)
                answers.flush()
            except BrokenPipeError:  # the process that started us was killed
                os._exit(1)
