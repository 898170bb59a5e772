"""Which Kinesis records were read: one for each neighbourhood of rows, however they were captured and cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.captures.capture_rows import CaptureRows
from kpl_codec.validate.check import check
from kpl_codec.validate.scan import Scan

SHARD = "shardId-000000000000"
MAP = kpl.ShardMap([kpl.Shard(SHARD, kpl.ALL_HASH_KEYS)])


def number(record: int) -> str:
    return str(49590338271490256608559692538361571095921575989136588898 + record)


@given(
    st.lists(
        st.integers(1, 4)  # an aggregate of so many
        | st.sets(st.integers(0, 9), min_size=1, max_size=4).map(sorted),  # captured by themselves
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 3),
)
@pytest.mark.requirement("SPK-17")
def test_every_kinesis_record_counts_once(captured: list[Any], cut: int) -> None:
    rows = CaptureRows("file")
    user_records = 0
    for record, item in enumerate(captured):
        subs = [None] if isinstance(item, int) else item
        user_records += item if isinstance(item, int) else len(item)
        for sub in subs:
            users = [kpl.UserRecord("k", b"%d" % n) for n in range(item)] if sub is None else []
            data = kpl.encode(users) if users else b"x"
            rows.record(kpl.KinesisRecord("k", data, number(record), SHARD, None, None, sub), None, record)
    (batch,) = rows.take()
    batches = [batch.slice(start, cut) for start in range(0, batch.num_rows, cut)]
    scan = Scan(MAP)
    for checked in check(batches, MAP, scan.report):
        scan.process(checked)
    scan.finish()
    assert scan.tally.records["kinesis"] == len(captured)
    assert scan.tally.records["aggregated"] == sum(item != [0] for item in captured)
    assert sum(group[0] for group in scan.tally.groups.values()) == user_records
