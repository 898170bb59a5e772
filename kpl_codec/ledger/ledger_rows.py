"""What a ledger says of Kinesis records: rows, and a line of JSON for each.

    {"kind":"delivered","shard":"shardId-000000000000","sequence_number":"4957...","sub_sequence_number":0,
     "user_records":20,"at_ms":1763719200000,"digest":"0123456789abcdef"}

Of refused and left user records ``error_code`` stands in place of the shard; of what a queue or Firehose
gives, ``record_id`` in place of shard and sequence number. Where lines are kept: `kpl_codec.ledger.ledger`.
Specification: spec/15-audit.md, AUD-1 to AUD-3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
#: The latest time of a row, in ms.
LATEST: Final = 1 << 62
_TEXT: Final = 4096
_DIGEST: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)

#: What became of user records:
#:
#: * delivered: they are in the Kinesis record, and their producer was told so;
#: * again: they are in the Kinesis record, and their producer sends them again (misplaced);
#: * unanswered: they may be in a Kinesis record of unknown number, and are sent again;
#: * refused: they are not on the stream, and their caller was told so;
#: * left: their caller was told that they are not delivered, and they may be stored;
#: * handled: a consumer has handled them;
#: * repaired: they are copies that ``kpl-codec repair`` has put;
#: * before: a consumer has handled them in an earlier delivery, and not again;
#: * aside: a consumer could not handle them, and its poison hook took them.
RowKind = Literal[
    "delivered", "again", "unanswered", "refused", "left", "handled", "repaired", "before", "aside"
]  # fmt: skip
KINDS: Final[tuple[RowKind, ...]] = get_args(RowKind)
#: Each kind as a number.
CODES: Final[Mapping[str, int]] = {kind: code for code, kind in enumerate(KINDS)}


class Row(Value):
    """``user_records`` of one Kinesis record, from sub-sequence number ``first`` on; 0 of a row "aside": all
    of it, however many.

    ``shard_id``: of refused and left user records the code that ended them; "" where ``record_id``, what a
    queue or Firehose calls the record, is its name. ``sequence_number``: "" where there is none. ``digest``:
    see `digest_of`. ``at``: when they were put (handled), ms since 1970.
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
        if (
            last
            and (last.shard_id, last.sequence_number) == (shard_id, number)
            and last.first + last.user_records == sub
        ):
            rows[-1] = last.replace(user_records=last.user_records + 1)
        else:
            rows.append(Row(kind, shard_id, number, 1, at, digest, sub, record_id))
    return rows


def line_of(row: Row) -> str:
    """The row as a line of JSON, as `json.dumps` writes it, but quicker."""
    if row.record_id:
        name = f'"record_id":{quoted(row.record_id)}'
    elif row.kind in ("refused", "left"):
        name = f'"error_code":{quoted(row.shard_id)}'
    else:
        number = f'"{row.sequence_number}"' if row.sequence_number else "null"
        name = f'"shard":{quoted(row.shard_id)},"sequence_number":{number}'
    end = "" if row.digest == NO_DIGEST else f',"digest":"{row.digest.hex()}"'
    return (
        f'{{"kind":"{row.kind}",{name},"sub_sequence_number":{row.first},"user_records":{row.user_records},'
        f'"at_ms":{row.at}{end}}}'
    )


def row_of(facts: Mapping[str, Any]) -> Row | None:
    """The row that a line says; None for what is none."""
    kind, shard_id = facts.get("kind"), facts.get("shard", facts.get("error_code", ""))
    number, record_id = facts.get("sequence_number") or "", facts.get("record_id", "")
    digest = facts.get("digest", "0" * 16)
    numbers: list[Any] = [facts.get(key) for key in ("user_records", "at_ms", "sub_sequence_number")]
    texts = (kind, shard_id, number, record_id, digest)
    if not (all(type(text) is str for text in texts) and all(type(one) is int for one in numbers)):
        return None
    count, at, first = numbers
    if (
        kind not in KINDS
        or max(len(shard_id), len(record_id)) > _TEXT
        or (number and not SEQUENCE_NUMBER.fullmatch(number))
        or not _DIGEST.fullmatch(digest)
        or min(count, at, first) < 0
        or first + count > MOST_USER_RECORDS
        or at > LATEST
    ):
        return None
    return Row(kind, shard_id, number, count, at, bytes.fromhex(digest), first, record_id)


#: The lowest and the highest sequence number of each shard; of "" what has no sequence number.
Ranges = Mapping[str, tuple[str, str]]


def ranges_of(rows: Iterable[Row], known: Ranges) -> Ranges:
    """What rows name, beside what is ``known``."""
    by_shard: dict[str, set[str]] = {shard_id: set(ends) for shard_id, ends in known.items()}
    for row in rows:
        if row.record_id:
            by_shard[""] = {"0"}
        elif row.sequence_number:
            by_shard.setdefault(row.shard_id, set()).add(row.sequence_number)
    found = {}
    for shard_id, numbers in by_shard.items():
        order = int if len(set(map(len, numbers))) > 1 else None  # the order of text is quicker
        found[shard_id] = min(numbers, key=order), max(numbers, key=order)
    return found
