"""The rows of a ledger, and the line of JSON for each. Specification: spec/15-audit.md, AUD-1 to AUD-3."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final, Literal, get_args

from ..compiled import md5
from ..format.frame import looks_aggregated
from ..limits import DIGEST_SIZE, MOST_USER_RECORDS
from ..shards.sequence_numbers import is_sequence_number
from ..values import Value

NO_DIGEST: Final = bytes(8)
# AUD-23: "No line of a ledger in a log MUST be longer than 12,000 bytes."
#: The most characters of a shard id, an error code or a record id; each takes up to six bytes of a line.
_MOST_TEXT: Final = 512
_LATEST_MS: Final = 1 << 62

#: What became of user records; spec/15-audit.md, 15.1, says what each kind means.
RowKind = Literal[
    "delivered", "again", "unanswered", "refused", "left", "handled", "repaired", "before", "aside"
]  # fmt: skip
KINDS: Final[tuple[RowKind, ...]] = get_args(RowKind)


class Row(Value):
    """``user_records``: how many of one Kinesis record the row is about, from sub-sequence number ``first``
    on; in a row "aside" 0 stands for all.

    ``shard_id``: in rows "refused" and "left" the error code that ended the user records; "" where
    ``record_id``, the id of a record of a queue or of Firehose, is its name. ``sequence_number``: "" where
    there is none. ``digest``: see `digest_of`. ``at``: when they were put (handled), ms since 1970.
    """

    kind: RowKind
    shard_id: str
    sequence_number: str
    user_records: int
    at: int
    digest: bytes = NO_DIGEST
    first: int = 0
    record_id: str = ""


def digest_of(partition_key: str, data: bytes) -> bytes:
    """8 bytes that tell Kinesis records apart: digests are equal if the user records' keys and data are."""
    # AUD-2: "The digest of a Kinesis record MUST be the first 8 bytes of the MD5 in its frame; of one that is
    # no aggregate, of the MD5 of its partition key, a zero byte and its data."
    if looks_aggregated(data):
        return data[-DIGEST_SIZE : 8 - DIGEST_SIZE]
    return md5(b"%s\0%s" % (partition_key.encode(), data))[:8]


def runs(names: Iterable[tuple[str, str, int]], row: Row) -> list[Row]:
    """Copies of ``row``, one for each run of consecutive user records. ``names``: shard id, sequence number
    and sub-sequence number of each user record."""
    rows: list[Row] = []
    for name in names:
        last = rows[-1] if rows else None
        if last and name == (last.shard_id, last.sequence_number, last.first + last.user_records):
            rows[-1] = last.replace(user_records=last.user_records + 1)
        else:
            rows.append(row.replace(shard_id=name[0], sequence_number=name[1], first=name[2]))
    return rows


def line_of(row: Row) -> str:
    """The row as a line of JSON. (`json.dumps` takes three times as long.)"""
    shard_id, more = row.shard_id, ""
    if row.record_id:
        more = f',"record_id":{quoted(row.record_id)}'
    elif row.kind in ("refused", "left"):
        shard_id, more = "", f',"error_code":{quoted(shard_id[:_MOST_TEXT])}'
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
    named = len(max(shard_id, error_code, record_id, key=len)) <= _MOST_TEXT and kind in KINDS
    numbered = not number or is_sequence_number(number)
    sized = min(count, at, first) >= 0 and first + count <= MOST_USER_RECORDS and at <= _LATEST_MS
    if not (named and numbered and sized and re.fullmatch("[0-9a-f]{16}", digest)):
        return None
    return Row(kind, error_code or shard_id, number, count, at, bytes.fromhex(digest), first, record_id)
