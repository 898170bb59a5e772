"""The spool of the guide: whatever stops a replay, or cut its file off, each user record is put again."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.format.records import Tag
from kpl_codec.producer import DeliveryError, Put

from .blocks import blocks

GUIDE = Path(__file__).parents[2] / "spec" / "guides" / "dead-letters.md"


@pytest.fixture(scope="module")
def module() -> dict[str, Any]:
    """The guide's spool.py, with smaller batches."""
    if sys.platform == "win32":
        pytest.skip("the guide's spool needs fcntl.flock, which Windows does not have")
    (block,) = [block for block in blocks(GUIDE.read_text()) if block.options.get("file") == "spool.py"]
    names: dict[str, Any] = {}
    exec(block.text.replace("BATCH = 500", "BATCH = 3"), names)
    return names


class Stopped(Exception):
    pass


class Producer:
    """Stops the replay after so many calls; some user records fail again. ``hook``: its on_undelivered."""

    def __init__(self, calls: int, fails: int, hook: Callable[[DeliveryError], None] | None = None) -> None:
        self.put_again: list[Put] = []
        self._open: list[tuple[Put, Future[None]]] = []
        self._left, self._fails, self._hook = calls, fails, hook

    def put(self, *arguments: Any) -> Future[None]:
        self._call()
        put, future = Put(*arguments), Future[None]()
        self.put_again.append(put)
        self._open.append((put, future))
        return future

    def flush(self) -> bool:
        """As the real one: True also where a user record was not delivered, and whatever its hook raises."""
        self._call()
        for put, future in self._open:
            if not self._fails:
                future.set_result(None)
                continue
            self._fails -= 1
            error = failed(put)
            if self._hook is not None:
                with suppress(OSError):
                    self._hook(error)
            future.set_exception(error)
        self._open = []
        return True

    def _call(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Stopped


def failed(put: Put) -> DeliveryError:
    return DeliveryError(user_record=put, outcome="expired", code="expired")


PUTS = st.lists(
    st.builds(
        Put,
        st.sampled_from([None, "k", "\u00e9\n"]),
        st.binary(max_size=9),
        st.sampled_from([None, "7"]),
        st.sampled_from([(), (Tag("a", None), Tag("b", "c"))]),
    ),
    max_size=12,
)


@given(PUTS, st.lists(st.integers(0, 9), max_size=5), st.integers(0, 5))
def test_a_replay_that_is_stopped_goes_on_and_repeats_one_batch(
    module: dict[str, Any], puts: list[Put], stops: list[int], fails: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ended = module["DiskSpool"](folder)
        for put in puts:
            ended(failed(put))
        assert ended.replay(Producer(0, 0)) == 0  # its process lives
        if ended.file is not None:
            ended.file.close()
        spool = module["DiskSpool"](folder)
        again: list[Put] = []
        delivered: Counter[Put] = Counter()
        for calls in [*stops, 10**9]:
            before = spool.file
            producer = Producer(calls, fails if before is None else 0)
            with suppress(Stopped):
                spool.replay(producer)
            again += producer.put_again
        spool_left = module["DiskSpool"](folder)
        if spool.file is not None:
            spool.file.close()
        last = Producer(10**9, 0)
        spool_left.replay(last)
        delivered.update([*again, *last.put_again])
        assert delivered.keys() == set(puts)
        assert all(delivered[put] >= count for put, count in Counter(puts).items())
        # A stop repeats one batch at most; what failed again comes once more.
        assert delivered.total() <= len(puts) + 3 * len(stops) + min(fails, len(puts)) * (1 + len(stops))
        assert not list(Path(folder).iterdir())


@given(PUTS.filter(len), st.data())
def test_a_file_that_was_cut_off_gives_all_whole_lines(
    module: dict[str, Any], puts: list[Put], data: Any
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        spool = module["DiskSpool"](folder)
        for put in puts:
            spool(failed(put))
        spool.file.close()
        (path,) = Path(folder).iterdir()
        whole = path.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        path.write_bytes(whole[:cut])
        producer = Producer(10**9, 0)
        module["DiskSpool"](folder).replay(producer)
        assert producer.put_again == puts[: whole[:cut].count(b"\n")]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from moto import mock_aws  # a third of a second, which few processes need

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="captures")
        yield client


def test_two_processes_may_replay_from_s3_at_once(module: dict[str, Any], bucket: Any) -> None:
    spool = module["S3Spool"](bucket, "captures")
    puts = [Put(f"key-{n}", b"") for n in range(7)]
    for put in puts:
        spool(failed(put))
    other = Producer(10**9, 0)

    class Slow(Producer):
        def put(self, *arguments: Any) -> Future[None]:
            future = super().put(*arguments)
            spool.replay(other)  # takes everything while this one has the first page in its hands
            return future

    slow = Slow(10**9, 0)
    assert spool.replay(slow) == 3  # it had read a page before the first put
    assert set(other.put_again) == set(puts)


@pytest.mark.parametrize("kept", [0, 1, 3], ids=["may-not-delete", "one", "a-page"])
def test_a_key_that_s3_does_not_delete_is_an_error_and_without_permission_nothing_is_put(
    module: dict[str, Any], bucket: Any, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """S3 says so within a 200. ``kept``: how many objects it fails to delete; 0: it may delete none."""
    spool = module["S3Spool"](bucket, "captures")
    puts = [Put(f"key-{n}", b"") for n in range(3)]
    for put in puts:
        spool(failed(put))
    names = [entry["Key"] for entry in bucket.list_objects_v2(Bucket="captures")["Contents"]]
    refused = set(names[:kept])
    delete = bucket.delete_objects

    def answer(Bucket: str, Delete: Any) -> Any:
        keys = [one["Key"] for one in Delete["Objects"]]
        errors = [
            {"Key": key, "Code": "InternalError" if kept else "AccessDenied", "Message": "x"}
            for key in keys
            if key in refused or not kept
        ]
        others = [{"Key": key} for key in keys if key not in {error["Key"] for error in errors}]
        if others:
            delete(Bucket=Bucket, Delete={"Objects": others})
        return {"Errors": errors} if errors else {}

    with monkeypatch.context() as patch:
        patch.setattr(bucket, "delete_objects", answer)
        producer = Producer(10**9, 0)
        with pytest.raises(OSError, match=f"{kept or 1} not deleted, undelivered/.*: "):
            spool.replay(producer)
        assert len(producer.put_again) == (3 if kept else 0)
    again = Producer(10**9, 0)
    assert spool.replay(again) == (kept or 3)
    assert Counter([*producer.put_again, *again.put_again]).total() == 3 + kept


# -- what fails again and cannot be kept ---------------------------------------------------------------


@pytest.mark.parametrize("hook", [False, True], ids=["no-hook", "spool-as-hook"])
@pytest.mark.parametrize("kind", ["DiskSpool", "S3Spool"])
@pytest.mark.parametrize("keeps", [0, 1, 2, 100])
def test_a_replay_deletes_only_what_was_delivered_or_kept(
    module: dict[str, Any], bucket: Any, tmp_path: Path, kind: str, keeps: int, hook: bool
) -> None:
    """Of seven user records that all fail again ``keeps`` can be kept, then the disk is full, or a permission
    is missing."""

    def spool_of(keeps: int) -> Any:
        spool = module[kind](tmp_path) if kind == "DiskSpool" else module[kind](bucket, "captures")
        really, left = spool.__call__, iter(range(keeps))

        class Limited(type(spool)):  # type: ignore[misc]
            def __call__(self, error: DeliveryError) -> None:
                if next(left, None) is None:
                    raise OSError(28, "No space left on device")
                really(error)

        limited = Limited.__new__(Limited)
        limited.__dict__ = spool.__dict__
        return limited

    puts = [Put(f"key-{n}", b"") for n in range(7)]
    first = spool_of(100)
    for put in puts:
        first(failed(put))
    if kind == "DiskSpool":
        first.file.close()
    second = spool_of(keeps)
    outage = Producer(60, 10**9, second if hook else None)
    if keeps < 7:
        with pytest.raises(OSError, match="No space left"):
            second.replay(outage)
    else:
        assert second.replay(outage) == 7
    if kind == "DiskSpool" and second.file is not None:
        second.file.close()
    last = Producer(10**9, 0)
    spool_of(100).replay(last)
    assert set(last.put_again) == set(puts)
    assert spool_of(100).replay(last) == 0
    # A batch of three is repeated at most; what was kept again comes once.
    assert len(last.put_again) <= 7 + min(keeps, 3)
