"""Where the harnesses begin: seeds, cut from spec/vectors, and the inputs that earlier runs kept."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kpl_codec import KinesisRecord
from kpl_codec.adapters import to_firehose, to_get_records, to_lambda

KEPT = Path(__file__).with_name("corpora")
_VECTORS = Path(__file__).parents[1] / "spec" / "vectors"

#: First byte of an input that is a message (its frame is made around it), or data as it is.
MESSAGE, DATA = b"\x00", b"\x01"
LONGEST = 4000
#: Bytes that mean something where they stand, and numbers and keys that are odd.
BYTES = [0, 1, 2, 8, 10, 16, 18, 26, 34, 127, 128, 237, 255]
PIECES = [
    b"\xff" * 9 + b"\x01",
    b"\x80" * 9 + b"\x02",
    b"\x80\x80\x80\x80\x10",
    b"\xff\xff\xff\xff\x0f",
    b"\x88\x80\x80\x80\x10\x00",
    b"\x8a\x80\x80\x80\x10\x01a",
    b"\xed\xa0\x80",
]


def kept(harness: str) -> list[bytes]:
    """Inputs of earlier runs, as few as reach what they reached: one a line, in hex."""
    path = KEPT / f"{harness}.txt"
    return [bytes.fromhex(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep(harness: str, inputs: Iterable[bytes]) -> None:
    """Write the harness's corpus anew."""
    KEPT.mkdir(exist_ok=True)
    lines = sorted({data.hex() for data in inputs}, key=lambda line: (len(line), line))
    (KEPT / f"{harness}.txt").write_text("".join(f"{line}\n" for line in lines))


def vectors() -> list[dict[str, Any]]:
    """All vectors, by the names of their files."""
    files = sorted(path for path in _VECTORS.glob("*.json") if path.name != "schema.json")
    return [vector for path in files for vector in json.loads(path.read_text(encoding="utf-8"))["vectors"]]


def datas() -> Iterator[bytes]:
    """The data of every Kinesis record in the vectors."""
    for vector in vectors():
        texts = [vector["input"].get("data"), vector.get("data")]
        texts += [record["data"] for record in vector["input"].get("records", [])]
        yield from (bytes.fromhex(text) for text in texts if text is not None and len(text) <= 2 * LONGEST)


def frames() -> Iterator[bytes]:
    for data in datas():
        yield DATA + data
        if data.startswith(b"\xf3\x89\x9a\xc2") and len(data) > 20:
            yield MESSAGE + data[4:-16]


def events() -> Iterator[bytes]:
    # (The test of a wheel has no such folder.)
    from tests.adapters.shapes import to_analytics, to_pipes, to_subscribe_to_shard

    arn = "arn:aws:kinesis:eu-west-1:1:stream/s"
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    some = list(datas())[::12]
    for start in range(0, len(some), 3):
        records = [
            KinesisRecord("a", data, str(number), "shardId-000000000000", at)
            for number, data in enumerate(some[start : start + 3], 1)
        ]
        for event in (
            to_lambda(records, stream_arn=arn),
            to_pipes(records, stream_arn=arn),
            to_get_records(records, dump=True),
            to_subscribe_to_shard(records, dump=True),
            to_firehose(records, delivery_stream_arn=arn, source_stream_arn=arn),
            to_analytics(records),
        ):
            yield json.dumps(event, default=str).encode()


def listings() -> Iterator[bytes]:
    for vector in vectors():
        pages = vector["input"].get("pages")
        if pages is not None:
            yield json.dumps(pages).encode()
            yield "\n".join(map(json.dumps, pages)).encode()


def damaged(messages: list[bytes], chance: random.Random) -> bytes:
    """One of ``messages`` with up to three places changed, cut, repeated or filled in; sometimes none."""
    out = bytearray(chance.choice(messages))
    for _ in range(chance.randint(0, 3)):
        at = chance.randrange(len(out) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(out):
            out[at] = chance.choice([*BYTES, out[at] ^ 1 << chance.randrange(8)])
        elif kind == 1:
            out[at:at] = bytes([chance.choice([*BYTES, chance.randrange(256)])])
        elif kind == 2:
            del out[at : at + chance.choice([1, 2, 3, 16, 200])]
        elif kind == 3:
            other = chance.choice(messages)
            begin = chance.randrange(len(other) + 1)
            out[at:at] = other[begin : begin + chance.choice([1, 5, 20, 300])]
        else:
            out[at:at] = chance.choice(PIECES)
    return bytes(out)


if __name__ == "__main__":
    keep(sys.argv[1], [path.read_bytes() for path in Path(sys.argv[2]).iterdir()])
