"""`kpl_codec.arrow.outlines`: of which aggregates it is certain; it reads them as the byte walker does."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pytest

import kpl_codec as kpl
from kpl_codec.arrow.layout import Layout, Source
from kpl_codec.arrow.outlines import sound_aggregates
from kpl_codec.format.message import varint

from .test_arrow import framed

KEYS = b"\x0a\x01a\x0a\x01b\x12\x017"
ONE = b"\x1a\x05\x08\x01\x1a\x01x"
EXPLICIT = b"\x1a\x06\x08\x00\x10\x00\x1a\x00"
LARGE = [kpl.UserRecord("a", bytes(size)) for size in (123, 124, 127, 128, 16_378, 16_384, 200_000)]
SOUND = {
    "one": KEYS + ONE,
    "explicit hash keys": KEYS + ONE + EXPLICIT + ONE,
    "a user record in data": KEYS + b"\x1a" + varint(len(ONE) + 4) + b"\x08\x00\x1a" + varint(len(ONE)) + ONE,
    "all sizes": kpl.encode(LARGE)[4:-16],
    "many keys": kpl.encode([kpl.UserRecord(str(n), b"") for n in range(20_000)])[4:-16],
}
LEFT = {
    "nothing": b"",
    "no user records": KEYS,
    "a key at the end": KEYS + ONE + b"\x0a\x01c",
    "an unknown field": KEYS + b"\x28\x01" + ONE,
    "an unknown field at the end": KEYS + ONE + b"\x28\x01",
    "an unknown field between": KEYS + ONE + b"\x28\x01" + ONE,
    "a user record without data": KEYS + ONE + b"\x1a\x02\x08\x00" + ONE,
    "an index twice": KEYS + b"\x1a\x07\x08\x01\x08\x01\x1a\x01x" + ONE,
    "tags": KEYS + b"\x1a\x0a\x08\x01\x1a\x01x\x22\x03\x0a\x01t" + ONE,
    "an index outside": KEYS + b"\x1a\x05\x08\x02\x1a\x01x",
    "an explicit index outside": KEYS + b"\x1a\x06\x08\x00\x10\x01\x1a\x00",
    "no key": ONE,
    "no hash key": b"\x0a\x01a\x12\x01x" + EXPLICIT,
    "no UTF-8": b"\x0a\x01a\x0a\x01\xff" + ONE,
    "data too long": KEYS + b"\x1a\x05\x08\x01\x1a\x02x",
    "data too short": KEYS + b"\x1a\x05\x08\x01\x1a\x00x",
    "cut": (KEYS + ONE)[:-1],
    "more than the message": KEYS + b"\x1a\x06\x08\x01\x1a\x02x",
}


def found(frames: list[bytes]) -> dict[int, kpl.AggregatedRecord]:
    batch = pa.RecordBatch.from_pydict({"data": pa.array(frames, pa.binary())})
    return sound_aggregates(
        Source(batch, Layout(batch.schema, "strict", False, True)), np.arange(len(frames))
    )


@pytest.mark.parametrize("name", SOUND)
def test_written_as_the_kpl_does(name: str) -> None:
    frame = framed(SOUND[name])
    (aggregate,) = found([frame]).values()
    assert list(aggregate) == list(kpl.decode(frame))
    assert aggregate.data[-1] == kpl.decode(frame).data[-1]
    assert aggregate.data[:2] == list(kpl.decode(frame).data[:2])


@pytest.mark.requirement("MSG-6", "MSG-7", "MSG-8", "MSG-10", "FRM-4")
def test_all_else_is_left() -> None:
    frames = [frame for message in LEFT.values() for frame in (framed(message), framed(KEYS + ONE))]
    frames.append(framed(KEYS + ONE)[:-1] + b"?")
    assert hashlib.md5(KEYS + ONE).digest()[-1:] != b"?"
    assert list(found(frames)) == list(range(1, len(frames), 2))
