"""The frame of AWS Glue Schema Registry: on, off, broken."""

from __future__ import annotations

import random
import tracemalloc
import uuid
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.schema_registry import SchemaFrameError, frame, unframe

VERSION = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"
_SHORT = st.binary(max_size=40)
#: Data without a frame, such that begins nearly like one among it.
UNFRAMED = (
    st.binary(max_size=60)
    | st.tuples(st.sampled_from([b"\x03", b"\x03\x00", b"\x03\x05", b"\x03\x01", b"\x00\x03"]), _SHORT).map(
        b"".join
    )
).filter(
    lambda data: (
        len(data) < 18
        or data[:2] not in (b"\x03\x00", b"\x03\x05")
        or (data[8] >> 4, data[10] >> 6) != (4, 2)
    )
) | st.tuples(st.uuids(version=4), st.binary(min_size=2, max_size=40)).map(
    # No zlib stream begins with an odd byte.
    lambda pair: b"\x03\x05" + pair[0].bytes + bytes([pair[1][0] | 1]) + pair[1][1:]
)


@given(st.binary(max_size=300), st.uuids(version=4), st.integers(-1, 9))
@pytest.mark.requirement("GSR-1", "GSR-2", "GSR-3")
def test_a_sound_frame_comes_off(payload: bytes, version: uuid.UUID, level: int) -> None:
    packed = payload if level < 0 else zlib.compress(payload, level)
    data = bytes((3, 0 if level < 0 else 5)) + version.bytes + packed
    for form in (data, bytearray(data), memoryview(data)):
        assert unframe(form) == (str(version), payload)
    # One frame comes off, not two.
    assert unframe(frame(data, VERSION)) == (VERSION, data)


@given(st.binary(max_size=300), st.uuids(version=4), st.booleans())
@pytest.mark.requirement("GSR-2", "GSR-6")
def test_a_frame_is_as_documented(data: bytes, version: uuid.UUID, compress: bool) -> None:
    made = frame(data, version, compress=compress)
    assert made == frame(data, str(version), compress=compress)
    assert made[:18] == bytes((3, 5 if compress else 0)) + version.bytes
    assert unframe(made) == (str(version), data)
    assert (zlib.decompress(made[18:]) if compress else made[18:]) == data
    with pytest.raises(ValueError, match="UUID"):
        frame(data, "orders")


@given(UNFRAMED)
@pytest.mark.requirement("GSR-1")
def test_other_data_is_left_as_it_is(data: bytes) -> None:
    assert unframe(data) == (None, data)


@pytest.mark.requirement("GSR-1")
def test_random_data_is_rarely_taken_for_framed() -> None:
    def framed(data: bytes) -> bool:
        try:
            return unframe(data).schema_version_id is not None
        except SchemaFrameError:
            return True

    chance = random.Random(3)
    plain = [b"\x03\x00" + chance.randbytes(98) for _ in range(20_000)]
    packed = [b"\x03\x05" + chance.randbytes(98) for _ in range(20_000)]
    assert 200 < sum(map(framed, plain)) < 430  # one in 64
    assert sum(map(framed, packed)) <= 3


@given(st.uuids(version=4), st.binary(min_size=1, max_size=200), st.data())
@pytest.mark.requirement("GSR-3")
def test_a_broken_frame_is_an_error(version: uuid.UUID, payload: bytes, data: st.DataObject) -> None:
    stream = zlib.compress(payload)
    damaged = data.draw(
        st.integers(0, len(stream) - 1).map(lambda end: stream[:end])
        | st.binary(min_size=1, max_size=20).map(lambda more: stream + more)
        | st.just(stream[:2] + b"\xff" + stream[3:])
    )
    with pytest.raises(SchemaFrameError) as caught:
        unframe(b"\x03\x05" + version.bytes + damaged)
    assert (caught.value.code, caught.value.schema_version_id) == ("schema-frame-damaged", str(version))
    assert str(version) in str(caught.value)


@pytest.mark.requirement("GSR-3")
def test_a_bomb_takes_no_more_memory_than_the_limit() -> None:
    bomb = frame(bytes(80 * 1024 * 1024), VERSION, compress=True)
    tracemalloc.start()
    with pytest.raises(SchemaFrameError, match="more than 1000000 bytes") as caught:
        unframe(bomb, 1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000
    assert (caught.value.code, caught.value.max_decompressed_size) == ("schema-frame-too-large", 1_000_000)
    assert unframe(frame(b"ab", VERSION, compress=True), 2).data == b"ab"
    with pytest.raises(SchemaFrameError):
        unframe(frame(b"abc", VERSION, compress=True), 2)
    assert unframe(frame(b"abc", VERSION), 2).data == b"abc"  # nothing is made of it
    with pytest.raises(ValueError, match="at least 1 byte"):
        unframe(b"", 0)
