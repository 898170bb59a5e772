"""Kinesis records captured more than once: all are counted, however many, in however many parts."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import product, starmap
from operator import attrgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.captures import Location
from kpl_codec.format.records import same_content
from kpl_codec.validate import task

rows = st.lists(
    st.tuples(
        st.sampled_from(["orders", None]),
        st.sampled_from(["shardId-0", "shardId-1", None]),
        st.sampled_from(list("123456")),
        st.sampled_from([0, 0, 0, 7]),
        st.sampled_from(["a", "b", None]),
        st.sampled_from([1, 2, None]),
        st.sampled_from(["k", "k", "l", None]),
        st.sampled_from(["7", None]),
        st.sampled_from([False, False, True]),
        st.sampled_from([5, 5, 5, 6]),
    ),
    max_size=30,
)
THREE = [("orders", "shardId-0", number, 0, "a", 1, "k", None, False, 5) for number in "123"]


@pytest.mark.requirement("SPK-18", "LIN-12")
@example([THREE, THREE, THREE], 40, 2)
@given(st.lists(rows, min_size=1, max_size=3), st.integers(1, 40), st.integers(1, 8))
def test_repeats_are_those_of_a_counter(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[tuple]], at_a_time: int, most: int
) -> None:
    work: Path = tmp_path_factory.mktemp("work")
    (work / "kinesis-records").mkdir()
    for number, content in enumerate(files):
        columns = list(zip(*content, strict=True)) or [()] * len(task.RECORDS_SCHEMA)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, task.RECORDS_SCHEMA, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=task.RECORDS_SCHEMA)
        pq.write_table(table, work / "kinesis-records" / f"part-{number:05d}.parquet")
    expected = Counter(row[:4] for content in files for row in content)
    content = defaultdict[tuple, set[tuple]](set)
    for row in (row for one in files for row in one):
        content[row[:4]].add(row[6:])
    differ = {key for key, rows in content.items() if not all(starmap(are_copies, product(rows, rows)))}
    twice = {key: times for key, times in expected.items() if times > 1}
    names = "shard_id", "sequence_number", "sub_sequence_number", "user_records", "kind"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(task, "MAX_GROUPED", at_a_time)
        patched.setattr(task, "MAX_LISTED", most)
        found = task.find_duplicates(Location(work))
    listed = [finding for finding in found if finding.sequence_number is not None]
    assert len(listed) == min(len(twice), most)
    for kind, keys in {
        "duplicate": twice.keys() - differ,
        "capture-other-content": twice.keys() & differ,
    }.items():
        assert sum(finding.user_records or 0 for finding in found if finding.kind == kind) == sum(
            map(twice.get, keys)
        )
    assert sum(finding.user_records or 0 for finding in found) == sum(twice.values())
    places = {(row[4], row[5]) for content in files for row in content}
    assert all((finding.file, finding.line) in places for finding in listed)  # never of two places
    left = Counter(
        (shard_id, number, sub or None, times, "capture-other-content" if key in differ else "duplicate")
        for key, times in twice.items()
        for _, shard_id, number, sub in [key]
    )
    assert not Counter((*attrgetter(*names)(finding),) for finding in listed) - left
    of_the_rest = {finding.kind for finding in found if finding.sequence_number is None}
    assert (len(found) - len(listed), bool(of_the_rest)) == (len(of_the_rest), len(twice) > most)
    assert sum(int(finding.detail.split()[0]) for finding in found if finding not in listed) == max(
        0, len(twice) - most
    )


def are_copies(one: tuple, other: tuple) -> bool:
    """Of partition key, explicit hash key, whether it was opened, checksum. A whole record and a user record
    of it are not compared."""
    records = [
        kpl.KinesisRecord(pk, b"%d" % data, explicit_hash_key=ehk) for pk, ehk, _, data in (one, other)
    ]
    return one[2] != other[2] or same_content(*records)
