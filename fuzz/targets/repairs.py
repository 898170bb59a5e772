"""What `kpl-codec repair` finds in a folder of results: logs of what was put, tags of copies."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from kpl_codec.captures import InputError
from kpl_codec.validation.repaired import Repaired, read_logs

from .target import Target, repeated

_FOLDER = tempfile.TemporaryDirectory(prefix="kpl-codec-fuzz-")


def _read(given: bytes) -> Repaired:
    log = Path(_FOLDER.name, "repair", "log")
    log.mkdir(parents=True, exist_ok=True)
    (log / "00000.attempt.000000.jsonl").write_bytes(given)
    return read_logs([_FOLDER.name])


def repairs(given: bytes) -> None:
    """Every line that says that a user record was put counts; or InputError with the line."""
    try:
        found = _read(given)
    except InputError as error:
        assert "line " in error.reason
        return
    entries = [json.loads(line) for line in given.split(b"\n") if line.strip()]
    for entry in entries:
        if entry["outcome"] == "put" and None not in entry["old"] and "" not in entry["old"]:
            assert entry["old"][2] < 0 or tuple(entry["old"]) in found


def work(given: bytes) -> None:
    try:
        _read(given)
    except InputError as error:
        str(error)


_PUT = b'{"old": ["shardId-000000000000", "49", %d], "outcome": "put", "new": ["shardId-1", "50", 0]}\n'
_FAILED = b'{"old": [null, null, 0], "outcome": "failed", "error": "expired", "stored": false}\n'


def seeds() -> list[bytes]:
    return [
        _PUT % 0,
        _FAILED,
        _PUT % 3 + _FAILED + _PUT % 4,
        _PUT % (10**12),
        _PUT[:40],
        b"\n\n",
        b"{}",
        b"[1]",
    ]


GROWN = {
    "lines": repeated(_PUT % 5),
    "other numbers": lambda size: b"".join(_PUT % i for i in range(size // 100)),
    "broken line": repeated(b"x", head=_PUT % 0),
    "largest numbers": repeated(_PUT % 999_999),
}
TARGETS = {"repairs": Target(repairs, seeds, GROWN, work=work)}
