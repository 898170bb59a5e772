"""The vectors as an archive for programs without Python: `kpl-codec conformance --export DIR`.

It has the files of spec/vectors, and beside them `kcl.json`, what the KCL delivers of every decoding vector
on given hash key ranges; `decode.txt`, the decoding vectors as lines; `manifest.json`, the version and the
SHA-256 of every file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..deaggregation import kcl
from ..format.hash_keys import ALL_HASH_KEYS, HashKeyRange
from .grading import FOLDER, vectors
from .program import END, record_lines, user_record

#: All hash keys, and those of each of four even shards.
RANGES = (ALL_HASH_KEYS, *ALL_HASH_KEYS.split(4))


def version() -> str:
    """The version of the vectors: the first heading of their changelog."""
    text = (FOLDER / "CHANGELOG.md").read_text(encoding="utf-8")
    return str(re.findall(r"^## (\S+)", text, re.MULTILINE)[0])


def archive() -> dict[str, bytes]:
    """The files of the archive by name. The same version gives the same bytes."""
    decoding = [vector for vector in vectors() if vector["kind"] == "decode"]
    files = {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.is_file()}
    files["kcl.json"] = _json({"version": version(), "vectors": [_kcl_of(vector) for vector in decoding]})
    files["decode.txt"] = "".join(f"{line}\n" for vector in decoding for line in _lines(vector)).encode()
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    files["manifest.json"] = _json({"version": version(), "sha256": digests})
    return files


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _kcl_of(vector: Mapping[str, Any]) -> dict[str, Any]:
    """What the KCL delivers of a decoding vector: its user records, and how many of them on a shard of each
    range."""
    data = bytes.fromhex(vector["input"]["data"])
    own = vector["input"].get("hash_key_range")
    ranges = [*RANGES, HashKeyRange(*map(int, own))] if own else RANGES
    outcomes = [kcl.outcome(data, keys) for keys in ranges]
    if outcomes[0].raw:
        return {"id": vector["id"], "raw": True}
    records = kcl.user_records(data, outcomes[0].delivered)
    return {
        "id": vector["id"],
        "user_records": [user_record(*record) for record in records],
        "ranges": [
            {
                "starting_hash_key": str(keys.starting_hash_key),
                "ending_hash_key": str(keys.ending_hash_key),
                "delivered": outcome.delivered,
                "dropped": outcome.total - outcome.delivered,
                **({} if outcome.reason is None else {"reason": outcome.reason}),
            }
            for keys, outcome in zip(ranges, outcomes, strict=True)
        ],
    }


def _lines(vector: Mapping[str, Any]) -> Iterator[str]:
    yield f"vector {vector['id']} {vector['result']}"
    yield f"decode {vector['input']['data']}"
    if "error" in vector:
        yield f"error {vector['error']['code']}"
    elif vector.get("plain"):
        yield "plain"
    else:
        yield from record_lines(vector["user_records"])
    yield END
