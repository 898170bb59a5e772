"""What nobody opens is never clean: every wrapping and every two of them, in each way of looking at it."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.captures import plan, read_piece
from kpl_codec.cli.main import main
from kpl_codec.findings import Finding
from kpl_codec.findings.record_findings import findings_in
from kpl_codec.validate.check import check
from kpl_codec.watch.record_checks import Minute, RecordChecker, SampleSlot

from ..arrow.test_arrow import framed
from ..captures.test_captures import answer
from ..format.test_nested import PAIRS, WRAPPINGS, Wrap
from .test_job import LOWER, MAP, Run, run, sorted_by_shard

__all__ = ["run"]
pytestmark = pytest.mark.requirement("NST-1", "WCH-38", "SPK-43", "SPK-45")

USERS = sorted_by_shard(100)[LOWER][:10]
#: One user record that goes where all of these go.
KEY = USERS[0].partition_key
KINDS = {"nested-aggregate", "capture-encoded-frame"}
#: A Kinesis record that no consumer recognises as an aggregated record.
DISGUISES: dict[str, Wrap] = {
    "base64 of base64": lambda frame: base64.b64encode(base64.b64encode(frame)),
    "latin-1": lambda frame: frame.decode("latin-1").encode(),
    "utf-8": lambda frame: frame.decode("utf-8", "replace").encode(),
    "repr": lambda frame: repr(frame).encode(),
    "erlmld": lambda frame: b"\x00" + frame[1:],
    "any magic": lambda frame: b"EFGH" + frame[4:],
    "deflated": lambda frame: b"\xf4\x89\x9a\xc2" + framed(zlib.compress(frame[4:-16]))[4:],
}


def in_aggregate(data: bytes) -> bytes:
    return kpl.encode([USERS[0], kpl.UserRecord(KEY, data), USERS[1]])


def everything() -> Iterator[bytes]:
    """Every two wrappings of an aggregate, as a whole Kinesis record and as a user record; each disguise."""
    for outer, inner in PAIRS:
        data = WRAPPINGS[outer](WRAPPINGS[inner](kpl.encode(USERS)))
        if (outer, inner) != ("none", "none"):
            yield data
        yield in_aggregate(data)
    for disguise in DISGUISES.values():
        yield disguise(kpl.encode(USERS))


DATA = [*everything()]
ORDINARY_DATA = [
    in_aggregate(b'{"order": 17}'),
    *(b"plain", b"abcd\n" + bytes(40), b"84mawkish", b"F3899", "\ufffd\ufffd?".encode()),
    *(WRAPPINGS[name](b'{"order": 17, "note": "longer than any header"}') for name in WRAPPINGS),
]


def records() -> list[kpl.KinesisRecord]:
    return [kpl.KinesisRecord(KEY, data, str(n + 1), LOWER) for n, data in enumerate([*DATA, *ORDINARY_DATA])]


@pytest.mark.parametrize("whole", [True, False])
def test_columns_tell_what_is_told_of_objects(run: Run, whole: bool) -> None:
    """And nothing more of a frame that cannot be opened than its defect."""
    data = [*DATA, *ORDINARY_DATA, framed(b"\x0a\x01k"), framed(b"\x07")]
    (run.input / "a.jsonl").write_text(json.dumps(answer(*data, shard=LOWER, first=1)))
    (piece,) = plan([str(run.input)])
    found: list[Finding] = []
    for _ in check(read_piece(piece), MAP, found.extend, whole=whole):
        pass
    told = {int(one.sequence_number or 0): (one.kind, one.detail) for one in found if one.kind in KINDS}
    assert sorted(told) == [*range(1, len(DATA) + 1)]
    for number, one in enumerate(data, 1):
        rows = kpl.deaggregate([kpl.KinesisRecord(KEY, one)], "report")
        assert {told.get(number)} - {None} == {*findings_in(rows)}


def test_watch_tells_each() -> None:
    checker = RecordChecker()
    checker.set_shard_map(MAP)
    checked = checker.check(records(), SampleSlot(LOWER, 1), Minute())
    told = [int(fault.sequence_number or 0) for fault in checked.faults if fault.group.kind in KINDS]
    assert told == [*range(1, len(DATA) + 1)]


@pytest.mark.slow
def test_cat_and_inspect_tell_each(run: Run, capsys: Any) -> None:
    file = run.input / "a.json"
    file.write_text(json.dumps(answer(*DATA, *ORDINARY_DATA, shard=LOWER, first=1)))
    assert main(["cat", str(file)]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = [line["sequenceNumber"] for line in lines if "defects" in line]
    assert told == [str(n + 1) for n in range(len(DATA))]
    codes = {code for line in lines for code in line.get("defects", ())}
    assert codes == {kind.removeprefix("capture-") for kind in KINDS}
    sample = {*range(0, len(DATA), 7), *range(len(DATA) - len(DISGUISES), len(DATA) + 3)}
    for n in sorted(sample):
        file.write_text(json.dumps(answer([*DATA, *ORDINARY_DATA][n], shard=LOWER, first=n + 1)))
        number = ["--sequence-number", str(n + 1)]
        status = main(["inspect", str(file), *number])
        out = " ".join(capsys.readouterr().out.split())  # lines are folded
        told = any(f" {kind}: " in out for kind in KINDS)
        assert (status, told) == ((1, True) if n < len(DATA) else (0, False)), n
        assert main(["inspect", str(file), "--json", *number]) == status
        facts = json.loads(capsys.readouterr().out)
        kinds = {one["kind"] for one in facts["findings"]}
        assert bool(kinds & KINDS) == told
        assert bool(facts["nested"]) == ("nested-aggregate" in kinds)
