"""The local engine: several processes, no Java, no pyspark; what becomes of a job that is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kpl_codec as kpl
from kpl_codec.captures import InputError, Location, plan
from kpl_codec.validate import LocalEngine, local, validate
from kpl_codec.validate.task import Job
from kpl_codec.validate.validate_command import is_local_job

from ..captures.test_captures import answer
from ..cli.commands import run
from .test_job import LOWER, MAP, sorted_by_shard


def capture(folder: Path, files: int) -> None:
    """Clean captures of one shard."""
    folder.mkdir()
    users = sorted_by_shard(20)[LOWER]
    for number in range(files):
        page = answer(kpl.encode(users), shard=LOWER, first=number)
        (folder / f"{number:03d}.json").write_text(json.dumps(page))


@pytest.mark.requirement("SPK-42")
def test_a_worker_that_is_killed_ends_the_job_with_an_error(tmp_path: Path) -> None:
    capture(tmp_path / "in", 1)
    job = Job([plan([str(tmp_path / "in")])], MAP, Location(tmp_path / "out"))
    worker = local._Worker(job)
    worker._process.send_signal(signal.SIGKILL)
    with pytest.raises(local.WorkerLost, match="status -9"):
        worker.run(0)
    worker.kill()


def started(folder: Path, *, at_work: bool) -> tuple[subprocess.Popen[bytes], list[int]]:
    """The command, with 120 tasks of 0.2 seconds for two workers; and these. ``at_work``: a task is done."""
    capture(folder / "in", 120)
    (folder / "shards.json").write_text(MAP.to_json())
    code = (
        # A shell that starts something in the background has it ignore Ctrl-C.
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from kpl_codec.cli.main import main\n"
        "from kpl_codec.validate import local, validate_job\n"
        "local.IN_PROCESS_BYTES = 0\n"
        "pack = validate_job.pack\n"
        "validate_job.pack = lambda pieces, task_bytes: pack(pieces, task_bytes=1)\n"
        "run = local._Worker.run\n"
        "local._Worker.run = lambda worker, number: (run(worker, number), time.sleep(0.2))\n"
        f"sys.exit(main(['validate', '--quiet', {str(folder / 'in')!r}, '--shards', "
        f"{str(folder / 'shards.json')!r}, '--output', {str(folder / 'out')!r}, '--cores', '2']))\n"
    )
    job = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        workers = children(job.pid)
        if len(workers) == 2 and (not at_work or any(folder.glob(".out.*/_work/tally/part-*"))):
            return job, workers
        time.sleep(0.005)
    job.kill()
    raise AssertionError(f"it did not start: {job.communicate()}")


@pytest.mark.slow
@pytest.mark.requirement("SPK-42", "SPK-126")
def test_kill_9_in_the_middle_leaves_no_results_and_no_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, workers = started(tmp_path, at_work=True)
    job.kill()
    _, error = job.communicate(timeout=60)  # of the workers, too, which end by themselves
    assert error == b""
    deadline = time.monotonic() + 60
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, workers))
    # Nothing stands where results stand, and what is under way is hidden: nobody reads it as a capture.
    assert not (tmp_path / "out").exists()
    (left,) = tmp_path.glob(".out.*")
    with pytest.raises(InputError, match="left out"):
        plan([str(left)])
    # SPK-126: the next job with this output names what was left, and so does an audit.
    monkeypatch.chdir(tmp_path)
    for line in ("validate in --shards shards.json", "audit --produced in --handled in"):
        ended = run(f"{line} --output out")
        assert f"kpl-codec: {left} holds user records: a killed job has left it" in ended.err
        shutil.rmtree(tmp_path / "out", ignore_errors=True)


@pytest.mark.slow
@pytest.mark.requirement("SPK-42")
@pytest.mark.parametrize("at_work", [False, True])
def test_ctrl_c_ends_the_workers_at_once(tmp_path: Path, at_work: bool) -> None:
    job, workers = started(tmp_path, at_work=at_work)
    if at_work:
        # Else it would reach a worker that still starts, too, which prints a traceback then.
        assert [os.getsid(worker) for worker in workers] == workers
    os.killpg(job.pid, signal.SIGINT)  # as a terminal does: to all of its session
    _, error = job.communicate(timeout=60)
    assert (job.returncode, error.decode().count("Traceback")) == (130, 0), error
    assert not any(map(alive, workers))
    assert not [path.name for path in tmp_path.iterdir() if "out" in path.name]


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False


@pytest.mark.requirement("SPK-42")
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_job_that_fails_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    capture(tmp_path / "in", 2)

    class Failing(LocalEngine):
        def run(self, job: Job) -> None:
            super().run(job)
            raise error

    out = tmp_path / "out"
    with pytest.raises(type(error)):
        validate([str(tmp_path / "in")], MAP, output=str(out), engine=Failing(cores=1))
    assert not [path.name for path in tmp_path.iterdir() if "out" in path.name]
    out.mkdir()
    validate([str(tmp_path / "in")], MAP, output=str(out), engine=LocalEngine(cores=1))


@pytest.mark.requirement("SPK-40")
def test_which_engine_runs_where_none_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert [is_local_job(engine) for engine in (None, "local", "spark")] == [True, True, False]
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # under spark-submit
    assert [is_local_job(engine) for engine in (None, "local", "spark")] == [False, True, False]


@pytest.mark.requirement("SPK-41")
def test_memory_bounds_the_workers() -> None:
    assert LocalEngine(cores=8, memory_bytes=2 * local.WORKER_MEMORY).cores == 2
    assert LocalEngine(cores=8, memory_bytes=1).cores == 1
    assert LocalEngine(cores=1).cores == 1
    assert 1 <= LocalEngine().cores <= (os.cpu_count() or 1)
