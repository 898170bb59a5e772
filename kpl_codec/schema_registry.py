"""The frame of AWS Glue Schema Registry: it names the schema of a user record's data.

    byte 0       3, the version of the frame
    byte 1       0: the payload as it is; 5: the payload as one zlib stream
    bytes 2-17   the schema version id, a UUID, most significant byte first
    bytes 18-    the payload: Avro without a container, JSON text, or Protobuf after its message index

The KPL frames data before it aggregates; the KCL takes the frame off after it has deaggregated.
`kpl_codec.aws.SchemaRegistry` fetches schemas. Specification: spec/13-schema-registry.md, GSR-1 to GSR-9.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Union

from .arguments import add_row, argument_error, check_arguments
from .errors import DecodeError, EncodeError, KplError
from .format.compression import DEFAULT_MAX_DECOMPRESSED_SIZE, check_max_size
from .lazy import require_extras
from .values import Value, describe_fields

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

__all__ = [
    "GlueSchema", "PayloadError", "SchemaFrameError", "SchemaRefused", "Unframed",
    "decode_payload", "frame", "is_framed", "unframe", "version_id_text",
]  # fmt: skip

HEADER_SIZE: Final = 18
#: Which frames are taken off. True: all; a collection: those with one of these schema version ids, as texts,
#: as UUIDs, or as the 16 bytes in a frame.
Unframe = Union[bool, "Collection[UUID | str | bytes]"]
#: The first bytes of a frame with an uncompressed payload, and with one in zlib.
_FORMATS: Final = ("AVRO", "JSON", "PROTOBUF")
PLAIN, ZLIB = b"\x03\x00", b"\x03\x05"


class SchemaFrameError(DecodeError):
    """A frame of the Schema Registry whose payload cannot be decompressed, or is larger than ``max_size``
    bytes. ``schema_version_id``: of its header."""

    code: Literal["schema-frame-damaged", "schema-frame-too-large"]
    requirement = "GSR-3"
    schema_version_id: str
    max_size: int | None = None
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
        "schema-frame-too-large": f"{text}: its payload has more than {{max_size}} bytes",
    }


class PayloadError(KplError, ValueError):
    """A payload that does not match its schema. ``data_format``: AVRO, JSON or PROTOBUF."""

    code: str = "payload"
    requirement = "GSR-9"
    schema_version_id: str
    data_format: str
    text = "the payload does not match its {data_format} schema, version {schema_version_id}"
    concerns = "Readers of this user record: its writer used another schema than its frame says."
    todo = (
        "Decode the payload another way: its bytes are the user record's data. If they are broken, mend its "
        "writer, and put the user record again."
    )


class SchemaRefused(EncodeError):
    """A user record that cannot be framed as its caller asked. ``reason``: why."""

    code: str = "schema"
    requirement = "GSR-8"
    field: str = "schema"
    reason: str
    text = "the user record cannot be framed: {reason}"
    todo = "Give a schema version id of Glue, and compression none or zlib."


@describe_fields(
    schema_version_id="The schema version that the frame named; None if there was no frame.",
    data="The data without the frame.",
)
class Unframed(NamedTuple):
    """``data`` without its frame, and the schema version that the frame named; None: it had no frame."""

    schema_version_id: str | None
    data: bytes


class GlueSchema(Value):
    """A schema version as Glue describes it. ``data_format``: AVRO, JSON or PROTOBUF."""

    schema_version_id: str
    data_format: str
    definition: str


def version_ids(versions: Collection[UUID | str | bytes], name: str = "versions") -> frozenset[bytes]:
    """The schema version ids, 16 bytes each. Raises TypeError for what is no collection of ids, ValueError
    for a text that is no UUID; both begin with ``name``."""
    from uuid import UUID  # readers without an option need not load it

    ids: set[bytes] = set()
    try:
        if isinstance(versions, (str, bytes)):
            raise ValueError
        for one in versions:
            uuid = one if isinstance(one, UUID) else UUID(bytes=one) if isinstance(one, bytes) else UUID(one)
            ids.add(uuid.bytes)
    except ValueError:
        shown = repr(versions)[:80]
        raise ValueError(f"{name} is {shown}, give a set of schema version ids, which are UUIDs") from None
    except (TypeError, AttributeError):
        kind = type(versions).__name__
        raise TypeError(f"{name} is of type {kind}, give a set of schema version ids") from None
    return frozenset(ids)


def is_framed(data: bytes, versions: Collection[UUID | str | bytes] | None = None) -> bool:
    """Whether ``data`` is framed, by its first bytes. ``versions``: the known schema version ids, as for
    ``unframe`` of `kpl_codec.deaggregate`; without them, of random data that begins with 03 00 one in 64 is
    taken for framed, of random data that begins with 03 05 one in 50,000. Raises TypeError and ValueError for
    other ids, and for data that is no bytes.
    """
    _check_bytes("is_framed", data)
    return has_frame(data, None if versions is None else version_ids(versions))


def _check_bytes(function: str, data: object) -> None:
    """Text would be data without a frame."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise argument_error(function, "data", data, give="bytes")


def _wrong_versions(value: Any) -> type[Exception] | None:
    try:
        version_ids(value)
    except (TypeError, ValueError) as error:
        return type(error)
    return None


_IDS = "a set of schema version ids, which are UUIDs"
add_row("versions", _wrong_versions, _IDS, optional=True)
add_row(
    "unframe",
    lambda value: None if isinstance(value, bool) else _wrong_versions(value),
    f"True, False or {_IDS}",
)


def has_frame(data: bytes, versions: frozenset[bytes] | None) -> bool:
    """`is_framed`, with the result of `version_ids`."""
    # GSR-1: "Data of at least 18 bytes that begins with 03 00 or 03 05 MUST be taken for framed if bytes 2 to
    # 17 are a schema version that the reader knows or, where it was given none, a UUID of version 4 and what
    # follows 03 05 begins as zlib does; all other data MUST be left as it is."
    if len(data) < HEADER_SIZE or not data.startswith((PLAIN, ZLIB)):
        return False
    if versions is not None:
        return data[2:HEADER_SIZE] in versions
    version_4 = data[8] >> 4 == 4 and data[10] >> 6 == 2
    return version_4 and (data[1] == 0 or _begins_zlib(data[HEADER_SIZE : HEADER_SIZE + 2]))


def _begins_zlib(first: bytes) -> bool:
    """Whether a zlib stream may begin with these two bytes, or fewer where the data ends (RFC 1950)."""
    return (not first or first[0] & 0x8F == 8) and (len(first) < 2 or int.from_bytes(first, "big") % 31 == 0)


@lru_cache(1024)
def version_id_text(version_id: bytes) -> str:
    """The schema version id of 16 bytes as text."""
    # GSR-2: "The schema version id MUST be the UUID of bytes 2 to 17, the most significant byte first, as
    # text in lower case with hyphens."
    digits = version_id.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def frame(data: bytes, schema_version_id: UUID | str, *, compress: bool = False) -> bytes:
    """``data`` in a frame, as the KPL writes it; ``compress``: in zlib, whether or not that is smaller.

    Raises ValueError for a text that is no UUID, TypeError. Readers take a UUID of another version than 4,
    which Glue never gives, only from a set of known ids.
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
    return (ZLIB if compress else PLAIN) + version.bytes


def unframe(
    data: bytes,
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
    *,
    as_kcl: bool = False,
    versions: Collection[UUID | str | bytes] | None = None,
) -> Unframed:
    """The payload in a frame, and its schema version; ``data`` itself if it is not framed.

    ``max_decompressed_size``: of a payload in zlib, in bytes. ``as_kcl``: ignores bytes behind the zlib
    stream, as the KCL does. ``versions``: as in `is_framed`. Raises SchemaFrameError; ValueError for a size
    below 1; TypeError.
    """
    check_arguments("unframe", {"as_kcl": as_kcl, "versions": versions})
    largest = check_max_size(max_decompressed_size, "unframe", "max_decompressed_size")
    _check_bytes("unframe", data)
    if not is_framed(data, versions):
        return Unframed(None, data)
    return payload_of(data, largest, as_kcl)


def payload_of(data: bytes, max_size: int, as_kcl: bool) -> Unframed:
    """`unframe` of data that has a frame, with checked arguments."""
    version_id = version_id_text(bytes(data[2:HEADER_SIZE]))
    if data.startswith(PLAIN):
        return Unframed(version_id, data[HEADER_SIZE:])
    unpacker = zlib.decompressobj()
    try:
        payload = unpacker.decompress(data[HEADER_SIZE:], max_size + 1)
    except zlib.error:
        raise SchemaFrameError(code="schema-frame-damaged", schema_version_id=version_id) from None
    # GSR-3: "A payload in zlib that is damaged, cut short, followed by other bytes, or larger than the
    # reader's limit MUST be an error that says which; it MUST NOT be shortened."
    if len(payload) > max_size:
        raise SchemaFrameError(code="schema-frame-too-large", schema_version_id=version_id, max_size=max_size)
    if not unpacker.eof or (unpacker.unused_data and not as_kcl):
        raise SchemaFrameError(code="schema-frame-damaged", schema_version_id=version_id)
    return Unframed(version_id, payload)


def decode_payload(schema: GlueSchema, data: bytes) -> Any:
    """The value in a payload: Python objects for JSON and Avro, the bytes for Protobuf.

    Avro needs the extra ``avro``. Raises PayloadError, ModuleNotFoundError, and ValueError for a format that
    Glue writes in capitals.
    """
    if not isinstance(schema, GlueSchema):
        raise argument_error("decode_payload", "schema", schema, give="a GlueSchema, as SchemaRegistry has")
    data_format = schema.data_format
    if data_format not in _FORMATS:
        check_arguments("decode_payload", {"data_format": data_format})
        if data_format.upper() in _FORMATS:
            give = data_format.upper()
            raise argument_error("decode_payload", "data_format", data_format, ValueError, give)
    # GSR-9: "A payload MUST be decoded with the schema version that its frame names; a payload that does not
    # match that schema MUST be an error, and a payload of an unknown format MUST come as its bytes."
    try:
        if data_format == "JSON":
            import json

            return json.loads(data)
        if data_format == "AVRO":
            return _avro(schema.definition, data)
    except ModuleNotFoundError:
        raise
    except Exception:  # noqa: BLE001 - fastavro raises whatever a wrong byte leads to; its text holds data
        pass
    else:
        return data
    raise PayloadError(schema_version_id=schema.schema_version_id, data_format=data_format)


def _avro(definition: str, data: bytes) -> Any:
    from io import BytesIO

    with require_extras("kpl_codec.schema_registry.decode_payload"):
        import fastavro
    source = BytesIO(data)
    value = fastavro.schemaless_reader(source, _parse_schema(definition), None)
    if source.read(1):
        raise ValueError("bytes behind the value")
    return value


@lru_cache(64)
def _parse_schema(definition: str) -> Any:
    import json

    import fastavro

    return fastavro.parse_schema(json.loads(definition))
