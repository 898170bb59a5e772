"""What a ledger says of Kinesis records, and the bytes it is kept in.

A writer's segments, each a row of chunks. Only a segment with its end mark is whole:

    segment 0   H B B B E        E: this segment is whole, and whether there are more
    segment 1   H B B ...        no end mark: whatever came after the last whole block is unknown

    chunk   | KPL! | kind | index | length | payload | crc32 |     numbers: big-endian, 4 bytes; kind: 1
    B       | rows | length | columns, compressed | digests, 8 bytes a row |

In a block the rows are in the order of shard and sequence number; of each number the difference to the one
before is kept, the bytes of equal weight together. So most of a row is its digest.
Specification: spec/15-audit.md, AUD-1 to AUD-5.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol, get_args

from .errors import KplError
from .format.frame import looks_aggregated
from .format.md5 import md5
from .limits import DIGEST_SIZE

_MAGIC: Final = b"KPL!"
_HEAD: Final = struct.Struct(">4scII")
_CRC: Final = struct.Struct(">I")
_BLOCK: Final = struct.Struct(">II")
#: Of rows without a digest.
NO_DIGEST: Final = bytes(8)
#: The largest chunk that is read: a length from a broken file must not exhaust the memory.
_LARGEST: Final = 1 << 28


#: What became of user records:
#:
#: * delivered: they are in the Kinesis record, and their producer was told so;
#: * again: they are in the Kinesis record, and their producer sends them again (misplaced);
#: * unanswered: they may be in a Kinesis record of unknown number, and are sent again;
#: * refused: they are not on the stream, and their caller was told so;
#: * left: their caller was told that they are not delivered, and they may be stored;
#: * handled: a consumer has handled them;
#: * repaired: they are copies that ``kpl-codec repair`` has put;
#: * before: a consumer has handled them in an earlier delivery, and not again.
Kind = Literal["delivered", "again", "unanswered", "refused", "left", "handled", "repaired", "before"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
#: Each kind as a number, as in a block.
CODES: Final[Mapping[str, int]] = {kind: code for code, kind in enumerate(KINDS)}


class Row(NamedTuple):
    """``user_records`` of one Kinesis record, from sub-sequence number ``first`` on.

    ``shard_id``: of refused and left user records the code that ended them. ``sequence_number``: "" where
    there is none. ``digest``: see `digest_of`. ``at``: when they were put (handled), ms since 1970.
    """

    kind: Kind
    shard_id: str
    sequence_number: str
    user_records: int
    at: int
    digest: bytes = NO_DIGEST
    first: int = 0


class Notes(Protocol):
    """Takes rows, such as `kpl_codec.audit.Writer`."""

    def note(self, rows: Sequence[Row]) -> None:
        """Rows that happened just now."""

    def close(self) -> None:
        """There will be no more."""


class Ledger(Protocol):
    """Where rows go, such as `kpl_codec.audit.Ledger`."""

    def writer(self, stream: str, side: str) -> Notes:
        """Of a producer ("produced") or a consumer ("handled") of ``stream``."""

    def handled(self, stream: str, records: Iterable[Handled], *, before: bool = False) -> None:
        """A consumer of ``stream`` has handled user records."""


class Handled(Protocol):
    """What a user record's name is made of."""

    @property
    def shard_id(self) -> str | None: ...
    @property
    def sequence_number(self) -> str | None: ...
    @property
    def sub_sequence_number(self) -> int: ...


def digest_of(partition_key: str, data: bytes) -> bytes:
    """8 bytes that tell Kinesis records apart. Equal keys and data of the user records: equal digests."""
    # AUD-2: "The digest of a Kinesis record MUST be the first 8 bytes of the MD5 in its frame; of one that is
    # no aggregate, of the MD5 of its partition key, a zero byte and its data."
    if looks_aggregated(data):
        return data[-DIGEST_SIZE : 8 - DIGEST_SIZE]
    return md5(b"%s\0%s" % (partition_key.encode(), data))[:8]


class LedgerError(KplError, ValueError):
    """A part of a ledger that is not whole. ``reason`` says how, ``offset`` where, in bytes."""

    code = "ledger-damaged"
    requirement = "AUD-3"
    offset: int
    reason: str
    text = "a ledger is damaged at byte {offset}: {reason}"
    concerns = "Whoever audits: what the part said is unknown."
    todo = (
        "Copy the file again from where it was written. If it is damaged there too, the audit says unknown."
    )


def chunk(kind: bytes, index: int, payload: bytes) -> bytes:
    """One chunk of a segment: the ``index``-th, from 0."""
    head = _HEAD.pack(_MAGIC, kind, index, len(payload))
    # AUD-3: "Each chunk of a segment MUST carry its index and a checksum; a segment is whole only with all
    # chunks from 0 to its end mark."
    return b"".join((head, payload, _CRC.pack(zlib.crc32(payload, zlib.crc32(head)))))


def chunks(data: bytes) -> Iterator[tuple[bytes, int, bytes] | LedgerError]:
    """Kind, index and payload of each whole chunk; an error for each part between that is none."""
    at = 0
    while at < len(data):
        if len(data) - at >= _HEAD.size and data.startswith(_MAGIC, at):
            _, kind, index, length = _HEAD.unpack_from(data, at)
            end = at + _HEAD.size + length
            fits = length <= _LARGEST and end + _CRC.size <= len(data)
            if fits and _CRC.unpack_from(data, end)[0] == zlib.crc32(data[at:end]):
                yield kind, index, data[at + _HEAD.size : end]
                at = end + _CRC.size
                continue
        after = data.find(_MAGIC, at + 1)
        yield LedgerError(offset=at, reason="cut off" if after < 0 else "a chunk that is not whole")
        at = len(data) if after < 0 else after


def block(rows: Sequence[Row]) -> bytes:
    """The payload of a block."""
    ordered = sorted(
        (len(row.sequence_number), row.sequence_number, number) for number, row in enumerate(rows)
    )
    by_shard: dict[str, list[int]] = {}
    for _, _, number in ordered:
        by_shard.setdefault(rows[number].shard_id, []).append(number)
    order = [number for numbers in by_shard.values() for number in numbers]
    steps: list[int] = []
    for numbers in by_shard.values():
        before = 0
        for number in numbers:
            value = int(rows[number].sequence_number or 0)
            steps.append(value - before)
            before = value
    times = [rows[number].at for number in order]
    columns = [
        json.dumps([[shard, len(numbers)] for shard, numbers in by_shard.items()]).encode(),
        bytes([CODES[rows[number].kind] for number in order]),
        _column(steps),
        _column([rows[number].user_records for number in order]),
        _column([rows[number].first for number in order]),
        _column([_zigzag(now - before) for before, now in zip([0, *times][:-1], times, strict=True)]),
    ]
    packed = zlib.compress(b"".join(len(column).to_bytes(4, "big") + column for column in columns), 6)
    digests = b"".join([rows[number].digest for number in order])
    return b"".join((_BLOCK.pack(len(rows), len(packed)), packed, digests))


def rows_of(payload: bytes) -> list[Row]:
    """The rows of a block. Raises LedgerError for what is none."""
    try:
        count, length = _BLOCK.unpack_from(payload)
        unpacked = zlib.decompressobj()
        columns, at = [], 0
        packed = unpacked.decompress(payload[_BLOCK.size : _BLOCK.size + length], _LARGEST)
        while at < len(packed):
            size = int.from_bytes(packed[at : at + 4], "big")
            columns.append(packed[at + 4 : at + 4 + size])
            at += 4 + size
        shards, kinds, steps, counts, firsts, times = columns
        rows, offset, digests, now = [], 0, payload[_BLOCK.size + length :], 0
        values = (_values(column, count) for column in (steps, counts, firsts, times))
        numbers = zip(kinds, *values, strict=True)
        for shard, run in json.loads(shards):
            value = 0
            for _ in range(run):
                kind, step, user_records, first, time = next(numbers)
                value, now = value + step, now + _unzigzag(time)
                digest = digests[offset : offset + 8]
                rows.append(
                    Row(KINDS[kind], shard, str(value) if value else "", user_records, now, digest, first)
                )
                offset += 8
        if len(rows) != count or offset != len(digests):
            raise ValueError("the columns have different lengths")
    except (
        ValueError,
        TypeError,
        KeyError,
        StopIteration,
        RecursionError,
        struct.error,
        zlib.error,
    ) as error:
        raise LedgerError(offset=0, reason=f"a block that cannot be read ({type(error).__name__})") from None
    return rows


#: The lowest and the highest sequence number of each shard.
Ranges = Mapping[str, tuple[str, str]]


def header(writer: str, segment: int, stream: str, side: str, before: Ranges) -> bytes:
    """The first chunk of a segment. ``side``: produced or handled. ``before``: what the one before names."""
    # AUD-4: "The header of a segment MUST say what the segment before names, its end mark what it names
    # itself: so what was lost is known to lie there."
    facts = {"writer": writer, "segment": segment, "stream": stream, "side": side, "before": before}
    return chunk(b"H", 0, json.dumps(facts).encode())


def end_mark(index: int, ranges: Ranges, *, last: bool, follows: bool = True, lost: int = 0) -> bytes:
    """The last chunk of a segment. ``last``: of its writer. ``follows``: the next segment's header is stored
    at once. ``lost``: rows that could not be written."""
    facts = {"last": last, "next": follows and not last, "lost": lost, "ranges": ranges}
    return chunk(b"E", index, json.dumps(facts).encode())


def ranges_of(rows: Sequence[Row], known: Ranges) -> Ranges:
    """What rows name, beside what is ``known``."""
    found = dict(known)
    by_shard: dict[str, list[str]] = {}
    for row in rows:
        if row.sequence_number:
            by_shard.setdefault(row.shard_id, []).append(row.sequence_number)
    for shard_id, numbers in by_shard.items():
        numbers += found.get(shard_id, ())
        longest = max(map(len, numbers))
        if min(map(len, numbers)) == longest:  # then the order of text is that of numbers
            found[shard_id] = min(numbers), max(numbers)
        else:
            found[shard_id] = min(numbers, key=_size), max(numbers, key=_size)
    return found


def _size(number: str) -> tuple[int, str]:
    return len(number), number


def _zigzag(value: int) -> int:
    return value * 2 if value >= 0 else -value * 2 - 1


def _unzigzag(value: int) -> int:
    return value // 2 if value % 2 == 0 else -(value + 1) // 2


def _column(values: Sequence[int]) -> bytes:
    """Numbers of 0 or more, their bytes of equal weight together."""
    width = max(values, default=0).bit_length() // 8 + 1
    if width == 1:
        return b"\x01" + bytes(values)
    flat = b"".join([value.to_bytes(width, "big") for value in values])
    return bytes([width]) + b"".join([flat[at::width] for at in range(width)])


def _values(column: bytes, count: int) -> list[int]:
    width = column[0]
    if len(column) != 1 + width * count:
        raise ValueError("a column of another length")
    flat = bytearray(width * count)
    for at in range(width):
        flat[at::width] = column[1 + at * count : 1 + (at + 1) * count]
    return [int.from_bytes(flat[at : at + width], "big") for at in range(0, len(flat), width)]
