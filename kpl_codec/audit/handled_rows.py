"""Counts rows that consumers have written: which of them are of the audited stream, what they name, and what
of them names nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from ..shards.stream_name import Stream, StreamNameError, stream_of
from .index import Tally, is_number
from .lost_parts import LostPart
from .parquet_reader import HandledRows
from .writers import Member, Origin

_SHARD_ID: Final = re.compile(r"shardId-[0-9]{12}", re.ASCII)
_NO_STREAM_NAME: Final = "rows with a streamName that is no name of a stream"
#: What is wrong with a row, by what `Tally.add` says of it; 0: it names no place.
_WRONG_ROWS: Final = (
    "rows without a shard id, or without a sequence number",
    "rows that name no user record: the sub-sequence number is below 0, or too large. Leave out -1 where it "
    "is a frame as a whole; write 0 where it is a plain record",
    "rows without a sub-sequence number, which name Kinesis records of several user records",
    "rows with the shard id of one shard and the sequence number of another",
)
#: Whose a row is by its stream: the audited one's; so by its name alone; another's; nobody can say.
_OURS, _BY_NAME, _ANOTHER, _NO_STREAM = range(4)


class Streams:
    """Which rows are of the stream that is audited. ``others``: names and ARNs of other streams; ``arns``: of
    this one, and of streams of its name."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.others: set[str] = set()
        self.arns: set[str] = set() if stream.arn is None else {stream.arn}

    def has(self, origin: Origin) -> bool:
        """Whether rows of this origin are of the stream."""
        if origin.stream_arn is not None and origin.stream == self.stream.name:
            self.arns.add(origin.stream_arn)
        if origin.is_of(self.stream):
            return True
        self.others.add(str(origin))
        return False

    def whose(self, text: str) -> int:
        """Whose a row is with this streamName."""
        try:
            stream = stream_of(text)
        except StreamNameError:
            return _NO_STREAM
        if not self.has(Origin(stream.name, stream.arn)):
            return _ANOTHER
        return _OURS if stream.arn is not None else _BY_NAME


def count_handled(
    tally: Tally, streams: Streams, file: str, item: Member | HandledRows
) -> Iterator[LostPart]:
    """Count the rows of a consumer's member or of a table. Gives those that name nothing."""
    if isinstance(item, HandledRows):
        yield from _count_table(tally, streams, file, item)
    # AUD-20: "Rows of another stream MUST be skipped, and reported."
    elif item.origin.side == "handled" and streams.has(item.origin):
        for row in tally.add_rows(item.rows, sure=item.origin.stream_arn is not None):
            number = row.sequence_number if is_number(row.sequence_number) else None
            why = _WRONG_ROWS[3 if number else 0]
            yield LostPart(file, why, shard_id=row.shard_id, sequence_number=number)


def _count_table(tally: Tally, streams: Streams, file: str, table: HandledRows) -> Iterator[LostPart]:
    shard, number, stream = table.shard, table.number, table.stream
    # A cell that is no shard id of Kinesis, and that no ledger has, may mean any shard.
    known = tally.index.codes.keys()
    has_shard = shard.map(lambda text: text in known or bool(_SHARD_ID.fullmatch(text)), False)
    has_number = number.map(is_number, False)
    size = len(table.sub)
    whose = np.full(size, _OURS) if stream is None else stream.map(streams.whose, _OURS)
    named = has_shard & has_number & ((whose == _OURS) | (whose == _BY_NAME))
    rows = np.flatnonzero(named)
    wrong = np.zeros(size, np.int64)
    if len(rows):
        texts = len(number.texts)
        pairs, record = np.unique(shard.codes[rows] * texts + number.codes[rows], return_inverse=True)
        places = [(shard.texts[pair // texts], number.texts[pair % texts]) for pair in pairs.tolist()]
        subs = table.sub[rows]
        wrong[rows] = tally.add(places, record.ravel(), subs, subs, sure=whose[rows] == _OURS)
    nameless = ~named & (whose != _ANOTHER)
    tally.bad += int(np.count_nonzero(nameless))
    # AUD-21: "What cannot be read of a ledger or a table MUST be reported with its file, and the row where it
    # is one; the rest MUST be read, and what it may have named be called unknown, not missing."
    bad = np.flatnonzero(nameless | (wrong > 0))
    facts = np.stack((shard.codes, number.codes, wrong, whose))[:, bad]
    _, at, times = np.unique(facts, axis=1, return_index=True, return_counts=True)
    for row, count in zip(bad[at].tolist(), times.tolist(), strict=True):
        is_nobodys = has_shard[row] and has_number[row] and whose[row] == _NO_STREAM
        yield LostPart(
            file,
            _NO_STREAM_NAME if is_nobodys else _WRONG_ROWS[wrong[row]],
            table.first + row,
            times=count,
            # (What such a row may have named is what of it is legible.)
            shard_id=shard.text(row) if has_shard[row] else None,
            sequence_number=number.text(row) if has_number[row] else None,
        )
