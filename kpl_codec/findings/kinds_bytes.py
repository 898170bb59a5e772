"""Findings about broken bytes of Kinesis records."""

from __future__ import annotations

from ..errors import MalformedCode, MalformedMessage
from .kind import NOBODY, Kind

_REWRITE = (
    "Find and fix its writer. Records already on the stream can be rescued: the report policy "
    "(`kpl-codec cat`) delivers every user record that the bytes still hold."
)
_CORRUPT = (
    "Read the record again from the stream. If it is broken there too, the writer is at fault. Else the "
    "bytes were changed by a proxy, a re-encoding (base64, UTF-8) or a cut in the capture."
)
_ALL_WHO_OPEN = (
    "Everybody who deaggregates. Some hand the frame on as one record, some deliver a part of it; few say "
    "so. Plain readers get the bytes as they are."
)


def _broken(name: str, title: str, meaning: str, requirement: str | None, todo: str = _REWRITE) -> Kind:
    return Kind(name, "error", title, meaning, _ALL_WHO_OPEN, todo, requirement)


_MALFORMED: dict[MalformedCode, str] = {
    "truncated": "The message ends in the middle of a field",
    "varint-too-long": "A number of more than ten bytes",
    "varint-overflow": "A number above 64 bits",
    "field-number": "Field number 0, or one too large",
    "wire-type": "A wire type that does not exist",
    "stray-end-group": "A group that ends before it began",
    "unterminated-group": "A group that never ends",
    "too-deep": "Groups nested too deeply: made to crash a consumer",
}


BYTES = (
    _broken(
        "checksum-mismatch",
        "The digest is not that of the message",
        "Bytes of an aggregated record were changed or cut, or it is a plain record that happens to begin "
        "with the same four bytes. The KCL hands it on unopened, as one plain record.",
        "FRM-3",
        _CORRUPT,
    ),
    *(
        _broken(
            code,
            title,
            "The message is no protobuf. Its digest is right, so it was written like this.",
            MalformedMessage(code=code).requirement,
        )
        for code, title in _MALFORMED.items()
    ),
    _broken(
        "wrong-wire-type",
        "A known field of another type",
        "A field has another type than the schema says. Decoders silently skip it, and with it the data.",
        "MSG-5",
    ),
    _broken(
        "missing-field",
        "A required field is missing",
        "The KCL hands the whole record on unopened; others invent a value. The usual cause is a writer with "
        "a proto3 schema: it leaves out index 0 and empty data.",
        "MSG-6",
    ),
    _broken(
        "index-out-of-table",
        "A user record points past the end of a key table",
        "Its key cannot be known. The KCL delivers the user records before it and drops the rest.",
        "MSG-7",
    ),
    _broken(
        "key-utf-8",
        "A key that is not UTF-8",
        "The bytes of a key are no text. The KCL replaces them, so the key and its hash change on the way.",
        "MSG-8",
    ),
    _broken(
        "key-too-long",
        "A partition key of more than 256 characters",
        "Kinesis takes no such key. With one, a small record can grow to gigabytes.",
        "MSG-9",
    ),
    _broken(
        "key-unusable",
        "A user record whose key is not usable",
        "Its table entry is not UTF-8 or too long, so the key cannot be given as text.",
        "MSG-8",
    ),
    _broken(
        "hash-key",
        "An invalid explicit hash key",
        "It is no decimal number from 0 to 2^128 - 1. The KCL stops at it or drops the whole aggregate.",
        "KEY-3",
    ),
    Kind(
        "unused-hash-key",
        "warning",
        "An entry that is no hash key, and that nobody uses",
        "An entry in the table of explicit hash keys, as KPLNET writes into every aggregate.",
        "Nobody: every consumer, the KCL too, delivers all user records of the aggregate.",
        "Nothing has to be done. Its writer should leave the entry out.",
        "KEY-8",
    ),
    Kind(
        "swapped-keys",
        "warning",
        "Written by somebody who is known to swap keys",
        "The habits in its bytes are those of a writer that gives user records the keys, or the explicit "
        "hash keys, of others in the same aggregate: fluent-bit's Go plugin, npm's aws-kinesis-agg with keys "
        "that look like integers, kinesis4cats, hawknewton's Ruby gem. The bytes alone cannot prove it.",
        "Every consumer that uses keys: to group, to order, to deduplicate.",
        "Find the writer (spec/12-implementations.md), and compare a user record's key with what its data "
        "says. The right keys are nowhere on the stream, unless the data has them.",
        "FPR-3",
    ),
    Kind(
        "writer",
        "info",
        "Written by somebody who is known",
        "The habits in the bytes of some aggregates are those of the writer that is named, once for each "
        "part of the input; the KPL and kpl_codec are not named.",
        NOBODY,
        "Nothing. spec/12-implementations.md says what its user records come to with each consumer.",
        "FPR-2",
    ),
    Kind(
        "schema-frame-damaged",
        "error",
        "A frame of the Schema Registry that cannot be opened",
        "The data begins like a frame with a payload in zlib (03 05), and the zlib stream is damaged, cut "
        "short, or has bytes behind it. Or it is other data that begins so by chance.",
        "Readers of this user record. If the zlib stream was cut short, AWS's deserializer never returns.",
        "Find its writer by the schema version. With unframe and the report policy it comes as it is.",
        "GSR-3",
    ),
    Kind(
        "schema-frame-too-large",
        "error",
        "A frame of the Schema Registry that grows too large",
        "Its payload in zlib becomes larger than the limit of 64 MiB, perhaps to fill a consumer's memory.",
        "Readers of this user record. The KCL has no limit.",
        "Find its writer by the schema version. max_decompressed_size raises the limit of readers.",
        "GSR-3",
    ),
    Kind(
        "schema-version",
        "info",
        "User records in frames of the Schema Registry",
        "The data of so many user records begins like a frame of this schema version.",
        "Readers that do not take frames off: they get 18 bytes before each payload.",
        "Nothing. The guide schema-registry.md says how each kind of reader takes frames off.",
        "GSR-11",
    ),
    Kind(
        "mixed-schema-versions",
        "info",
        "Several schema versions in one aggregate",
        "As while a schema is changed.",
        "Readers that decode all user records of an aggregate by one schema.",
        "Decode each user record by its own schema version.",
        "GSR-11",
    ),
    _broken(
        "no-user-records",
        "An empty aggregate",
        "The user records meant for it are gone. Every deaggregator delivers nothing, and says nothing.",
        "MSG-10",
    ),
    _broken(
        "no-data",
        "A Kinesis record without data",
        "The captured record has no data at all, not even of length zero.",
        "SPK-1",
        _CORRUPT,
    ),
)
