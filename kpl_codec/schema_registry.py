"""The frame of AWS Glue Schema Registry: it names the schema of a user record's data.

    byte 0       3, the version of the frame
    byte 1       0: the payload as it is; 5: the payload as one zlib stream
    bytes 2-17   the schema version id, a UUID, most significant byte first
    bytes 18-    the payload: Avro without a container, JSON text, or Protobuf after its message index

The KPL frames data before it aggregates; the KCL takes the frame off after it has deaggregated. Here the
caller does both: `frame` before a user record is put, `unframe` for the data of a user record that was read.
Specification: spec/13-schema-registry.md, GSR-1, GSR-2, GSR-3 and GSR-6.

    >>> from uuid import UUID
    >>> from kpl_codec.schema_registry import frame, unframe
    >>> version = UUID("6a1c3a4e-9d5b-4f43-8a53-0b5b0c1f6f10")
    >>> found = unframe(frame(b'{"number": 1}', version, compress=True))
    >>> found.data, found.schema_version_id
    (b'{"number": 1}', '6a1c3a4e-9d5b-4f43-8a53-0b5b0c1f6f10')
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple

from .base.arguments import argument_error, check_arguments
from .base.lazy import public_names
from .base.values import describe_fields
from .errors import DecodeError
from .format.compression import DEFAULT_MAX_DECOMPRESSED_SIZE, check_max_size

if TYPE_CHECKING:
    from uuid import UUID

__all__ = ["SchemaFrameError", "Unframed", "frame", "unframe"]
__dir__ = public_names(__name__)

_HEADER_SIZE: Final = 18
#: The first bytes of a frame with an uncompressed payload, and with one in zlib.
_PLAIN, _ZLIB = b"\x03\x00", b"\x03\x05"


class SchemaFrameError(DecodeError):
    """A frame of the Schema Registry whose payload cannot be decompressed, or is larger than
    ``max_decompressed_size`` bytes. ``schema_version_id``: of its header."""

    code: Literal["schema-frame-damaged", "schema-frame-too-large"]
    requirement = "GSR-3"
    schema_version_id: str
    max_decompressed_size: int | None = None
    concerns = (
        "Readers of this user record. The KCL hands it on framed, with a warning; where its zlib stream was "
        "cut short, AWS's deserializer never returns."
    )
    todo = (
        "Find the writer of the frame by its schema version; raise `max_decompressed_size` if payloads "
        "may be so large."
    )
    text = "Schema Registry frame of schema version {schema_version_id}"
    texts: ClassVar[dict[str, str]] = {
        "schema-frame-damaged": f"{text}: its zlib stream is damaged, cut short, or followed by other bytes",
        "schema-frame-too-large": f"{text}: its payload has more than {{max_decompressed_size}} bytes",
    }


@describe_fields(
    schema_version_id="The schema version that the frame named; None if there was no frame.",
    data="The data without the frame.",
)
class Unframed(NamedTuple):
    """``data`` without its frame, and the schema version that the frame named; None: it had no frame."""

    schema_version_id: str | None
    data: bytes


def frame(data: bytes, schema_version_id: UUID | str, *, compress: bool = False) -> bytes:
    """``data`` in a frame, as the KPL writes it; ``compress``: in zlib, whether or not that is smaller.

    Raises ValueError for a text that is no UUID, TypeError. `unframe` takes the frame off if the UUID is of
    version 4, as those of Glue are.
    """
    if not isinstance(compress, bool):
        check_arguments("frame", {"compress": compress})
    _check_bytes("frame", data)
    try:
        header = _header(schema_version_id, compress)
    except (ValueError, TypeError, AttributeError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        give = "the UUID of a schema version, as Glue gives it"
        raise argument_error("frame", "schema_version_id", schema_version_id, kind, give) from None
    # GSR-6: "A writer MUST write 03, then 00 and the payload or 05 and the payload in zlib, with the schema
    # version id between them, also around an empty payload."
    return header + (zlib.compress(data) if compress else data)


@lru_cache(1024)
def _header(schema_version_id: UUID | str, compress: bool) -> bytes:
    from uuid import UUID  # imported here, because readers do not need it

    version = schema_version_id if isinstance(schema_version_id, UUID) else UUID(schema_version_id)
    return (_ZLIB if compress else _PLAIN) + version.bytes


def unframe(data: bytes, max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE) -> Unframed:
    """The payload in a frame, and its schema version; ``data`` itself, and None, if it is not framed.

    ``max_decompressed_size``: of a payload in zlib, in bytes. Of random data that begins with 03 00 one in
    64 is taken for framed, of random data that begins with 03 05 one in 50,000. Raises SchemaFrameError;
    ValueError for a size below 1; TypeError.
    """
    max_size = check_max_size(max_decompressed_size, "unframe")
    _check_bytes("unframe", data)
    if not _is_framed(data):
        return Unframed(None, data)
    version_id = _version_id_text(bytes(data[2:_HEADER_SIZE]))
    if data[1] == 0:
        return Unframed(version_id, data[_HEADER_SIZE:])
    unpacker = zlib.decompressobj()
    try:
        payload = unpacker.decompress(data[_HEADER_SIZE:], max_size + 1)
    except zlib.error:
        raise SchemaFrameError(code="schema-frame-damaged", schema_version_id=version_id) from None
    # GSR-3: "A payload in zlib that is damaged, cut short, followed by other bytes, or larger than the
    # reader's limit MUST be an error that says which; it MUST NOT be shortened."
    if len(payload) > max_size:
        raise SchemaFrameError(
            code="schema-frame-too-large", schema_version_id=version_id, max_decompressed_size=max_size
        )
    if not unpacker.eof or unpacker.unused_data:
        raise SchemaFrameError(code="schema-frame-damaged", schema_version_id=version_id)
    return Unframed(version_id, payload)


def _check_bytes(function: str, data: object) -> None:
    """Text would be data without a frame."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise argument_error(function, "data", data, give="bytes")


def _is_framed(data: bytes) -> bool:
    # GSR-1: "Data of at least 18 bytes that begins with 03 00 or 03 05 MUST be taken for framed if bytes 2 to
    # 17 are a UUID of version 4 and what follows 03 05 begins as zlib does; all other data MUST be left as it
    # is."
    if len(data) < _HEADER_SIZE or bytes(data[:2]) not in (_PLAIN, _ZLIB):
        return False
    version_4 = data[8] >> 4 == 4 and data[10] >> 6 == 2
    return version_4 and (data[1] == 0 or _begins_zlib(data[_HEADER_SIZE : _HEADER_SIZE + 2]))


def _begins_zlib(first: bytes) -> bool:
    """Whether a zlib stream may begin with these two bytes, or fewer where the data ends (RFC 1950)."""
    return (not first or first[0] & 0x8F == 8) and (len(first) < 2 or int.from_bytes(first, "big") % 31 == 0)


@lru_cache(1024)
def _version_id_text(version_id: bytes) -> str:
    # GSR-2: "The schema version id MUST be the UUID of bytes 2 to 17, the most significant byte first, as
    # text in lower case with hyphens."
    digits = version_id.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
