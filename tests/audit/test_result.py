"""What an audit says of small ledgers and tables: its headline, notes, errors and findings."""

from __future__ import annotations

import gzip
import re
from html import escape
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.audit import Row
from kpl_codec.audit.audit_run import AuditError, AuditResult, audit, audit_files
from kpl_codec.audit.index import Run
from kpl_codec.cli.main import main

from .model import SHARD, account, header, ledger_of, member, rows_of, table_of
from .test_law import SHARDS

Files = dict[str, bytes]


PUT = ledger_of("produced", rows_of("delivered", 7))
HANDLED = ledger_of("handled", rows_of("handled", 7))
DAMAGED = gzip.compress(b"")[:-3]


def audit_of(produced: Files, handled: Files, stream: str | None = None) -> AuditResult:
    return audit_files(account("produced", produced), account("handled", handled), stream=stream)


@pytest.mark.requirement("AUD-21")
def test_what_a_ledger_says_can_be_written_whatever_it_says(tmp_path: Path) -> None:
    """Half of a surrogate pair, a time of 64 bits, and one that no calendar has."""
    wrong = []
    strange = [
        {"shard": "\ud800"},
        {"error_code": "\udc00"},
        {"at_ms": 1 << 59},
        {"at_ms": 253_402_300_800_000},
    ]
    for number, facts in enumerate(strange):
        for side in ("produced", "handled"):
            row = {"kind": "delivered" if side == "produced" else "handled", "shard": SHARDS[0]}
            row |= {"sequence_number": "7", "sub_sequence_number": 0, "user_records": 2, "at_ms": 1}
            row |= {"digest": "0" * 16, **facts}
            if "error_code" in facts:
                row |= {"kind": "refused", "shard": "", "sequence_number": ""}
            files = {"produced": {"good": PUT}, "handled": {"nothing": b""}}
            files[side]["strange"] = gzip.compress(member([header(side, 2), row]))
            result = audit_of(files["produced"], files["handled"])
            result.write(str(tmp_path / side / str(number)))
            is_reported = [one.source for one in result.unreadable] == ["strange"]
            if is_reported != ("at_ms" not in facts):
                wrong.append((facts, side))
    assert wrong == []


def test_the_headline_begins_with_what_says_nothing(tmp_path: Path) -> None:
    """And the page has the same, with the word "everything" only where it is true."""
    everything = r"Everything was handled: 1 user record\."
    nothing = r"--produced names no user record that was delivered\."
    damaged = r"other cannot be read: gzip that is damaged, or cut off\. "
    no_row = "--handled holds no row of a consumer of orders"
    not_put = r"3 user records reported to the producer as not delivered\. "
    left = [Row(kind, "expired", sequence_number="", user_records=3, at=1) for kind in ("refused", "left")]
    put = {"p": PUT}
    cases: list[tuple[Files, Files, str]] = [
        (put, {"h": HANDLED}, everything),
        (put, put, rf"{no_row}, but a ledger of a producer\. Of 1 delivered .*"),
        (put, {"other": DAMAGED}, rf"{no_row}\. {damaged}Of 1 delivered .*"),
        (put, {"h": HANDLED, "other": DAMAGED}, damaged + everything),
        (
            put,
            {"t": table_of([(SHARDS[0], "8", 0)])},
            "No row of --handled names a user record of --produced: .*",
        ),
        (put, {"t": table_of([(SHARDS[0], "8", 0), (SHARDS[0], "7", 0)])}, everything),
        (put, {"a": table_of([(SHARDS[0], "7", 0)]), "b": table_of([]), "c": table_of([])}, everything),
        (put, {"a": table_of([]), "b": table_of([])}, rf"{no_row}\. .*"),
        ({"p": ledger_of("produced", [])}, {"h": HANDLED}, nothing),
    ]
    for row in left:
        some = {"p": ledger_of("produced", [*rows_of("delivered", 7), row])}
        text = r"Everything that was delivered was handled: 1 user record\."
        cases += [(some, {"h": HANDLED}, not_put + text)]
        cases += [
            (
                {"p": ledger_of("produced", [row])},
                {"h": ledger_of("handled", [])},
                rf"{no_row}\. {not_put}{nothing}",
            )
        ]
    wrong = {}
    for number, (produced, handled, headline) in enumerate(cases):
        result = audit_of(produced, handled)
        result.write(str(tmp_path / str(number)))
        page = (tmp_path / str(number) / "report.html").read_text()
        is_true = ("Everything was handled" in page) == ("Everything was handled" in headline)
        empty = [name for name, data in handled.items() if data == table_of([])]
        notes = [f"there is nothing in {', '.join(empty)}"] if empty else []
        if not (re.fullmatch(headline, result.headline) and escape(result.headline) in page and is_true):
            wrong[number] = result.headline
        elif result.notes != notes or "audit-twice" in {one.kind for one in result.findings}:
            wrong[number] = str(result.notes)
    assert wrong == {}


def test_no_row_of_a_producer_is_an_error() -> None:
    """Never "Everything was handled: 0 user records"; and of several streams one is to be chosen."""
    other = ledger_of("produced", rows_of("delivered", 8), "payments")
    cases: list[tuple[Files, str | None, str]] = [
        ({"p": PUT}, "payments", "no ledger of a producer of payments.*what was produced of orders"),
        ({"h": HANDLED}, None, "no ledger of a producer; .*what was handled of orders"),
        ({"other": DAMAGED}, None, "other: gzip that is damaged"),
        ({"p": PUT, "q": other}, None, "several streams: orders, payments; choose one with --stream, or"),
    ]
    for produced, stream, reason in cases:
        with pytest.raises(AuditError, match=reason):
            audit_of(produced, {"h": HANDLED}, stream)
    assert audit_of({"p": PUT, "q": other}, {"h": HANDLED}, "orders").audit.complete


@pytest.mark.requirement("AUD-17")
def test_too_early_is_no_success_whatever_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The findings are info at most; the help says what else counts."""
    paths = [tmp_path / name for name in ("produced", "later", "handled")]
    for path, data in zip(
        paths, (PUT, ledger_of("produced", rows_of("delivered", 7, 8)), HANDLED), strict=True
    ):
        path.write_bytes(data)
    produced, later, handled = map(str, paths)
    early = audit([later], [handled])
    assert {one.kind for one in early.findings} == {"audit-not-yet"}
    for put, fail_on, status in ((produced, "info", 0), (later, "warning", 1), (later, "critical", 1)):
        line = ["audit", "--produced", put, "--handled", handled, "--fail-on", fail_on]
        assert main(line) == status
    with pytest.raises(SystemExit):
        main(["audit", "--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    assert "(whatever --fail-on is) a user record is missing, unknown or too early to say" in help_text


@pytest.mark.requirement("AUD-28")
@pytest.mark.parametrize("how", ["table", "handled", "aside"])
def test_a_row_of_another_shard_than_it_says(how: Any) -> None:
    """The record it names is unknown, and nothing before it on the shard that it says is missing."""
    there = rows_of("delivered", 12, 13, shard_id=SHARDS[1])
    put = ledger_of("produced", rows_of("delivered", 10, 11, 14) + there)
    if how == "table":
        names = [(SHARDS[0], "10", 0), (SHARDS[0], "14", 0), (SHARDS[1], "11", 0)]
        handled = table_of(names)
    else:
        stray = rows_of(how, 11, shard_id=SHARDS[1])
        handled = ledger_of("handled", rows_of("handled", 10, 14) + stray)
    result = audit_of({"p": put}, {"h": handled})
    sums = result.facts["userRecords"]
    assert (sums["handled"], sums["missing"], sums["unknown"], sums["tooEarly"]) == (2, 0, 1, 2)
    assert [one.times for one in result.unreadable] == [1]


@pytest.mark.requirement("AUD-9")
def test_ledgers_that_contradict_each_other_are_never_complete() -> None:
    put = [row for count in (2, 3, 1) for row in rows_of("delivered", 7, user_records=count)]
    handled = ledger_of("handled", rows_of("handled", 7, user_records=3))
    audited = audit_of({"p": ledger_of("produced", put)}, {"h": handled}).audit
    assert audited.total("handled") == audited.total("delivered") == 3
    assert audited.conflicts == 2
    assert not audited.complete


@pytest.mark.requirement("AUD-13")
def test_what_its_producer_sent_again_is_no_duplicate_of_a_consumer() -> None:
    """And a user record's times of handling are counted up to 63."""
    put = rows_of("again", 7, user_records=2) + rows_of("delivered", 8, user_records=2)
    for times in (2, 100):
        handled = ledger_of("handled", rows_of("handled", 7, 8, user_records=2) * times)
        audited = audit_of({"p": ledger_of("produced", put)}, {"h": handled}).audit
        assert audited.duplicates == [(Run(SHARD, "8", 0, 1), min(times, 63))]
        assert audited.copies == 2
