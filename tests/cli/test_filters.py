"""Filters say yes, no, or that they cannot say it: then the record is counted aloud (ACC-5)."""

from __future__ import annotations

import base64
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from fuzz.invariants import frame
from kpl_codec import UserRecord, encode
from tests.examples import share

from ..every import every
from .commands import run

SHARD, OTHER = "shardId-000000000000", "shardId-000000000001"
EARLY, LATE = "2026-01-01T00:00:00+00:00", "2026-01-03T00:00:00+00:00"
BETWEEN = "2026-01-02T00:00:00Z"
SOUND = encode([UserRecord("A", b"x")])
#: Of two user records, of which the second has the number of a key that is not in the table.
_MESSAGE = encode([UserRecord("A", b"x"), UserRecord("B", b"y")])[4:-16]
KEYLESS = frame(_MESSAGE.replace(b"\x08\x01", b"\x08\x07"))
_OUTER: Any = object()
#: Data, and for each user record that is printed of it its key (`_OUTER`: that of the Kinesis record), and
#: whether there may be user records of other keys within.
DATA: dict[str, tuple[bytes, list[tuple[Any, bool]]]] = {
    "plain": (b"plain", [(_OUTER, False)]),
    "aggregate": (SOUND, [("A", False)]),
    "a wrong checksum": (SOUND[:-1] + b"?", [(_OUTER, True)]),
    "an aggregate within": (encode([UserRecord("A", SOUND)]), [("A", True)]),
    "base64": (base64.b64encode(SOUND), [(_OUTER, True)]),
    "another magic": (b"\x00" + SOUND[1:], [(_OUTER, True)]),
    "a key that is not in the table": (KEYLESS, [("A", False), (None, False)]),
}
#: Key, shard and begin that are asked for.
ASKED: list[tuple[str | None, str | None, str | None]] = [
    (None, None, None),
    ("A", None, None),
    ("K", None, None),
    (None, SHARD, None),
    (None, OTHER, None),
    (None, None, BETWEEN),
    ("A", SHARD, None),
    ("Z", OTHER, None),
    ("K", None, BETWEEN),
    (None, SHARD, BETWEEN),
    ("Z", SHARD, BETWEEN),
]


def record_of(data: bytes, key: str | None, shard: str | None, time: str | None) -> dict[str, Any]:
    record = {"SequenceNumber": "1", "Data": base64.b64encode(data).decode()}
    more = {"PartitionKey": key, "ShardId": shard, "ApproximateArrivalTimestamp": time}
    return record | {name: value for name, value in more.items() if value is not None}


@pytest.mark.requirement("ACC-5")
@every("data", DATA)
def test_every_filter_for_every_record(data: str, tmp_path: Path) -> None:
    content, users = DATA[data]
    path = tmp_path / "in.json"
    forms = [*itertools.product(("K", None), (SHARD, None), (EARLY, None))]
    for key, shard, time in forms[:: 3 if share() > 1 else 1]:
        path.write_text(json.dumps(record_of(content, key, shard, time)))
        for asked_key, asked_shard, since in ASKED:
            names = ("--key", asked_key), ("--shard-id", asked_shard), ("--since", since)
            options = [text for name, value in names if value for text in (name, value)]
            # What the filters say together: yes, no, or that they do not know it.
            printed = undecided = 0
            for shown, closed in users:
                own = key if shown is _OUTER else shown
                answers = {
                    True if asked_key in (None, own) else None if closed or own is None else False,
                    True if asked_shard in (None, shard) else None if shard is None else False,
                    since is None or time is None,
                }
                undecided += None in answers and False not in answers
                printed += answers == {True}
            status, out, err = run(["cat", str(path), *options])
            case = (data, key, shard, time, options, out, err)
            assert len(out.splitlines()) == printed, case
            counted = sum(int(count) for count in re.findall(r"(\d+) records? left out: each", err))
            assert counted == undecided, case
            assert status == (1 if undecided or '"defects"' in out else 0), case
            told = sum(int(count) for count in re.findall(r"(\d+) user records?: each has no time", err))
            assert told == (printed if since is not None and time is None else 0), case
