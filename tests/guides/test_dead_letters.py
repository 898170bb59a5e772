"""The spool of the guide: whatever stops a replay, or cut its file off, each user record is put again."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import boto3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpl_codec.format.records import Tag
from kpl_codec.producer import DeliveryError, Put

from ..examples import examples
from .blocks import blocks

BATCH = 3
GUIDE = Path(__file__).parents[2] / "spec" / "guides" / "dead-letters.md"


@pytest.fixture(scope="module")
def module() -> dict[str, Any]:
    """The guide's spool.py, with smaller batches."""
    if sys.platform == "win32":
        pytest.skip("the guide's spool needs fcntl.flock, which Windows does not have")
    (block,) = [block for block in blocks(GUIDE.read_text()) if block.options.get("file") == "spool.py"]
    names: dict[str, Any] = {}
    exec(block.text.replace("BATCH = 500", f"BATCH = {BATCH}"), names)
    return names


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    from moto import mock_aws  # a third of a second, which few processes need

    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    with mock.patch.dict(os.environ, keys), mock_aws():
        os.environ.pop("AWS_ENDPOINT_URL_S3", None)
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="captures")
        yield client


class Stopped(Exception):
    pass


class Producer:
    """Stops the replay after so many calls; some user records fail again. ``hook``: its on_undelivered."""

    def __init__(
        self, calls: int = 10**9, fails: int = 0, hook: Callable[[DeliveryError], None] | None = None
    ) -> None:
        self.put_again: list[Put] = []
        self.delivered: list[Put] = []
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
                self.delivered.append(put)
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


#: What happens to a replay: after how many calls it is stopped, how many user records fail again, how many
#: of these can be kept before the disk is full or a permission is missing, and whether the hook keeps them.
REPLAYS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=5
)


@pytest.mark.parametrize("kind", ["DiskSpool", pytest.param("S3Spool", marks=pytest.mark.slow)])
@given(PUTS, REPLAYS)
@settings(max_examples=examples(40))
def test_each_user_record_is_put_again_whatever_stops_a_replay(
    module: dict[str, Any], bucket: Any, kind: str, puts: list[Put], replays: list[tuple[int, int, int, bool]]
) -> None:
    """A process may be killed within a call, too. What a replay deletes was delivered or kept. One that is
    stopped repeats one batch at most."""
    stopped, room, kept = 0, iter(range(10**9)), dict[int, DeliveryError]()
    sent, delivered = Counter[Put](), Counter[Put]()
    really = module["to_text"]

    def to_text(error: DeliveryError) -> str:
        if next(room, None) is None:
            raise OSError(28, "No space left on device")
        kept[id(error)] = error  # the same one twice is a fault
        return str(really(error))

    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(module, to_text=to_text):

        def spool_of_a_process() -> Any:
            return module[kind](folder) if kind == "DiskSpool" else module[kind](bucket, "captures", folder)

        spool = spool_of_a_process()
        for put in puts:
            spool(failed(put))
        if kind == "DiskSpool":
            assert spool.replay(Producer()) == 0  # its process lives
        for calls, fails, keeps, hooked in [*replays, (10**9, 0, 0, False)]:
            if getattr(spool, "file", None) is not None:
                spool.file.write(b'{"partition_key": ')  # the process is killed within a call
                spool.file.close()
            spool, room = spool_of_a_process(), iter(range(keeps))
            producer = Producer(calls, fails, spool if hooked else None)
            try:
                spool.replay(producer)
            except (Stopped, OSError):
                stopped += 1
            sent.update(producer.put_again)
            delivered.update(producer.delivered)
        assert spool_of_a_process().replay(Producer()) == 0
        assert not list(Path(folder).iterdir())
    assert delivered.keys() == set(puts)
    assert all(delivered[put] >= count for put, count in Counter(puts).items())
    assert sent.total() <= len(kept) + BATCH * stopped


def test_two_processes_may_replay_from_s3_at_once(module: dict[str, Any], bucket: Any) -> None:
    spool = module["S3Spool"](bucket, "captures", "twice/")
    puts = [Put(f"key-{n}", b"") for n in range(7)]
    for put in puts:
        spool(failed(put))
    other = Producer()

    class Slow(Producer):
        def put(self, *arguments: Any) -> Future[None]:
            future = super().put(*arguments)
            spool.replay(other)  # takes everything while this one has the first page in its hands
            return future

    assert spool.replay(Slow()) == BATCH  # it had read a page before the first put
    assert set(other.put_again) == set(puts)


def test_a_key_that_s3_does_not_delete_is_an_error_and_without_permission_nothing_is_put(
    module: dict[str, Any], bucket: Any
) -> None:
    """S3 says so within a 200. ``kept``: how many objects it fails to delete; 0: it may delete none."""
    delete = bucket.delete_objects
    for kept in (0, 1, 3):
        spool = module["S3Spool"](bucket, "captures", f"kept-{kept}/")
        for n in range(3):
            spool(failed(Put(f"key-{n}", b"")))
        listed = bucket.list_objects_v2(Bucket="captures", Prefix=f"kept-{kept}/")["Contents"]
        refused = {entry["Key"] for entry in listed[:kept]}

        def answer(Bucket: str, Delete: Any, kept: int = kept, refused: set[str] = refused) -> Any:
            objects = Delete["Objects"]
            wrong = [one for one in objects if one["Key"] in refused or not kept]
            if others := [one for one in objects if one not in wrong]:
                delete(Bucket=Bucket, Delete={"Objects": others})
            code = "InternalError" if kept else "AccessDenied"
            return {"Errors": [{**one, "Code": code, "Message": "x"} for one in wrong]}

        producer, again = Producer(), Producer()
        with (
            mock.patch.object(bucket, "delete_objects", answer),
            pytest.raises(OSError, match=f"{kept or 1} not deleted, kept-{kept}/.*: "),
        ):
            spool.replay(producer)
        assert len(producer.put_again) == (3 if kept else 0)
        assert spool.replay(again) == (kept or 3)
