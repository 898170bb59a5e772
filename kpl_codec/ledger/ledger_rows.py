"""The rows of a ledger, and the line of JSON for each: what became of user records of one Kinesis record.

    {"kind":"delivered","shard":"shardId-000000000000","sequence_number":"4957...","sub_sequence_number":0,
     "user_records":20,"at_ms":1763719200000,"digest":"0123456789abcdef"}

What is not known is "", and the digest then zeros. A row of a queue or of Firehose has a ``record_id``, too;
one of refused or left user records an ``error_code``. Specification: spec/15-audit.md, AUD-1 to AUD-3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final, Literal, Protocol, get_args

from ..compiled import md5
from ..format.frame import looks_aggregated
from ..limits import DIGEST_SIZE, LARGEST_MAX_RECORD_SIZE
from ..values import Value

#: Of rows without a digest.
NO_DIGEST: Final = bytes(8)
#: User records of one Kinesis record at most: the smallest one is six bytes of an aggregate.
MOST_USER_RECORDS: Final = LARGEST_MAX_RECORD_SIZE // 6
#: LIN-1's form: digits, without zeros before them.
SEQUENCE_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,128}", re.ASCII)
#: Characters of a shard id or a record id at most; the latest time of a row, in ms.
_TEXT: Final = 4096
_LATEST: Final = 1 << 62

#: What became of user records: chapter 15.1 has what each means.
RowKind = Literal[
    "delivered", "again", "unanswered", "refused", "left", "handled", "repaired", "before", "aside"
]  # fmt: skip
KINDS: Final[tuple[RowKind, ...]] = get_args(RowKind)
#: Each kind as a number.
CODES: Final[Mapping[str, int]] = {kind: code for code, kind in enumerate(KINDS)}


class Row(Value):
    """``user_records`` of one Kinesis record, from sub-sequence number ``first`` on; 0 of a row "aside": all
    of it, however many.

    ``shard_id``: of refused and left user records the error code that ended them; "" where ``record_id``,
    the id of a record of a queue or of Firehose, is its name. ``sequence_number``: "" where there is none.
    ``digest``: see `digest_of`. ``at``: when they were put (handled), ms since 1970.
    """

    kind: RowKind
    shard_id: str
    sequence_number: str
    user_records: int
    at: int
    digest: bytes = NO_DIGEST
    first: int = 0
    record_id: str = ""


class Notes(Protocol):
    """Takes rows, such as `kpl_codec.audit.Writer`."""

    def note(self, rows: Sequence[Row]) -> None: ...
    def close(self) -> None: ...


class LedgerLike(Protocol):
    """Where rows go: see `kpl_codec.audit.Ledger`."""

    def writer(self, stream: str, side: str) -> Notes: ...
    def handled(self, stream: str, records: Iterable[Any], *, before: bool = False) -> None: ...
    def note(self, stream: str, rows: Sequence[Row]) -> None: ...


def digest_of(partition_key: str, data: bytes) -> bytes:
    """8 bytes that tell Kinesis records apart. Equal keys and data of the user records: equal digests."""
    # AUD-2: "The digest of a Kinesis record MUST be the first 8 bytes of the MD5 in its frame; of one that is
    # no aggregate, of the MD5 of its partition key, a zero byte and its data."
    if looks_aggregated(data):
        return data[-DIGEST_SIZE : 8 - DIGEST_SIZE]
    return md5(b"%s\0%s" % (partition_key.encode(), data))[:8]


def runs(
    kind: RowKind,
    names: Iterable[tuple[str, str, int]],
    at: int,
    digest: bytes = NO_DIGEST,
    record_id: str = "",
) -> list[Row]:
    """Rows of user records, by shard, sequence number and sub-sequence number: a row a run."""
    rows: list[Row] = []
    for shard_id, number, sub in names:
        last = rows[-1] if rows else None
        same = last and (last.shard_id, last.sequence_number) == (shard_id, number)
        if last and same and last.first + last.user_records == sub:
            rows[-1] = last.replace(user_records=last.user_records + 1)
        else:
            rows.append(Row(kind, shard_id, number, 1, at, digest, sub, record_id))
    return rows


def line_of(row: Row) -> str:
    """The row as a line of JSON. (`json.dumps` takes three times as long.)"""
    shard_id, more = row.shard_id, ""
    if row.record_id:
        more = f',"record_id":{quoted(row.record_id)}'
    elif row.kind in ("refused", "left"):
        shard_id, more = "", f',"error_code":{quoted(shard_id)}'
    return (
        f'{{"kind":"{row.kind}","shard":{quoted(shard_id)},"sequence_number":"{row.sequence_number}",'
        f'"sub_sequence_number":{row.first},"user_records":{row.user_records},"at_ms":{row.at},'
        f'"digest":"{row.digest.hex()}"{more}}}'
    )


def row_of(line: Mapping[str, Any]) -> Row | None:
    """The row of a line, its JSON read; None for a line that is no row."""
    texts = [line.get(key, "") for key in ("kind", "shard", "error_code", "record_id", "sequence_number")]
    numbers: list[Any] = [line.get(key) for key in ("user_records", "at_ms", "sub_sequence_number")]
    digest: Any = line.get("digest")
    if not all(type(one) is str for one in (*texts, digest)) or not all(type(one) is int for one in numbers):
        return None
    (kind, shard_id, error_code, record_id, number), (count, at, first) = texts, numbers
    named = len(max(shard_id, error_code, record_id, key=len)) <= _TEXT and kind in KINDS
    numbered = not number or SEQUENCE_NUMBER.fullmatch(number)
    sized = min(count, at, first) >= 0 and first + count <= MOST_USER_RECORDS and at <= _LATEST
    if not (named and numbered and sized and re.fullmatch("[0-9a-f]{16}", digest)):
        return None
    return Row(kind, error_code or shard_id, number, count, at, bytes.fromhex(digest), first, record_id)


#: The lowest and the highest sequence number of each shard; of "" what has no sequence number.
Ranges = Mapping[str, tuple[str, str]]


def ranges_of(rows: Iterable[Row], known: Ranges) -> Ranges:
    """What ``rows``, in the order of shard and sequence number, name, beside what is ``known``."""
    ranges = dict(known)
    for shard_id, some in groupby(rows, lambda row: row.shard_id if row.sequence_number else ""):
        numbers = [row.sequence_number or "0" for row in some]
        # Rows without a shard and those without a number share "", so that these are in no order.
        ends = (*ranges.get(shard_id, ()), *([numbers[0], numbers[-1]] if shard_id else numbers))
        ranges[shard_id] = min(ends, key=int), max(ends, key=int)
    return ranges
