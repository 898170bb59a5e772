"""Reads a whole stream, some of its shards, or one record.

    for record in read_stream(client, "orders"): ...                 # from the oldest to now
    for record in read_stream(client, "orders", follow=True): ...    # and on, without end

It is not a consumer library: it has no leases and no checkpoints. It gives each record once, in the order of
its shard, parents before children. `kpl_codec.aws.cursor` makes the calls and retries them. The same for
asyncio: `kpl_codec.aws.aio`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from ..errors import UnknownShard
from ..format.records import KinesisRecord, record_from_response
from ..shards.sequence_numbers import SequenceNumberError, parse_sequence_number
from ..shards.starting_position import LATEST, TRIM_HORIZON, StartingPosition, at_record, at_time
from .calls import async_sleep, sync_function, sync_generator
from .cursor import Pace, ShardCursor
from .list_shards import async_fetch_lineage

#: Where to start: TRIM_HORIZON, LATEST, a sequence number (that record is read too), or an aware time.
Start = str | datetime

#: Seconds between two calls: a shard allows 5 GetRecords calls a second to all its consumers together.
POLL_INTERVAL = 0.2
#: Seconds for which a failing call is tried again.
PATIENCE = 60.0
#: So many shards are read side by side, unless a stream is followed: an iterator that has to wait for the
#: others for five minutes expires.
_MOST_CURSORS = 100


def position_of(start: Start) -> StartingPosition:
    """Raises ValueError for a text that is no place."""
    if isinstance(start, datetime):
        return at_time(round(start.timestamp() * 1000))
    if start == "TRIM_HORIZON":
        return TRIM_HORIZON
    if start == "LATEST":
        return LATEST
    try:
        parse_sequence_number(start)
    except SequenceNumberError:
        choices = "TRIM_HORIZON, LATEST, a sequence number, or an aware datetime"
        behind = " (nothing is behind the KCL's SHARD_END)" if start.upper() == "SHARD_END" else ""
        raise ValueError(f"start {start[:60]!r}: {choices}{behind}") from None
    return at_record(start)


async def async_read_stream(
    client: Any,
    stream: str,
    *,
    start: Start = "TRIM_HORIZON",
    follow: bool = False,
    shard_ids: Collection[str] | None = None,
    poll_interval: float = POLL_INTERVAL,
    patience: float = PATIENCE,
    sleep: Callable[[float], object] = async_sleep,
) -> AsyncGenerator[KinesisRecord, None]:
    """The Kinesis records of all shards in turn, each shard after its parents.

    ``start``: where the shards of now begin; later ones are read from their first record. A sequence number
    is of one shard: give ``shard_ids`` with it. ``follow``: wait for new records, until all the shards are
    closed; else each shard is read to its tip. ``shard_ids``: these shards only. ``poll_interval``: seconds
    between two calls on a shard; ``patience``: seconds for which a failing call is retried.
    Raises StreamUnavailable, ValueError for another ``start``, and UnknownShard for one of ``shard_ids`` that
    the stream does not list.
    """
    place = position_of(start)
    shard_ids_before: set[str] = set()
    cursors: dict[str, ShardCursor] = {}  # of each shard that is to be read
    while True:
        lineage = await async_fetch_lineage(client, stream, sleep=sleep)
        for shard_id in shard_ids or ():
            if not shard_ids_before and shard_id not in lineage:
                raise UnknownShard(shard_id=shard_id, shard_ids=(shard_id,))
        for shard_id, shard in lineage.items():
            is_new = shard_id not in shard_ids_before and (shard_ids is None or shard_id in shard_ids)
            if is_new and (shard.open or place is not LATEST):  # a closed shard has no records after LATEST
                pace = Pace(1 / poll_interval, None)
                cursors[shard_id] = ShardCursor(
                    client, stream, shard_id, place, pace=pace, patience=patience, sleep=sleep
                )
        shard_ids_before.update(lineage)
        place = TRIM_HORIZON
        # Of a shard that was read to its tip, and has closed since, the rest is read, too.
        open_still = {shard_id for shard_id in cursors if shard_id not in lineage or lineage[shard_id].open}
        unread = {
            shard_id: cursor
            for shard_id, cursor in cursors.items()
            if not (cursor.ended or (not follow and cursor.at_tip and shard_id in open_still))
        }
        turns = [
            cursor
            for shard_id, cursor in unread.items()
            if not any(parent.shard_id in unread for parent in lineage.parents(shard_id))
        ]
        if not turns:
            return
        one_is_done = False  # then children may begin: also those of a shard that was closed meanwhile
        while not one_is_done:
            for cursor in turns if follow else turns[:_MOST_CURSORS]:
                page = await cursor.read()
                for record in page.records:
                    yield record_from_response(record, cursor.shard_id)
                one_is_done |= page.ended or (not follow and cursor.at_tip)


read_stream = sync_generator(async_read_stream)


async def async_read_record(
    client: Any,
    stream: str,
    shard_id: str,
    sequence_number: str,
    *,
    patience: float = PATIENCE,
    sleep: Callable[[float], object] = async_sleep,
) -> KinesisRecord | None:
    """The record with this sequence number, None if the shard does not hold it.

    Raises StreamUnavailable, also where the service refuses the sequence number.
    """
    place = at_record(sequence_number)
    cursor = ShardCursor(client, stream, shard_id, place, patience=patience, sleep=sleep)
    for record in await records_at(cursor, 1):
        if record["SequenceNumber"] == sequence_number:
            return record_from_response(record, shard_id)
    return None


read_record = sync_function(async_read_record)


async def records_at(cursor: ShardCursor, limit: int) -> Sequence[Mapping[str, Any]]:
    """The first records where the cursor begins; none where there are none."""
    while not cursor.ended:
        page = await cursor.read(limit=limit)
        if page.records or not page.behind:
            return page.records
    return ()
