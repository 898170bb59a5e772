"""Every kind of finding: its name, how bad it is, what it means, and what to do about it.

The one home of these names and texts: findings carry the name, the summary and the page look the rest
up here. ``kind_of`` knows every name, also one that is not listed: a finding is never left out because
its kind is new.

Severities, worst first:

    critical   consumers that use the KCL have lost, or will lose, user records
    error      bytes that are not what they claim to be; some consumer fails on them or reads them wrong
    warning    something does not fit together, and needs a person to look
    info       a fact worth knowing; nothing is wrong
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

Severity = Literal["critical", "error", "warning", "info"]
#: Worst first.
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


class Kind(NamedTuple):
    """One kind of finding. ``meaning`` and ``todo`` are sentences for people, plain text.

    ``requirement``: the sentence of spec/ behind it. ``evidence``: the fields of `Finding` that such a
    finding has.
    """

    name: str
    severity: Severity
    title: str
    meaning: str
    todo: str
    evidence: tuple[str, ...]
    requirement: str | None = None


_RECORD = ("shard_id", "sequence_number", "sub_sequence_number", "approximate_arrival_timestamp")
_BROKEN = (*_RECORD, "offset", "record_index", "requirement", "kcl", "detail")
_AGGREGATE = ("shard_id", "sequence_number", "inside", "outside", "dropped", "cause", "detail")
_SHARD = ("shard_id", "user_records", "sequence_number", "detail")
_CAPTURE = ("file", "line", "position", "detail")

_REWRITE = (
    "Find what wrote it and fix it there. Records already on the stream can be rescued with the report "
    "policy, which delivers every user record that the bytes still hold."
)
_CORRUPT = (
    "Find out where the bytes were changed: a proxy, a re-encoding (base64, UTF-8) or a cut in the capture. "
    "Read the record again from the stream; if it is broken there too, the writer is at fault."
)


def _broken(name: str, title: str, meaning: str, requirement: str, todo: str = _REWRITE) -> Kind:
    return Kind(name, "error", title, meaning, todo, _BROKEN, requirement)


#: Codes of `CaptureError`; a finding's kind is ``capture-`` and the code.
_CAPTURE_CODES = (
    ("", "A part of the capture that cannot be read", "A file or line is not what it claims to be."),
    ("file", "A file that cannot be read", "The file is cut short, or not of its format."),
    ("empty", "An empty file", "There is nothing in the file: the capture may have been lost."),
    ("too-large", "A record that is too large", "One record has more than 64 MiB."),
    ("json", "A value that is not JSON", "The value is cut short or was never JSON."),
    (
        "duplicate-member",
        "JSON that has a member twice",
        "Only one of two members of one name can be read; the other would be hidden.",
    ),
    ("utf-8", "Text that is not UTF-8", "A line of the capture is not UTF-8."),
    ("no-data-column", "A Parquet file without data", "The file has no column of Kinesis data."),
    (
        "unknown-shape",
        "No Kinesis record known",
        "It is JSON, but no form of a Kinesis record that is known.",
    ),
    ("base64", "Data that is not base64", "The data of this record is not the base64 it should be."),
    ("missing-field", "A record without a field it needs", "The captured record is not whole."),
    ("wrong-type", "A field of another type", "A field of the captured record has a type it cannot have."),
    ("timestamp", "A time that is no time", "The arrival time of this record cannot be read."),
)

_LISTED = (
    # -- what the KCL loses --------------------------------------------------------------------
    Kind(
        "naive-aggregator",
        "critical",
        "Aggregates put together without looking at shards",
        "User records of several shards were put into one aggregate, as a plain RecordAggregator does on a "
        "stream with more than one shard. No shard, now or earlier, held all their hash keys, so no reshard "
        "explains it. The KCL drops every such aggregate whole, and writes no log line about it.",
        "Change the writer: aggregate per shard (kpl_codec.aws.Producer or the KPL do), or give all user "
        "records of an aggregate one explicit hash key. Until then do not read this stream with the KCL: "
        "read it with the report policy. `kpl-codec repair` puts the user records again where "
        "they belong.",
        ("aggregates", "user_records", "shard_id", "sequence_number", "detail"),
        "PLC-5",
    ),
    Kind(
        "mixed-aggregate",
        "critical",
        "Aggregate with user records of other shards",
        "Some of its user records belong to the shard it lies on, others do not. The KCL drops all of them, "
        "also those that are in their right place.",
        "If the cause is a split: KPL 0.15.11 and later reports such user records as put, and they are lost; "
        "put them again (`kpl-codec repair`). If no reshard explains it: see naive-aggregator.",
        _AGGREGATE,
        "PLC-5",
    ),
    Kind(
        "foreign-aggregate",
        "critical",
        "Aggregate on a shard that none of its user records belongs to",
        "None of its user records belongs to the shard it lies on. The KCL drops it. Either it was put under "
        "a key that is not its own, or it is what a producer left behind when it sent the same user records "
        "again after a split; then they are also on the right shard.",
        "Look for the same user records on the expected shard. If they are not there, put them again "
        "(`kpl-codec repair`) and fix the writer: the key of the put must be the hash key of the "
        "user records in it.",
        _AGGREGATE,
        "PLC-3",
    ),
    # -- placement -----------------------------------------------------------------------------
    Kind(
        "stray",
        "error",
        "Record outside its shard",
        "Its explicit hash key is known, and it is not one of the shard it lies on. Consumers that rely on "
        "the order per key, or look a key up on its shard, do not find it.",
        "Check which stream and which put this record came from: the service itself puts a record where its "
        "hash key says.",
        (*_RECORD, "expected_shard_id"),
        "PLC-3",
    ),
    Kind(
        "on-child",
        "warning",
        "The shard map is older than the stream",
        "These user records lie on a shard that came out of the one the map has open for their hash keys: "
        "the stream was resharded after the map was taken.",
        "Take the shard listing again (`aws kinesis list-shards`) and validate once more.",
        _SHARD,
        "PLC-4",
    ),
    Kind(
        "on-parent",
        "info",
        "Written before a reshard",
        "These user records lie on a shard that has since been split or merged. They are where they "
        "belonged when they were written.",
        "Nothing. Consumers read a closed shard to its end before its children.",
        _SHARD,
        "PLC-4",
    ),
    Kind(
        "unknown-shard",
        "warning",
        "A shard that the map does not have",
        "Without the shard's range these user records cannot be judged: nobody knows whether the KCL drops "
        "them. The shard has expired, the map is of another stream, or the capture does not say the shard.",
        "Validate with a listing of this stream, taken while the shard was still listed.",
        _SHARD,
        "SHD-4",
    ),
    Kind(
        "explicit-hash-key-implied",
        "info",
        "Plain records put with an explicit hash key",
        "Their partition keys do not hash into the shard they lie on, so they were put with an explicit "
        "hash key, which no read call returns. They are delivered by every consumer.",
        "Nothing, if the writers use explicit hash keys. If none of them does, the shard map is of another "
        "stream.",
        _SHARD,
        "PLC-2",
    ),
    Kind(
        "distribution-auto",
        "warning",
        "The stream distributes records itself",
        "The record distribution strategy of this stream is AUTO: the service ignores keys, so no record "
        "is misplaced. A KCL consumer still applies its range rule to aggregates, and drops those that the "
        "service did not happen to put on the shard of their hash keys.",
        "Do not aggregate on such a stream, or do not read it with the KCL's deaggregation.",
        ("user_records", "dropped", "detail"),
        "PLC-1",
    ),
    # -- broken frames -------------------------------------------------------------------------
    _broken(
        "checksum-mismatch",
        "The digest is not that of the message",
        "It begins like an aggregated record, but the MD5 at its end is not that of what stands before it: "
        "bytes were changed or cut, or it is a plain record that happens to begin with the same four bytes. "
        "The KCL hands it on unopened, as one plain record.",
        "FRM-3",
        _CORRUPT,
    ),
    _broken(
        "truncated",
        "The message ends in the middle of a field",
        "A field says it is longer than what is left. The digest is right, so it was written like this.",
        "MSG-1",
    ),
    _broken(
        "varint-too-long",
        "A number of more than ten bytes",
        "A varint of the message does not end where the longest possible one does.",
        "MSG-2",
    ),
    _broken(
        "varint-overflow",
        "A number above 64 bits",
        "A varint of the message is larger than any protobuf number. Decoders disagree about its value.",
        "MSG-3",
    ),
    _broken(
        "field-number",
        "Field number 0, or one too large",
        "The message has a field that no schema can have.",
        "MSG-1",
    ),
    _broken(
        "wire-type",
        "A wire type that does not exist",
        "The message has a field of wire type 6 or 7.",
        "MSG-1",
    ),
    _broken(
        "stray-end-group",
        "A group that ends before it began",
        "The message closes a group that is not open.",
        "MSG-1",
    ),
    _broken(
        "unterminated-group",
        "A group that never ends",
        "The message opens a group and does not close it.",
        "MSG-1",
    ),
    _broken(
        "too-deep",
        "Groups nested too deeply",
        "The message nests groups deeper than decoders follow: made to crash a consumer rather than to "
        "carry data.",
        "MSG-4",
    ),
    _broken(
        "wrong-wire-type",
        "A known field of another type",
        "A field of the format stands there as another type than the schema says. Decoders skip it in "
        "silence, and with it the data.",
        "MSG-5",
    ),
    _broken(
        "missing-field",
        "A required field is missing",
        "A user record lacks its partition key index or its data. The KCL hands the whole record on "
        "unopened; the Python and Node deaggregators invent a value.",
        "MSG-6",
    ),
    _broken(
        "index-out-of-table",
        "A user record points past the end of a key table",
        "Nobody can know the key of this user record. The KCL delivers the user records before it and "
        "drops it and all after it.",
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
        "Kinesis takes no such key. A small record can blow up to gigabytes with one.",
        "MSG-9",
    ),
    _broken(
        "key-unusable",
        "A user record whose key is not usable",
        "The table entry that it points at is not UTF-8 or too long, so the key of this user record cannot "
        "be given as text.",
        "MSG-8",
    ),
    _broken(
        "hash-key",
        "An explicit hash key that is no hash key",
        "It is not a decimal number from 0 to 2^128 - 1. The KCL stops at it or drops the whole aggregate, "
        "depending on the text.",
        "KEY-3",
    ),
    _broken(
        "no-user-records",
        "An aggregate of nothing",
        "A sound frame without a single user record: whatever was meant to be in it is gone. Every "
        "deaggregator delivers nothing, and says nothing.",
        "MSG-10",
    ),
    _broken(
        "no-data",
        "A Kinesis record without data",
        "The captured record has no data at all, not even of length zero.",
        "SPK-1",
        _CORRUPT,
    ),
    # -- the capture ---------------------------------------------------------------------------
    Kind(
        "duplicate",
        "warning",
        "The same user record captured twice",
        "Shard, sequence number and sub-sequence number are the same: captures overlap, or a consumer "
        "wrote its output twice. It is one user record on the stream.",
        "Drop duplicates on (shard, sequence number, sub-sequence number), never on the sequence number "
        "alone.",
        (*_RECORD, "user_records", "file"),
        "LIN-2",
    ),
    *(
        Kind(
            f"capture-{code}" if code else "capture",
            "error",
            title,
            f"{meaning} What is in it has not been checked.",
            "Look at the place named, and capture that part again.",
            _CAPTURE,
            "CAP-1",
        )
        for code, title, meaning in _CAPTURE_CODES
    ),
    Kind(
        "capture-user-data",
        "error",
        "User data, not Kinesis records",
        "A file of JSON values, none of which is a Kinesis record. Firehose writes such files to S3: it has "
        "taken the user records out of their aggregates, so there is nothing left to check.",
        "Capture the stream before Firehose: GetRecords answers, Lambda events, or the stream itself "
        "(kpl-codec validate --stream).",
        _CAPTURE,
        "SPK-44",
    ),
    Kind(
        "capture-encoded-frame",
        "error",
        "An aggregated record that was turned into text",
        "The data of this Kinesis record is an aggregated record as base64, hexadecimal digits or text. No "
        "consumer opens it: all user records in it arrive as one piece of text.",
        "If the stream has it so, mend the writer: it encodes bytes that boto3 encodes again. If only the "
        "capture has it so, decode the capture once.",
        ("shard_id", "sequence_number", *_CAPTURE),
        "SPK-45",
    ),
    Kind(
        "no-records",
        "warning",
        "Nothing to check",
        "There is not one Kinesis record in what was read. That is not the same as a clean stream.",
        "Check that this is the right place, and that the capture wrote something.",
        ("detail",),
        "SPK-21",
    ),
    # -- the shards ----------------------------------------------------------------------------
    Kind(
        "skewed-shard",
        "warning",
        "A shard that gets far more than its share",
        "Of the open shards this one gets more than twice the mean. It reaches its limits while the others "
        "are idle.",
        "If its part of the key space is hot as a whole, split it. If a single key is hot (one slot of the "
        "key space stands out), splitting does not help: spread that key, or let the producer choose keys.",
        _SHARD,
        "HKA-8",
    ),
    Kind(
        "unknown-parent",
        "info",
        "A parent that is no longer listed",
        "The shard came out of one that has expired, so what lay there cannot be told from this listing.",
        "Nothing.",
        ("shard_id", "detail"),
        "SHD-5",
    ),
    Kind(
        "lineage",
        "warning",
        "Shards that do not descend as a stream's do",
        "The listing says something of these shards that the service would not make: two listings of "
        "different streams in one, or a stream made again under its old name.",
        "Take the listing again and compare.",
        ("shard_id", "detail"),
        "LIN-5",
    ),
)

#: Every listed kind by its name, in the order they are shown.
KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _LISTED})


def kind_of(name: str) -> Kind:
    """The kind of that name. A name not listed is one more thing that could not be read: its text says
    what little is known, and it keeps its name."""
    known = KINDS.get(name)
    if known is not None:
        return known
    capture = KINDS["capture"]
    return capture._replace(name=name, title=f"{capture.title}: {name}")


def worst(names: Iterable[str]) -> Severity | None:
    """The worst severity of the kinds named, None of none at all."""
    ranks = [SEVERITIES.index(kind_of(name).severity) for name in names]
    return SEVERITIES[min(ranks)] if ranks else None
