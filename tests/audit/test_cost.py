"""What an audit costs: memory by user records, steps by missing runs. Counted, not timed."""

from __future__ import annotations

import tracemalloc
from unittest.mock import patch

import pytest

from kpl_codec.audit.audit_run import audit_files
from kpl_codec.audit.files import InputAccount

from ..steps import steps
from .model import account, ledger_of, rows_of

USERS = 30  # of each Kinesis record


def sides(records: int, *, missing: int) -> tuple[InputAccount, InputAccount]:
    """What was put, and what was handled: all but the first user record of every ``missing``-th Kinesis
    record."""
    put = rows_of("delivered", *range(records), user_records=USERS)
    handled = []
    for number, row in enumerate(put):
        first = int(number % missing == 0)
        handled.append(row.replace(kind="handled", first=first, user_records=USERS - first))
    with patch("kpl_codec.ledger.ledger.MEMBER_ROWS", 200):
        files = {"produced": ledger_of("produced", put), "handled": ledger_of("handled", handled)}
    return account("produced", {"a": files["produced"]}), account("handled", {"a": files["handled"]})


def peak_of(records: int) -> int:
    """Bytes that an audit takes at its peak, beside its files."""
    given = sides(records, missing=10)
    tracemalloc.start()
    result = audit_files(*given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.audit.total("missing") == records // 10
    return peak


def test_a_kinesis_record_of_30_user_records_takes_130_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """So 100 million user records take less than 450 MB. (A slice of user records, and a member, take the
    same for any audit.)"""
    monkeypatch.setattr("kpl_codec.audit.index.SLICE", 1 << 12)
    peak_of(100)  # imports what it needs
    small, large = peak_of(1_000), peak_of(2_000)
    assert (large - small) / 1_000 < 130


@pytest.mark.slow
def test_steps_grow_with_the_missing_runs() -> None:
    small, large = (steps(audit_files, *sides(size, missing=1)) for size in (500, 1000))
    assert large < 2.1 * small
