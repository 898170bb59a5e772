"""What an audit costs: memory by user records, steps by missing runs. Counted, not timed."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from kpl_codec.audit.audit_run import audit_files
from kpl_codec.audit.index import CODES, Columns, Index, Tally
from kpl_codec.audit.judge import judge

from ..steps import steps
from .model import SHARD, account, ledger_of, rows_of

USERS = 30  # of each Kinesis record


def columns_of(records: int) -> Columns:
    columns = Columns({SHARD: 0})
    numbers = np.zeros((records, 28), np.uint8)
    numbers[:, 20:24] = np.arange(records, dtype=">u4").view(np.uint8).reshape(-1, 4)
    columns.keys += numbers.tobytes()
    columns.digests += bytes(8 * records)
    columns.kinds += bytes([CODES["delivered"]]) * records
    columns.counts.frombytes(np.full(records, USERS, np.int32).tobytes())
    columns.at.frombytes(np.ones(records, np.int64).tobytes())
    columns.user_records = USERS * records
    return columns


def peak_of(records: int) -> int:
    """Bytes that the decision takes at its peak, beside the columns of rows. Of each tenth Kinesis record a
    user record is missing."""
    columns = columns_of(records)
    tracemalloc.start()
    index = Index(columns)
    tally = Tally(index)
    for start in range(0, records, 1 << 10):
        which = np.arange(start, min(start + (1 << 10), records))
        places = [index.place(record) for record in which.tolist()]
        first = (which % 10 == 0).astype(np.int64)
        tally.add(places, np.arange(len(which)), first, np.full(len(which), USERS - 1))
    found = judge(index, tally)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.total("missing") == -(-records // 10)
    return peak


def test_a_kinesis_record_of_30_user_records_takes_170_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """So 100 million user records take less than 600 MiB. (A slice of user records takes the same for any
    audit.)"""
    monkeypatch.setattr("kpl_codec.audit.index.SLICE", 1 << 14)
    small, large = peak_of(5_000), peak_of(10_000)
    assert (large - small) / 5_000 < 170


@pytest.mark.slow
def test_steps_grow_with_the_missing_runs() -> None:
    taken = []
    for size in (500, 1000):
        sides = []
        for side, kind, count in (("produced", "delivered", 3), ("handled", "handled", 2)):
            rows = rows_of(kind, *range(1, size), user_records=count)  # type: ignore[arg-type]
            sides.append(account(side, {"a": ledger_of(side, rows)}))  # type: ignore[arg-type]
        taken.append(steps(audit_files, *sides))
    assert taken[1] < 2.1 * taken[0]
