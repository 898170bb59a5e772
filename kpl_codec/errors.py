"""The errors of the core. What is wrong is, for DecodeError the bytes, for EncodeError the caller's user
record, for HashKeyError a text or a number, for ShardMapError a listing of shards, for CaptureError a
captured event. The text of an error is made of its fields; it never shows record data or keys. Errors pickle:
Spark sends them between processes. `place_of`: what a log may say of an exception of a caller's function."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from .base.values import dataclass_transform

if TYPE_CHECKING:
    from typing_extensions import Self


#: Control characters, other ends of lines (0085, 2028, 2029), marks that turn the direction of writing, and
#: lone surrogates.
UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def safe(text: object) -> str:
    """``text`` with U+FFFD for characters that end a line, rewrite a terminal or reverse a line. For every
    text that comes from an event, a stream, a file or AWS, and for all texts of errors."""
    return UNSAFE.sub("\ufffd", str(text))


class OwnText(Exception):
    """An error whose text is this library's own: it repeats no record data and no key."""


@dataclass_transform(kw_only_default=True, eq_default=False)
class KplError(OwnText):
    """Base of all errors here. ``code``: a stable short name; ``requirement``: an id of ``spec/``. The
    annotated attributes of a subclass are its fields: keyword arguments of its constructor, required where
    the class gives no default. Raises TypeError for an unknown field, and for one that is missing."""

    code: str = "error"
    requirement: str | None = None
    #: By code: its requirement, if that differs from the requirement of the class.
    requirements: ClassVar[Mapping[str, str]] = {}
    #: ``text``: what happened, with the names of fields in braces. ``texts``: the same by code, for a class
    #: with several codes.
    text: ClassVar[str] = "{code}"
    texts: ClassVar[Mapping[str, str]] = {}
    #: The fields that say where it happened, each with the words that show it.
    places: ClassVar[Mapping[str, str]] = {}
    #: For people who meet the error: whom it concerns, and what to do.
    concerns: ClassVar[str] = "The caller of this library. Nothing on the stream has changed."
    todo: ClassVar[str]
    #: Whether the text may have several lines: none of its fields comes from an event, a stream or AWS.
    several_lines: ClassVar[bool] = False
    #: Codes of a class whose ``code`` is any str; by default those of its ``texts``.
    codes: ClassVar[tuple[str, ...]] = ()
    _names: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = {name for name, kind in cls.__annotations__.items() if "ClassVar" not in str(kind)}
        cls._names |= own
        cls._required = frozenset(name for name in cls._names if not hasattr(cls, name))
        if "texts" in vars(cls) and "codes" not in vars(cls):
            cls.codes = (*cls.texts,)

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        if not self._required <= fields.keys() <= self._names:
            unknown, missing = sorted(fields.keys() - self._names), sorted(self._required - fields.keys())
            raise TypeError(f"{type(self).__name__}: unknown fields {unknown}, missing fields {missing}")
        if (of_code := self.requirements.get(fields.get("code", self.code))) is not None:
            self.requirement = of_code
        self.__dict__.update(fields)

    @property
    def fields(self) -> dict[str, Any]:
        """The required fields, and those that are not None: a new dict."""
        own = ((name, value) for name, value in vars(self).items() if name in self._names)
        return {name: value for name, value in own if value is not None or name in self._required}

    def describe(self) -> str:
        """The text without the place."""
        values = {name: getattr(self, name, None) for name in ("code", *self._names)}
        return self.texts.get(self.code, self.text).format_map(values)

    def at(self, **fields: Any) -> Self:
        """The same error with these fields, too."""
        return type(self)(**{**self.fields, **fields})

    def __str__(self) -> str:
        values = ((text, getattr(self, name)) for name, text in self.places.items())
        place = ", ".join(text.format(value) for text, value in values if value is not None)
        at = f" (at {place})" if place else ""
        text = f"{self.describe()}{at}" + (f" [{self.requirement}]" if self.requirement else "")
        # LMB-36: "A line of a log or of an error MUST NOT have a character that ends it, or that rewrites a
        # terminal, from an event, a record or an answer of AWS."
        return text if self.several_lines else safe(text)

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.fields.items())
        return f"{type(self).__name__}({inner})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash((type(self), self.code, self.fields.get("offset"), self.fields.get("record_index")))

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self.fields), ()


class DecodeError(KplError, ValueError):
    """The bytes are not a sound aggregated record. ``offset``: where, in bytes from the start of the Kinesis
    record's data. ``record_index``: of the user record, from 0; None if the frame as a whole is wrong.
    ``sequence_number``, ``shard_id``: of the Kinesis record, where `deaggregate` knows them.

        >>> import kpl_codec as kpl
        >>> data = kpl.encode([kpl.UserRecord("customer-1", b"one")])
        >>> try:
        ...     kpl.decode(data[:-1] + b"?")
        ... except kpl.DecodeError as error:
        ...     print(type(error).__name__, error.code, error.offset, error.requirement)
        ChecksumMismatch checksum-mismatch 25 FRM-3
    """

    offset: int | None = None
    record_index: int | None = None
    sequence_number: str | None = None
    shard_id: str | None = None
    requirement: str | None = None
    concerns = "Everybody who deaggregates this Kinesis record; `kpl-codec explain CODE` tells more."
    todo = (
        'Read with the policy "report": it gives every user record that the bytes still hold. Mend the '
        "record's writer, and have it put again the user records that consumers lack."
    )

    places: ClassVar[dict[str, str]] = {
        "offset": "byte {}",
        "record_index": "user record {}",
        "sequence_number": "sequence number {}",
        "shard_id": "{}",
    }


class NotAggregated(DecodeError):
    """No frame: the magic is missing, or the data is too short for a message and a digest. ``disguise``: how
    it was encoded ("base64", ...), if the data is an aggregated record in another form."""

    code = "not-aggregated"
    requirement = "FRM-1"
    length: int
    disguise: str | None = None
    text = (
        "not an aggregated record: its {length} bytes do not begin with f3899ac2, or are too few for a "
        "message and a digest"
    )
    concerns = "Nobody: a plain record is not an error."
    todo = (
        "decode() takes aggregated records only. Ask is_aggregated() first, or use deaggregate(), which "
        "passes plain records through."
    )

    def describe(self) -> str:
        if self.disguise is None:
            return super().describe()
        return f"an aggregated record encoded as {self.disguise}: no consumer opens it"


class ChecksumMismatch(DecodeError):
    """``expected`` (hex): the digest at the end of the frame. ``actual`` (hex): the MD5 of the message.
    ``sound``: bytes of the sound aggregated record with which the data begins; more was put behind it."""

    code = "checksum-mismatch"
    requirement = "FRM-3"
    expected: str
    actual: str
    sound: int | None = None
    text = "the digest is {expected}, but the MD5 of the message is {actual}"
    todo = (
        "Read the record again: `kpl-codec inspect --stream NAME --shard-id ID --sequence-number NUMBER`. If "
        "the stream has it whole, mend what changed the bytes on the way (a proxy, a re-encoding, a cut, "
        "bytes put behind it). Else mend the record's writer, and have it put again what consumers lack."
    )

    def describe(self) -> str:
        behind = "" if self.sound is None else f"; its first {self.sound} bytes are a sound aggregated record"
        return super().describe() + behind


MalformedCode = Literal[
    "truncated",
    "varint-too-long",
    "varint-overflow",
    "field-number",
    "wire-type",
    "stray-end-group",
    "unterminated-group",
    "too-deep",
]


class MalformedMessage(DecodeError):
    """The message breaks the protobuf wire format. ``code`` says how."""

    code: MalformedCode
    requirement = "MSG-1"
    requirements: ClassVar[dict[str, str]] = {
        "varint-too-long": "MSG-2",
        "varint-overflow": "MSG-3",
        "too-deep": "MSG-4",
    }
    text = "malformed message ({code})"
    texts: ClassVar[dict[str, str]] = {
        "truncated": f"{text}: a field goes on behind the end of what holds it",
        "varint-too-long": f"{text}: a number has more than 10 bytes",
        "varint-overflow": f"{text}: a number is above 2^64 - 1",
        "field-number": f"{text}: a field number is not from 1 to 2^29 - 1",
        "wire-type": f"{text}: a field has wire type 6 or 7, which protobuf does not define",
        "stray-end-group": f"{text}: a group ends that did not begin",
        "unterminated-group": f"{text}: a group does not end",
        "too-deep": f"{text}: groups are nested more than 100 deep",
    }


class WrongWireType(DecodeError):
    """``field`` (a name of kpl.proto) has ``wire_type`` where the schema has ``expected``."""

    code = "wrong-wire-type"
    requirement = "MSG-5"
    field: str
    wire_type: int
    expected: int
    text = "field {field} has wire type {wire_type}, but kpl.proto says {expected}"


class MissingField(DecodeError):
    """A required ``field`` is absent."""

    code = "missing-field"
    requirement = "MSG-6"
    field: str
    text = "required field {field} is missing"


class InvalidKey(DecodeError):
    """Entry ``index`` of ``table`` is not a key. ``code``: key-utf-8 or key-too-long."""

    code: Literal["key-utf-8", "key-too-long", "key-unusable"]
    requirement = "MSG-8"
    requirements: ClassVar[dict[str, str]] = {"key-too-long": "MSG-9"}
    table: str
    index: int
    text = "entry {index} of {table} is not a key ({code})"


class InvalidHashKey(DecodeError):
    """Entry ``index`` of the explicit hash key table is not a number from 0 to 2^128 - 1."""

    code = "hash-key"
    requirement = "KEY-3"
    index: int
    text = "entry {index} of explicit_hash_key_table is not a number from 0 to 2^128 - 1"


class IndexOutOfTable(DecodeError):
    """A user record's ``index`` into ``table`` is not below the table's ``size``."""

    code = "index-out-of-table"
    requirement = "MSG-7"
    index: int
    table: str
    size: int
    text = "index {index} is outside {table}, whose length is {size}"


class NoUserRecords(DecodeError):
    """A sound frame and message, but no user record in it."""

    code = "no-user-records"
    requirement = "MSG-10"
    text = "the aggregated record holds no user records"
    todo = "Mend the record's writer, and have its user records put again: they are not on the stream."


class EncodeError(KplError, ValueError):
    """A user record that must not be written. ``field``: the part that is wrong, ``code``: how. ``got``: the
    type, or the number of characters, of that part. ``record_index``: from 0."""

    code: str
    field: str
    requirement: str | None = "ENC-1"
    record_index: int | None = None
    got: str | None = None
    text = "the {field} of a user record cannot be written ({code})"
    texts: ClassVar[dict[str, str]] = {
        "partition-key-type": "the partition key must be str",
        "partition-key-empty": "the partition key is empty: it must have 1 to 256 characters",
        "partition-key-too-long": "the partition key must have at most 256 characters",
        "partition-key-utf-8": "the partition key holds half a surrogate pair, which has no UTF-8 form",
        "explicit-hash-key": "the explicit hash key must be a number from 0 to 2^128 - 1, or that number as "
        "text without sign and leading zeros",
        "data-type": "data must be bytes",
        "tag": "tags must be a tuple of kpl_codec.Tag, whose texts have a UTF-8 form",
        "no-user-records": "an aggregated record needs at least one user record",
        "null": "{field} must not be null",
    }
    todo = "Fix the user record that the error names: a key of 1 to 256 characters, data as bytes."
    places: ClassVar[dict[str, str]] = {"record_index": "user record {}"}

    def describe(self) -> str:
        return super().describe() + ("" if self.got is None else f", got {self.got}")


class AggregateFull(EncodeError):
    """Adding the user record would give ``size`` bytes; ``max_size`` is the limit."""

    code: str = "aggregate-full"
    requirement = "ENC-5"
    size: int
    max_size: int
    text = "the aggregate would have {size} bytes, the limit is {max_size}"
    todo = "Take the aggregate as it is, and begin another with this user record."


class HashKeyError(KplError, ValueError):
    """Not a hash key: a text that is not a decimal number, or a number outside 0 to 2^128 - 1."""

    code: str = "hash-key"
    requirement = "KEY-3"
    reason: str
    text = "invalid hash key: {reason}"
    texts: ClassVar[dict[str, str]] = dict.fromkeys(("outside", "overlap", "exhausted"), "{reason}")
    todo = "Give a decimal number from 0 to 2^128 - 1."


class ShardMapError(KplError, ValueError):
    """A listing of shards that cannot be used. ``code`` says why: contradiction, where it contradicts an
    earlier listing. ``shard_ids``: the shards that are wrong. ``source``: where the listing is from."""

    code: str
    requirement: str | None = "SHD-9"
    requirements: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("empty", "gap", "overlap"), "SHD-2"),
        "duplicate": "SHD-3",
        "cycle": "SHD-6",
        "incomplete": "SHD-7",
        "contradiction": "MAP-7",
    }
    reason: str
    shard_ids: tuple[str, ...]
    source: str | None = None
    text = "invalid listing of shards ({code}): {reason}"
    concerns = "Whoever uses the map: with a gap or an overlap, a hash key may have no shard, or two."
    todo = "List the shards again, all pages: `aws kinesis list-shards --stream-name NAME`."
    codes = ("empty", "incomplete", "malformed", "duplicate", "gap", "overlap", "cycle", "contradiction")

    def describe(self) -> str:
        return (f"{self.source}: " if self.source else "") + super().describe()


class UnknownShard(ShardMapError, KeyError):
    """``shard_id`` is not in the map."""

    code: str = "unknown-shard"
    requirement = "SHD-4"
    shard_id: str
    reason: str = "not in the map"
    text = "shard {shard_id} is {reason}"
    concerns = "The caller of this library. Nothing on the stream has changed."
    todo = (
        "List the shards again, closed ones too, of the stream that the records are from: `kpl-codec "
        "shards list --stream NAME --closed --json`, or kpl_codec.aws.fetch_shard_map."
    )


class CaptureError(KplError, ValueError):
    """A captured event or response that cannot be read. ``code`` says what is wrong, ``field`` where.
    ``position``: number of the record in its source, from 0. ``sequence_number``, ``record_id``: of the
    record, where they could be read. ``offset``: of the JSON document, in bytes. ``hint``: what to do."""

    code: str
    field: str
    requirement: str | None = "CAP-1"
    offset: int | None = None
    position: int | None = None
    sequence_number: str | None = None
    record_id: str | None = None
    hint: str | None = None
    texts: ClassVar[dict[str, str]] = {
        "base64": "is not base64",
        "missing-field": "is missing",
        "wrong-type": "has the wrong type",
        "timestamp": "is not a time that can be read",
        "utf-8": "is not UTF-8",
        "json": "is not JSON",
        "duplicate-member": "has an object with a member twice",
        "unknown-shape": "is not a Kinesis record of a known shape",
        "no-data": "is null (no-data)",
        "not-representable": "has no place in this shape",
        "other-content": "is the name of an earlier record, too, whose keys or data differ",
        "no-data-column": "is missing: Kinesis records have a binary column of that name",
    }
    todo = (
        "Capture the part of the stream again that the error names. `kpl-codec explain capture-CODE`, "
        "with the code of the error, says more."
    )
    codes: ClassVar[tuple[str, ...]] = ("not-representable", "bad-path")

    def describe(self) -> str:
        at = f" (byte {self.offset})" if self.offset is not None else ""
        hint = f": {self.hint}" if self.hint else ""
        return f"{self.field or 'the input'}{at} {super().describe()}{hint}"


def place_of(error: BaseException) -> str:
    """The class of what a caller's function raised, and the file and line of each call to there, the last one
    first. Without its text, which may repeat data or keys, unless that is this library's own."""
    places, trace = list[str](), error.__traceback__
    while trace is not None:
        places.append(f"{trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno}")
        trace = trace.tb_next
    where = f" in {places.pop()}" + "".join(f", from {place}" for place in reversed(places)) if places else ""
    return f"{safe(type(error).__name__)}{f': {error}' if isinstance(error, OwnText) else ''}{where}"
