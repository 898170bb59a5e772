"""The rows of a ledger, and the line of JSON for each. Specification: spec/15-audit.md, AUD-1 to AUD-3."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final, Literal, get_args

from ..base.compiled import md5
from ..base.values import KW_ONLY, Value
from ..format.frame import looks_aggregated
from ..format.limits import DIGEST_SIZE, MOST_USER_RECORDS
from ..shards.sequence_numbers import is_sequence_number

NO_DIGEST: Final = bytes(8)
# AUD-23: "No line of a ledger in a log MUST be longer than 12,000 bytes."
#: The most characters of a shard id or an error code; each takes up to six bytes of a line.
_MOST_TEXT: Final = 512
_LATEST_MS: Final = 1 << 62

#: What became of user records; spec/15-audit.md, 15.1, says what each kind means.
RowKind = Literal["delivered", "again", "unanswered", "refused", "left", "handled", "before", "aside"]
KINDS: Final[tuple[RowKind, ...]] = get_args(RowKind)
#: Kinds with an error code in place of a shard id; kinds that need a name.
_CODED: Final = ("refused", "left")
_NAMED: Final = ("delivered", "again", "handled", "before", "aside")


class Row(Value):
    """``user_records``: how many of one Kinesis record the row is about, from sub-sequence number ``first``
    on; in a row "aside" 0 stands for all.

    ``shard_id``: in rows "refused" and "left" the error code that ended the user records.
    ``sequence_number``: "" where there is none. ``digest``: see `digest_of`. ``at``: when they were put
    (handled), ms since 1970.
    """

    kind: RowKind
    shard_id: str
    _: KW_ONLY
    sequence_number: str
    user_records: int
    at: int
    digest: bytes = NO_DIGEST
    first: int = 0


def digest_of(partition_key: str, data: bytes) -> bytes:
    """8 bytes that tell Kinesis records apart: digests are equal if the user records' keys and data are."""
    # AUD-2: "The digest of a Kinesis record MUST be the first 8 bytes of the MD5 in its frame; of one that is
    # no aggregate, of the MD5 of its partition key, a zero byte and its data."
    if looks_aggregated(data):
        return data[-DIGEST_SIZE : 8 - DIGEST_SIZE]
    return md5(b"%s\0%s" % (partition_key.encode(), data))[:8]


def runs(names: Iterable[tuple[str, str, int]], row: Row) -> list[Row]:
    """Copies of ``row``, one for each run of consecutive user records. ``names``: shard id, sequence number
    and sub-sequence number of each user record; one below 0 is of a warning, which is no user record."""
    rows: list[Row] = []
    for name in (name for name in names if name[2] >= 0):
        last = rows[-1] if rows else None
        if last and name == (last.shard_id, last.sequence_number, last.first + last.user_records):
            rows[-1] = last.replace(user_records=last.user_records + 1)
        else:
            rows.append(row.replace(shard_id=name[0], sequence_number=name[1], first=name[2]))
    return rows


def line_of(row: Row) -> str:
    """The row as a line of JSON. (`json.dumps` takes three times as long.)"""
    shard_id, more = row.shard_id, ""
    if row.kind in _CODED:
        shard_id, more = "", f',"error_code":{quoted(shard_id[:_MOST_TEXT])}'
    return (
        f'{{"kind":"{row.kind}","shard":{quoted(shard_id)},"sequence_number":"{row.sequence_number}",'
        f'"sub_sequence_number":{row.first},"user_records":{row.user_records},"at_ms":{row.at},'
        f'"digest":"{row.digest.hex()}"{more}}}'
    )


def is_unicode(*texts: str) -> bool:
    """Whether nothing in the texts is half of a surrogate pair."""
    return all(text.isascii() or text.encode("utf-8", "replace").decode() == text for text in texts)


def check_row(row: Row) -> None:
    """Raises TypeError or ValueError for a row that no ledger can have."""
    texts = row.kind, row.shard_id, row.sequence_number
    numbers = row.user_records, row.at, row.first
    if not all(type(one) is str for one in texts) or not all(type(one) is int for one in numbers):
        kinds = ", ".join(type(one).__name__ for one in (*texts, *numbers))
        raise TypeError(f"a row of a ledger has 3 values of type str and 3 of type int, not {kinds}")
    if row.kind not in KINDS:
        raise ValueError(f"no kind of a ledger's row: {row.kind[:40]!r}; the kinds are {', '.join(KINDS)}")
    if not is_unicode(row.shard_id):
        raise ValueError("a row has half of a surrogate pair, which nothing can print or write")
    if row.sequence_number and not is_sequence_number(row.sequence_number):
        raise ValueError("a row's sequence number is none: give it as the service wrote it")
    if row.kind in _NAMED and not (row.shard_id and row.sequence_number):
        raise ValueError(f"a row of kind {row.kind} needs a shard id and a sequence number")
    if len(row.shard_id) > _MOST_TEXT and row.kind not in _CODED:
        raise ValueError(f"a row's shard id has more than {_MOST_TEXT} characters")
    is_sized = min(numbers) >= 0 and row.first + row.user_records <= MOST_USER_RECORDS
    if not is_sized or row.at > _LATEST_MS:
        raise ValueError("a row has a number that no Kinesis record or clock can give")
    if type(row.digest) is not bytes or len(row.digest) != DIGEST_SIZE // 2:
        raise ValueError("a row's digest has 8 bytes")


def row_of(line: Mapping[str, Any]) -> Row | None:
    """The row of a line, its JSON read; None for a line that is no row."""
    get: Callable[..., Any] = line.get
    digest = get("digest")
    if type(digest) is not str or not re.fullmatch("[0-9a-f]{16}", digest):
        return None
    shard_id = get("error_code", "") or get("shard", "")
    row = Row(
        get("kind"),
        shard_id,
        sequence_number=get("sequence_number", ""),
        user_records=get("user_records"),
        at=get("at_ms"),
        digest=bytes.fromhex(digest),
        first=get("sub_sequence_number"),
    )
    try:
        check_row(row)
    except (TypeError, ValueError):
        return None
    return row if len(shard_id) <= _MOST_TEXT and type(get("shard", "")) is str else None
