"""Which user records were put again: known by the tags of their copies."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from fuzz.growth import BYTES_PER_BYTE
from kpl_codec.validate import LocalEngine, validate
from kpl_codec.validate.repair_marks import TAG, RecordPlaces, copies_in, tag_value

from ..captures.test_captures import answer
from .test_job import LOWER, MAP, UPPER, Run, run, sorted_by_shard

__all__ = ["run"]
pytestmark = pytest.mark.requirement("SPK-34")

places = st.tuples(st.sampled_from(["shardId-0", "a/b"]), st.sampled_from(["1", "22"]), st.integers(0, 40))


@given(st.lists(places), places)
def test_it_is_a_set_of_places(one: list[Any], place: Any) -> None:
    assert (place in RecordPlaces(one)) == (place in one)
    for odd in ((None, "1", 0), ("shardId-0", "1", -1)):
        assert RecordPlaces([*one, odd]).add(odd)


def test_only_copies_that_are_delivered_count() -> None:
    tag = [{"key": "other", "value": "x"}, {"key": TAG, "value": "shardId-0/1/2"}]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    batch = pa.RecordBatch.from_pydict(
        {
            "tags": pa.array([None, tag, [], tag, [{"key": TAG, "value": None}]], kind),
            "kcl": ["delivered", "dropped", "delivered", "delivered", "delivered"],
            "partitionKey": ["k"] * 5,
            "explicitHashKey": ["7"] * 5,
            "data": [b"x"] * 5,
        }
    )
    ((value, contents),) = copies_in(batch)
    assert value == "shardId-0/1/2"
    names = ("partitionKey", "explicitHashKey", "data")
    for name, other in zip(names, ("K", "8", b"y"), strict=True):
        column = pa.array([other] * 5, batch[name].type)
        assert (
            next(copies_in(batch.set_column(batch.schema.get_field_index(name), name, column)))[1] != contents
        )
    same = batch.set_column(3, "explicitHashKey", pa.array(["007"] * 5))
    assert list(copies_in(same)) == [(value, contents)]
    assert list(copies_in(batch.slice(0, 2))) == []


# -- what has the tag, and is no copy -------------------------------------------------------------

USERS = sorted_by_shard(60)
LOST = [USERS[LOWER][0], USERS[UPPER][0]._replace(explicit_hash_key=str(2**127 + 5))]
BESIDE = USERS[LOWER][1]
OTHER_KEY = next(user.partition_key for user in USERS[LOWER] if user.partition_key != LOST[0].partition_key)


def tagged(user: kpl.UserRecord, index: int = 0, number: str = "7", shard_id: str = LOWER) -> kpl.UserRecord:
    return user._replace(tags=(kpl.Tag(TAG, tag_value((shard_id, number, index))),))


def page(users: list[kpl.UserRecord], number: int, shard_id: str = LOWER) -> str:
    return json.dumps(answer(kpl.encode(users), shard=shard_id, first=number))


#: What has tags, and which of the two lost user records are repaired by it.
CLAIMS: dict[str, tuple[list[tuple[str, list[kpl.UserRecord]]], set[int]]] = {
    "the copy": ([(LOWER, [tagged(LOST[0])]), (UPPER, [tagged(LOST[1], 1)])], {0, 1}),
    "one copy": ([(UPPER, [tagged(LOST[1], 1)])], {1}),
    "two copies of one": ([(LOWER, [tagged(LOST[0]), tagged(LOST[0])])], {0}),
    "other data": ([(LOWER, [tagged(LOST[0]._replace(data=b"anything"))])], set()),
    "no data": ([(LOWER, [tagged(LOST[0]._replace(data=b""))])], set()),
    "another key": ([(LOWER, [tagged(LOST[0]._replace(partition_key=OTHER_KEY))])], set()),
    "another hash key": ([(LOWER, [tagged(LOST[0]._replace(explicit_hash_key="0"))])], set()),
    "no hash key": ([(UPPER, [tagged(LOST[1]._replace(explicit_hash_key=None), 1)])], set()),
    "the other's place": ([(LOWER, [tagged(LOST[0], 1)])], set()),
    "forged beside the copy": ([(LOWER, [tagged(LOST[0]), tagged(BESIDE)])], {0}),
    "both": ([(LOWER, [tagged(BESIDE, 0), tagged(BESIDE, 1)])], set()),
}
#: What has tags, and names nothing that is lost.
IDLE: dict[str, list[kpl.UserRecord]] = {
    "relayed from another stream": [tagged(LOST[0], number="70"), tagged(LOST[0], shard_id=UPPER)],
    "of what was delivered": [tagged(BESIDE, number="100"), tagged(LOST[0], number="100")],
    "itself": [tagged(BESIDE, number="300")],
    "past the end": [tagged(LOST[0], 2), tagged(LOST[0], 999_999)],
    "an equal one without the tag": [LOST[0]],
    "no place": [BESIDE._replace(tags=(kpl.Tag(TAG, "orders"), kpl.Tag(TAG, None), kpl.Tag(TAG, "//")))],
}


@pytest.mark.parametrize("more", [(), ("--no-user-records",)], ids=["all", "no user records"])
@pytest.mark.parametrize("order", ["after", "before", "files"])
@pytest.mark.parametrize("claim", [*CLAIMS, *IDLE])
def test_only_what_equals_its_original_is_a_copy(run: Run, claim: str, order: str, more: Any) -> None:
    given, repaired = CLAIMS.get(claim) or ([(LOWER, IDLE[claim])], set())
    copies = [page(users, 300 + n, shard_id) for n, (shard_id, users) in enumerate(given)]
    lost = [page(LOST, 7), page([BESIDE], 100)]
    if order == "files":
        for n, text in enumerate([*lost, *copies]):
            (run.input / f"{n}.json").write_text(text)
    else:
        pages = [*lost, *copies] if order == "after" else [*copies, *lost]
        (run.input / "a.jsonl").write_text("\n".join(pages))
    assert run(*more) == (0 if repaired == {0, 1} else 1)
    kinds = Counter(found["kind"] for found in run.findings())
    assert bool(kinds["naive-aggregator"] + kinds["mixed-aggregate"]) == (repaired != {0, 1})
    if repaired == {0, 1}:
        assert [found["userRecords"] for found in run.findings() if found["kind"] == "repaired"] == [2]
        assert "sent again by a repair" in run.out.replace("\n", " ")
    unlike = [found for found in run.findings() if found["kind"] == "unlike-copy"]
    false = claim in CLAIMS and claim not in (
        "the copy",
        "one copy",
        "two copies of one",
    )
    assert bool(unlike) == false
    assert {(found["severity"], found["sequenceNumber"]) for found in unlike} <= {("warning", "7")}
    if not more:
        fates = [row["kcl"] for row in run.user_records() if row["sequenceNumber"] == "7"]
        assert fates == ["repaired" if n in repaired else "dropped" for n in range(2)]


def test_workers_give_the_same(tmp_path: Path) -> None:
    """Original, copy and forgery are read by tasks in processes of their own."""
    (tmp_path / "in").mkdir()
    texts = [page(LOST, 7), page([tagged(LOST[0])], 300), page([tagged(BESIDE, 1)], 301)]
    for n, text in enumerate(texts):
        (tmp_path / f"in/{n}.json").write_text(text)
    with mock.patch("kpl_codec.validate.local.IN_PROCESS_BYTES", 0):
        found = validate(
            [str(tmp_path / "in")], MAP, str(tmp_path / "out"), engine=LocalEngine(cores=2), task_bytes=1
        )
    rows = pq.read_table(tmp_path / "out/user-records").to_pylist()
    assert [row["kcl"] for row in rows if row["sequenceNumber"] == "7"] == ["repaired", "dropped"]
    assert "unlike-copy" in {kind["name"] for kind in found.summary["kinds"]}


@pytest.mark.parametrize("places", ["nowhere", "the lost one", "lost ones"])
def test_forged_tags_take_memory_as_their_bytes_do(tmp_path: Path, places: str) -> None:
    count = 800
    frames = [kpl.encode(LOST)] * (200 if places == "lost ones" else 1)
    index = {"nowhere": 999_999, "the lost one": 0, "lost ones": 999_999}[places]
    tags = [tagged(BESIDE._replace(data=b""), index, str(7 + n % len(frames))) for n in range(count)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text(
        json.dumps(answer(*frames, shard=LOWER, first=7)) + "\n" + page(tags, 3000)
    )
    size = (tmp_path / "in/a.jsonl").stat().st_size
    engine = LocalEngine(cores=1)
    validate([str(tmp_path / "in")], MAP, str(tmp_path / "warm"), engine=engine)
    tracemalloc.start()
    validate([str(tmp_path / "in")], MAP, str(tmp_path / "out"), engine=engine)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < BYTES_PER_BYTE * size
