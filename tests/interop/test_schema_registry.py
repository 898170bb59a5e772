"""The package aws-glue-schema-registry (for Kafka clients): each of us reads what the other writes."""

from __future__ import annotations

import uuid
import zlib
from contextlib import suppress

import pytest
from aws_schema_registry import codec
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.schema_registry import SchemaFrameError, frame, unframe
from kpl_codec.testing import strategies as kst


@pytest.mark.requirement("GSR-2", "GSR-6")
@given(st.binary(max_size=500), st.uuids(version=4), st.booleans())
def test_both_write_the_same_bytes_and_read_each_others(
    data: bytes, version: uuid.UUID, compress: bool
) -> None:
    framed = frame(data, version, compress=compress)
    assert framed == codec.encode(data, version, compression=compress)
    assert codec.decode(framed) == (data, version)
    assert unframe(framed) == (str(version), data)


@pytest.mark.requirement("GSR-1", "GSR-3", "GSR-4")
@given(kst.schema_frames() | kst.broken_schema_frames())
def test_both_read_the_same(example: kst.SchemaFrame) -> None:
    """It ignores bytes behind a zlib stream, as Java does; here that is an error, but as kcl."""
    ours = theirs = None
    with suppress(zlib.error):
        theirs = codec.decode(example.data)[0]
    with suppress(SchemaFrameError):
        ours = unframe(example.data, as_kcl=True).data
    assert ours == theirs
    if example.code is None:
        assert unframe(example.data) == (example.schema_version_id, theirs)


@pytest.mark.requirement("GSR-1")
@given(kst.unframed_data())
def test_what_has_no_frame_it_refuses(data: bytes) -> None:
    if data[:1] == b"\x03" and (len(data) < 18 or data[1:2] in (b"\x00", b"\x05")):
        return  # it takes fewer bytes for an id, and any id
    with pytest.raises(codec.CodecException):
        codec.decode(data)
