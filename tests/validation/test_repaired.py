"""Which user records were put again: known by the tags of their copies."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.captures import Location
from kpl_codec.validation.repaired import TAG, Repaired, copied_places, read_copied, tag_value

from ..captures.test_captures import answer
from .test_job import LOWER, UPPER, Run, run, sorted_by_shard

__all__ = ["run"]
pytestmark = pytest.mark.requirement("SPK-34")

places = st.tuples(st.sampled_from(["shardId-0", "a/b"]), st.sampled_from(["1", "22"]), st.integers(0, 40))


@given(st.lists(places), places)
def test_it_is_a_set_of_places(one: list[Any], place: Any) -> None:
    assert (place in Repaired(one)) == (place in one)
    assert bool(Repaired(one)) == bool(one)
    assert (None, "1", 0) not in Repaired(one)
    assert ("shardId-0", "1", -1) not in Repaired(one)


@given(st.lists(st.text(max_size=12) | places.filter(lambda place: place[0] == "shardId-0").map(tag_value)))
def test_tags_of_strangers_do_no_harm(tmp_path_factory: pytest.TempPathFactory, values: list[str]) -> None:
    folder = tmp_path_factory.mktemp("copies")
    (folder / "part-00000.json").write_text(json.dumps(values))
    found = read_copied(Location(folder))
    ours = [value.split("/") for value in values if value.startswith("shardId-0/")]
    assert all(("shardId-0", number, int(index)) in found for _, number, index in ours)


def test_only_copies_that_are_delivered_count() -> None:
    tag = [{"key": "other", "value": "x"}, {"key": TAG, "value": "shardId-0/1/2"}]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    batch = pa.RecordBatch.from_pydict(
        {
            "tags": pa.array([None, tag, [], tag, [{"key": TAG, "value": None}]], kind),
            "kcl": ["delivered", "dropped", "delivered", "delivered", "delivered"],
        }
    )
    assert list(copied_places(batch)) == ["shardId-0/1/2"]
    assert list(copied_places(batch.slice(0, 2))) == []


def mixed_and_copies(run: Run, *, tagged: bool) -> int:
    """A capture of a mixed aggregate and of copies of its user records where they belong."""
    users = sorted_by_shard(60)
    mixed = [*users[LOWER][:10], *users[UPPER][:10]]
    pages = [answer(kpl.encode(mixed), shard=LOWER, first=7)]
    for shard_id in (LOWER, UPPER):
        copies = [
            user._replace(tags=(kpl.Tag(TAG, tag_value((LOWER, "7", index))),) if tagged else ())
            for index, user in enumerate(mixed)
            if user in users[shard_id]
        ]
        pages.append(answer(kpl.encode([*users[shard_id][20:], *copies]), shard=shard_id, first=100))
    (run.input / "a.jsonl").write_text("\n".join(map(json.dumps, pages)))
    return len(mixed)


def test_a_perfect_repair_is_clean(run: Run, tmp_path: Path) -> None:
    mixed_and_copies(run, tagged=False)
    assert run() == 1  # equal content is no proof
    run.output = tmp_path / "again"
    count = mixed_and_copies(run, tagged=True)
    assert run() == 0
    assert Counter(row["kcl"] for row in run.user_records())["repaired"] == count
    (found,) = run.findings()
    assert (found["kind"], found["userRecords"], found["sequenceNumber"]) == ("repaired", count, "7")
    assert "put again by a repair" in run.out.replace("\n", " ")
