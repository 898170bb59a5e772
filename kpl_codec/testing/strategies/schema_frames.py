"""Data in the frame of AWS Glue Schema Registry, sound and broken."""

from __future__ import annotations

import zlib
from typing import NamedTuple
from uuid import UUID

from hypothesis import strategies as st


class SchemaFrame(NamedTuple):
    """A user record's data in a frame, and what is in it. ``code``: of its error, if the frame is broken."""

    schema_version_id: str
    payload: bytes
    data: bytes
    code: str | None = None


def _header(compression: int, version: UUID) -> bytes:
    return bytes((3, compression)) + version.int.to_bytes(16, "big")


@st.composite
def schema_frames(draw: st.DrawFn, *, payloads: st.SearchStrategy[bytes] | None = None) -> SchemaFrame:
    """Sound frames of few versions, as the KPL writes them, half of them with zlib."""
    version = draw(st.sampled_from([UUID(int=1), UUID(int=2**127 + 3)]) | st.uuids())
    payload = draw(st.binary(max_size=200) if payloads is None else payloads)
    if draw(st.booleans()):
        return SchemaFrame(str(version), payload, _header(0, version) + payload)
    level = draw(st.integers(0, 9))
    return SchemaFrame(str(version), payload, _header(5, version) + zlib.compress(payload, level))


@st.composite
def broken_schema_frames(draw: st.DrawFn) -> SchemaFrame:
    """Frames whose zlib stream was cut, has bytes behind it, or is none."""
    version, payload = draw(st.uuids()), draw(st.binary(min_size=1, max_size=200))
    stream = zlib.compress(payload)
    damaged = draw(
        st.integers(0, len(stream) - 1).map(lambda end: stream[:end])
        | st.binary(min_size=1, max_size=20).map(lambda more: stream + more)
        | st.just(b"\xff" + stream[1:])
    )
    return SchemaFrame(str(version), payload, _header(5, version) + damaged, "schema-frame-damaged")


def unframed_data() -> st.SearchStrategy[bytes]:
    """Data without a frame, such that begins nearly like one among it."""
    near = st.sampled_from([b"\x03", b"\x03\x00", b"\x03\x05", b"\x03\x01", b"\x00\x03", b"\x05\x03"])
    return (st.binary(max_size=60) | st.tuples(near, st.binary(max_size=40)).map(b"".join)).filter(
        lambda data: len(data) < 18 or data[:2] not in (b"\x03\x00", b"\x03\x05")
    )
