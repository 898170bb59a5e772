"""What a ledger says of Kinesis records, and the bytes it is kept in.

A writer's segments, each a row of chunks. Only a segment with its end mark is whole:

    segment 0   H B B B E        E: this segment is whole, and whether there are more
    segment 1   H B B ...        no end mark: whatever came after the last whole block is unknown

    chunk   | KPL! | kind | index | length | payload | crc32 |     numbers: big-endian, 4 bytes; kind: 1
    B       | length | columns as JSON, compressed | digests, 8 bytes a row |

In a block the rows are in the order of shard and sequence number, and of each number the difference to the
one before is kept. So most of a row is its digest.
Specification: spec/15-audit.md, AUD-1 to AUD-5.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, get_args

from .compiled import md5
from .format.frame import looks_aggregated
from .limits import DIGEST_SIZE
from .values import Value

_MAGIC: Final = b"KPL!"
_HEAD: Final = struct.Struct(">4scII")
_LENGTH: Final = struct.Struct(">I")
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


class Row(Value):
    """``user_records`` of one Kinesis record, from sub-sequence number ``first`` on.

    ``shard_id``: of refused and left user records the code that ended them; of a queue's records "".
    ``sequence_number``: "" where there is none; of a queue's records `queue_number`. ``digest``: see
    `digest_of`. ``at``: when they were put (handled), ms since 1970.
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

    def note(self, rows: Sequence[Row]) -> None: ...
    def close(self) -> None: ...


class Ledger(Protocol):
    """Where rows go: see `kpl_codec.audit.Ledger`."""

    def writer(self, stream: str, side: str) -> Notes: ...
    def handled(self, stream: str, records: Iterable[Any], *, before: bool = False) -> None: ...


def digest_of(partition_key: str, data: bytes) -> bytes:
    """8 bytes that tell Kinesis records apart. Equal keys and data of the user records: equal digests."""
    # AUD-2: "The digest of a Kinesis record MUST be the first 8 bytes of the MD5 in its frame; of one that is
    # no aggregate, of the MD5 of its partition key, a zero byte and its data."
    if looks_aggregated(data):
        return data[-DIGEST_SIZE : 8 - DIGEST_SIZE]
    return md5(b"%s\0%s" % (partition_key.encode(), data))[:8]


def queue_number(record_id: str) -> str:
    """What stands for the sequence number of a queue's record, which has none."""
    return str(int.from_bytes(md5(record_id.encode())[:8], "big"))


def runs(kind: Kind, names: Iterable[tuple[str, str, int]], at: int, digest: bytes = NO_DIGEST) -> list[Row]:
    """Rows of user records, by shard, sequence number and sub-sequence number: a row a run."""
    rows: list[Row] = []
    for shard_id, number, sub in names:
        last = rows[-1] if rows else None
        if (
            last
            and (last.shard_id, last.sequence_number) == (shard_id, number)
            and last.first + last.user_records == sub
        ):
            rows[-1] = last.replace(user_records=last.user_records + 1)
        else:
            rows.append(Row(kind, shard_id, number, 1, at, digest, sub))
    return rows


def chunk(kind: bytes, index: int, payload: bytes) -> bytes:
    """One chunk of a segment: the ``index``-th, from 0."""
    head = _HEAD.pack(_MAGIC, kind, index, len(payload))
    # AUD-3: "Each chunk of a segment MUST carry its index and a checksum; a segment is whole only with all
    # chunks from 0 to its end mark."
    return b"".join((head, payload, _LENGTH.pack(zlib.crc32(payload, zlib.crc32(head)))))


def chunks(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """Kind, index and payload of each whole chunk; an end mark tells which are lacking."""
    at = data.find(_MAGIC)
    while at >= 0:
        if len(data) - at >= _HEAD.size:
            _, kind, index, length = _HEAD.unpack_from(data, at)
            end = at + _HEAD.size + length
            fits = length <= _LARGEST and end + _LENGTH.size <= len(data)
            if fits and _LENGTH.unpack_from(data, end)[0] == zlib.crc32(data[at:end]):
                yield kind, index, data[at + _HEAD.size : end]
                at = end + _LENGTH.size - 1
        at = data.find(_MAGIC, at + 1)


def block(rows: Sequence[Row]) -> bytes:
    shards: list[str | None] = []
    steps, times, shard, value, now = [], [], None, 0, 0
    rows = sorted(rows, key=lambda row: (row.shard_id, len(row.sequence_number), row.sequence_number))
    for row in rows:
        if row.shard_id != shard:
            shard, value = row.shard_id, 0
            shards.append(shard)
        else:
            shards.append(None)
        number = int(row.sequence_number or 0)
        steps.append(f"{number - value:x}")
        times.append(row.at - now)
        value, now = number, row.at
    kinds, counts = [CODES[row.kind] for row in rows], [row.user_records for row in rows]
    columns = (kinds, shards, steps, counts, [row.first for row in rows], times)
    packed = zlib.compress(json.dumps(columns, separators=(",", ":")).encode())
    return b"".join((_LENGTH.pack(len(packed)), packed, *[row.digest for row in rows]))


def rows_of(payload: bytes) -> list[Row] | None:
    """The rows of a block; None for what is none."""
    rows: list[Row] = []
    try:
        end = _LENGTH.size + _LENGTH.unpack_from(payload)[0]
        packed, digests = payload[_LENGTH.size : end], payload[end:]
        columns = json.loads(zlib.decompressobj().decompress(packed, _LARGEST))
        shard, value, now, at = "", 0, 0, 0
        for kind, begun, step, count, first, time in zip(*columns, strict=True):
            if begun is not None:
                shard, value = begun, 0
            value, now = value + int(step, 16), now + time
            number = str(value) if value else ""
            rows.append(Row(KINDS[kind], shard, number, count, now, digests[at : at + 8], first))
            at += 8
        if at != len(digests):
            return None  # another number of digests
    except (ValueError, TypeError, LookupError, RecursionError, struct.error, zlib.error):
        return None
    return rows


#: The lowest and the highest sequence number of each shard.
Ranges = Mapping[str, tuple[str, str]]


def ranges_of(rows: Iterable[Row], known: Ranges) -> Ranges:
    """What rows name, beside what is ``known``."""
    by_shard: dict[str, set[str]] = {shard_id: set(ends) for shard_id, ends in known.items()}
    for row in rows:
        if row.sequence_number:
            by_shard.setdefault(row.shard_id, set()).add(row.sequence_number)
    found = {}
    for shard_id, numbers in by_shard.items():
        order = int if len(set(map(len, numbers))) > 1 else None  # the order of text is quicker
        found[shard_id] = min(numbers, key=order), max(numbers, key=order)
    return found
