"""The byte walker: every field of every defect, and which defect is the first."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from fuzz.invariants import frame
from kpl_codec.format import wire
from kpl_codec.format.frame import disguise_of
from kpl_codec.format.limits import MAGIC
from kpl_codec.format.records import record_from_response
from kpl_codec.testing import strategies

from ..spec import vectors

KEY, RECORD = b"\x0a\x01k", b"\x1a\x05\x08\x00\x1a\x01x"
SOUND = b"\x08\x00\x1a\x01x"


def nested(tag: int, body: bytes) -> bytes:
    return bytes((tag, len(body))) + body


def tagged(body: bytes) -> bytes:
    """A message whose second user record ends in a tag of these bytes, at byte 21; they begin at byte 23."""
    return KEY + RECORD + nested(0x1A, SOUND + nested(0x22, body))


def key(code: str, table: str, **fields: Any) -> kpl.DecodeError:
    return kpl.InvalidKey(code=code, table=table, **fields)


@pytest.mark.requirement("MSG-8", "KEY-3")
@pytest.mark.parametrize(
    ("message", "defects"),
    [
        (
            b"\x0a\x02k\xff" + RECORD,
            [
                key("key-utf-8", "partition_key_table", index=0, offset=7),
                key("key-unusable", "partition_key_table", index=0, offset=8, record_index=0),
            ],
        ),
        (
            KEY + b"\x12\x01a" + nested(0x1A, SOUND + b"\x10\x00"),
            [
                kpl.InvalidHashKey(index=0, offset=9),
                key("key-unusable", "explicit_hash_key_table", index=0, offset=10, record_index=0),
            ],
        ),
        (tagged(b"\x0a\x03ab\xff"), [key("key-utf-8", "tags.key", index=1, offset=27, record_index=1)]),
        (
            tagged(b"\x0a\x01t\x12\x03ab\xff"),
            [key("key-utf-8", "tags.value", index=1, offset=30, record_index=1)],
        ),
    ],
)
def test_every_defect_is_listed_with_its_place(message: bytes, defects: list[kpl.DecodeError]) -> None:
    assert list(kpl.explain(frame(message)).defects) == defects


def hold_first_defect(data: bytes) -> None:
    """The first defect is the first of all; each is in the user record that it names."""
    try:
        tables = wire.Message(data)
    except kpl.MalformedMessage as error:
        if kpl.is_aggregated(data):
            with pytest.raises(kpl.MalformedMessage) as raised:
                kpl.decode(data)
            assert raised.value == error
        return
    records = list(tables.records())
    assert [record.record_index for record in records] == list(range(tables.record_count))
    found = [*tables.defects]
    for record in records:
        for defect in tables.defects_of(record):
            assert defect.record_index == record.record_index
            assert record.offset <= (defect.offset or 0) < record.end
            found.append(defect)
    found = [defect for defect in found if defect.code != "key-unusable"]
    first = min(found, key=lambda defect: defect.offset or 0, default=None)
    if not records and first is None:
        first = kpl.NoUserRecords(offset=4)
    assert tables.first_defect() == first


@pytest.mark.requirement("MSG-10")
def test_the_first_defect_of_what_the_vectors_open() -> None:
    for data in vectors.frames():
        if len(data) >= 20:
            hold_first_defect(data)


@given(strategies.defective_frames())
def test_the_first_defect_is_the_first_of_all(made: Any) -> None:
    if len(made.data) >= 20:
        hold_first_defect(made.data)


@pytest.mark.parametrize(
    "kept", [wire.MAX_LISTED_DEFECTS - 1, wire.MAX_LISTED_DEFECTS, wire.MAX_LISTED_DEFECTS + 1]
)
def test_only_so_many_defects_are_kept_and_all_are_counted(kept: int) -> None:
    data = frame(b"\x0a\x01\xff" * kept + RECORD)
    tables = wire.Message(data)
    assert (tables.defect_count, len(tables.defects)) == (kept, min(kept, wire.MAX_LISTED_DEFECTS))
    explained = kpl.explain(data, max_nodes=10**6)
    assert len(explained.defects) + explained.omitted == kept + 1


def test_disguises_are_known_by_their_first_bytes_and_base64_by_all_of_them() -> None:
    data = kpl.encode([kpl.UserRecord("k", b"x")])
    encoded = base64.b64encode(data)
    for text, name in (
        (encoded, "base64"),
        (b'"' + encoded + b'"', "base64"),
        (base64.b64encode(encoded), "base64 of base64"),
        (data.hex().encode(), "hexadecimal digits"),
        (data.hex().upper().encode(), "hexadecimal digits"),
        (data.decode("latin-1").encode(), "Latin-1 text"),
        (data.decode("utf-8", "replace").encode(), "text with lost bytes"),
        (data.decode("utf-8", "ignore").encode(), "text with lost bytes"),
        (data.decode("ascii", "replace").encode("ascii", "replace"), "text with lost bytes"),
        (data[4:-16], "text with lost bytes"),
        (repr(data).encode(), "a Python literal"),
        (data.decode("cp1252", "replace").encode(), "Windows-1252 text"),
        *(
            (quote + "".join(form % byte for byte in data).encode() + quote, "text with escapes")
            for quote in (b"", b'"')
            for form in ("\\x%02x", "\\x%02X", "\\%03o", "\\u%04x", "\\u%04X")
        ),
        (json.dumps(data.decode("latin-1")).encode(), "text with escapes"),
        (f"<<{', '.join(map(str, data))}>>".encode(), "a list of numbers"),
        (json.dumps([*data]).encode(), "a list of numbers"),
        (json.dumps([*data], separators=(",", ":")).encode(), "a list of numbers"),
        (data.hex(" ").encode(), "hexadecimal digits"),
        (data.hex(":").upper().encode(), "hexadecimal digits"),
        (f"<Buffer {data.hex(' ')}>".encode(), "hexadecimal digits"),
        (b"[243, 137]", None),
        (b"<<243", None),
        (data, None),
        (b"????\n\x01", None),
        (b"\n", None),
        (b"\n\x01", None),
        (b"\n\x01a\x1a\x02\x08\x01", None),  # a message of another kind
        (b"84maw", None),  # too little for base64
        (b"84mawA==", None),  # another fourth byte than the magic's
        (base64.b64encode(b"84mawA=="), None),
        (b"ODRtYX", None),
        (b"", None),
    ):
        assert disguise_of(text) == name
        if text != data:
            with pytest.raises(kpl.NotAggregated) as caught:
                kpl.decode(text)
            error = caught.value
            assert (error.offset, error.length, error.disguise) == (0, len(text), name)


@given(strategies.aggregated_records(max_records=4), st.binary(min_size=1, max_size=1), st.booleans())
def test_frames_under_another_magic_are_known_compressed_or_not(
    made: strategies.Aggregate, first: bytes, deflated: bool
) -> None:
    """erlmld and ex_kpl change the first byte of the magic, and compress message and digest if told to."""
    body = zlib.compress(made.data[4:]) if deflated else made.data[4:]
    foreign = first != MAGIC[:1]
    data = first + MAGIC[1:] + body
    assert disguise_of(data) == ("a frame with a foreign magic" if foreign else None)
    assert disguise_of(data[:-1] + bytes([data[-1] ^ 1])) is None


def test_a_record_of_an_answer_is_taken_as_it_is() -> None:
    answer = {
        "PartitionKey": "k",
        "Data": bytearray(b"x"),
        "SequenceNumber": "7",
        "ApproximateArrivalTimestamp": 5,
    }
    assert record_from_response(answer, "s") == kpl.KinesisRecord("k", b"x", "7", "s", 5)  # type: ignore[arg-type]
    assert record_from_response({"Data": b"", "SequenceNumber": "7"}, "s") == kpl.KinesisRecord(
        None, b"", "7", "s"
    )
