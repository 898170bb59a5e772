"""Reads a whole stream, some of its shards, or one record.

    for record in read_stream(client, "orders"): ...                 # from the oldest to now
    for record in read_stream(client, "orders", follow=True): ...    # and on, without end

It has no leases and no checkpoints, so it is no consumer library. It gives each record once, in the order of
its shard, parents before children. `kpl_codec.aws.aio` has the same for asyncio.
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

#: Where to start: TRIM_HORIZON, LATEST, a sequence number (that record is read, too), or an aware datetime.
Start = str | datetime

#: Seconds between two calls: a shard allows all its consumers together 5 GetRecords calls a second.
POLL_INTERVAL = 0.2
#: Seconds for which a failing call is tried again.
PATIENCE = 60.0
#: The most shards that are read side by side, unless a stream is followed: an iterator that waits for the
#: others for five minutes expires.
_MOST_CURSORS = 100


def position_of(start: Start) -> StartingPosition:
    """The position of a start. Raises ValueError for another text."""
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
        hint = " (no record follows the KCL's SHARD_END)" if start.upper() == "SHARD_END" else ""
        raise ValueError(f"start {start[:60]!r} is not one of {choices}{hint}") from None
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

    ``start``: where reading of the present shards begins; it reads later ones from their first record. A
    sequence number is of one shard: give ``shard_ids`` with it. ``follow``: wait for new records, until all
    shards are closed; else each shard is read to its tip. ``shard_ids``: read these shards only.
    ``poll_interval``: seconds between two calls on a shard; ``patience``: seconds for which a failing call is
    retried. Raises StreamUnavailable, ValueError for another ``start``, and UnknownShard for one of
    ``shard_ids`` that the stream does not have.
    """
    position = position_of(start)
    shard_ids_before: set[str] = set()
    cursors: dict[str, ShardCursor] = {}  # by the id of each shard to read
    while True:
        lineage = await async_fetch_lineage(client, stream, sleep=sleep)
        for shard_id in shard_ids or ():
            if not shard_ids_before and shard_id not in lineage:
                raise UnknownShard(shard_id=shard_id, shard_ids=(shard_id,))
        for shard_id, shard in lineage.items():
            is_new = shard_id not in shard_ids_before and (shard_ids is None or shard_id in shard_ids)
            if is_new and (
                shard.open or position is not LATEST
            ):  # a closed shard has no records after LATEST
                pace = Pace(1 / poll_interval, None)
                cursors[shard_id] = ShardCursor(
                    client, stream, shard_id, position, pace=pace, patience=patience, sleep=sleep
                )
        shard_ids_before.update(lineage)
        position = TRIM_HORIZON
        # Of a shard that was read to its tip, and has closed since, the rest is read, too.
        still_open = {shard_id for shard_id in cursors if shard_id not in lineage or lineage[shard_id].open}
        unread = {
            shard_id: cursor
            for shard_id, cursor in cursors.items()
            if not (cursor.ended or (not follow and cursor.at_tip and shard_id in still_open))
        }
        ready = [
            cursor
            for shard_id, cursor in unread.items()
            if not any(parent.shard_id in unread for parent in lineage.parents(shard_id))
        ]
        if not ready:
            return
        one_has_ended = False  # then children may begin: also those of a shard that was closed meanwhile
        while not one_has_ended:
            for cursor in ready if follow else ready[:_MOST_CURSORS]:
                page = await cursor.read()
                for record in page.records:
                    yield record_from_response(record, cursor.shard_id)
                one_has_ended |= page.ended or (not follow and cursor.at_tip)


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
    position = at_record(sequence_number)
    cursor = ShardCursor(client, stream, shard_id, position, patience=patience, sleep=sleep)
    for record in await records_at(cursor, 1):
        if record["SequenceNumber"] == sequence_number:
            return record_from_response(record, shard_id)
    return None


read_record = sync_function(async_read_record)


async def records_at(cursor: ShardCursor, limit: int) -> Sequence[Mapping[str, Any]]:
    """The first records, at most ``limit``, from the cursor's position on."""
    while not cursor.ended:
        page = await cursor.read(limit=limit)
        if page.records or not page.behind:
            return page.records
    return ()
