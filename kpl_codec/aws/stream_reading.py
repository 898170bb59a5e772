"""Reads a whole stream, some of its shards, one record, or the stream's shard map.

    shard_map = fetch_shard_map(client, "orders")
    for record in read_stream(client, "orders"): ...                 # from the oldest to now
    for record in read_stream(client, "orders", follow=True): ...    # and new records, without end

It has no leases and no checkpoints, so it is no consumer library. It gives each record once, in the order of
its shard, parents before children. The rules of shard maps are in `kpl_codec.shards.live_shard_map`.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Literal

from ..base.arguments import add_row, argument_error
from ..errors import UnknownShard
from ..format.records import KinesisRecord, record_from_response
from ..rendering.labels import plural
from ..shards.lineage import Lineage
from ..shards.live_shard_map import LiveShardMap, Refreshed
from ..shards.sequence_numbers import SequenceNumberError, is_sequence_number, parse_sequence_number
from ..shards.shard_map import ShardMap
from ..shards.starting_position import (
    LATEST,
    TRIM_HORIZON,
    StartingPosition,
    after_record,
    at_record,
    at_time,
)
from .calls import (
    Sleep,
    call_errors,
    failure_of,
    log_retries,
    maybe_await,
    send,
    stream_for,
    sync_function,
    sync_generator,
)
from .cursor import Pace, ShardCursor

#: Where to start: TRIM_HORIZON, LATEST, a sequence number (that record is read, too), or an aware datetime.
Start = str | datetime

#: Seconds between two calls: a shard allows all its consumers together 5 GetRecords calls a second.
POLL_INTERVAL = 0.2
#: Seconds for which a failing call is tried again.
PATIENCE = 60.0
#: The most shards that are read in turn, unless a stream is followed: an iterator that is not used for five
#: minutes expires.
_MOST_CURSORS = 100
#: The most shards whose ids stand in an error.
_MOST_NAMED = 4


async def _fetch(sleep: Sleep, client: Any, stream: str, *, patience: float) -> LiveShardMap:
    stream_for(client, stream)
    live = LiveShardMap(stream, shard_filter="FROM_TRIM_HORIZON", chance=random.random)
    clock = time.monotonic
    begun = clock()
    end = begun + patience
    live.refresh(begun)
    while True:
        outcome: Refreshed | None = None
        while (request := live.next_request(clock())) is not None:
            try:
                response = await maybe_await(send(client, request))
            except call_errors() as error:
                outcome = live.fail(request, failure_of(error, request.operation), clock()) or outcome
            else:
                outcome = live.receive(request, response, clock()) or outcome
        if outcome is not None and outcome.error is None:
            return live
        retry_at = live.timer()
        if live.error is not None and (live.error.permanent or retry_at is None or retry_at > end):
            raise live.error
        if live.error is not None:
            log_retries(live.error, clock() - begun, end - clock())
        if retry_at is not None:
            await maybe_await(sleep(max(0.0, retry_at - clock())))


async def async_fetch_shard_map(
    sleep: Sleep, /, client: Any, stream: str, *, patience: float = 30.0
) -> ShardMap:
    """The stream's present shard map: every shard that holds records, closed ones too. Who writes takes its
    ``open_shards``. It has the distribution strategy if the role may read that.

    ``client``: a Kinesis client, of boto3 for `kpl_codec.aws`, of aiobotocore for `kpl_codec.aws.aio`;
    ``stream``: a name or an ARN. It retries with backoff for ``patience`` seconds. Raises StreamUnavailable:
    at once if a retry cannot help, else the last error.
    """
    # MAP-28: "A shard map that a program fetches MUST have the closed shards that still hold records, too."
    live = await _fetch(sleep, client, stream, patience=patience)
    shard_map = live.known.shard_map
    assert shard_map is not None
    return shard_map


fetch_shard_map = sync_function(async_fetch_shard_map)


async def async_fetch_lineage(
    sleep: Sleep, /, client: Any, stream: str, *, patience: float = 30.0
) -> Lineage:
    """The lineage of all shards that still hold records. Arguments and errors are those of
    `fetch_shard_map`."""
    return (await _fetch(sleep, client, stream, patience=patience)).known.lineage


fetch_lineage = sync_function(async_fetch_lineage)


def position_of(start: Start) -> StartingPosition:
    """The starting position that ``start`` means. Raises ValueError for text that means none."""
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


def _wrong_start(value: Any) -> type[Exception] | None:
    if isinstance(value, datetime):
        fits = value.utcoffset() is not None and value.year >= 1970
        return None if fits else ValueError
    if not isinstance(value, str):
        return TypeError
    try:
        position_of(value)
    except ValueError:
        return ValueError
    return None


def _wrong_start_of_shards(value: Any) -> type[Exception] | None:
    if not isinstance(value, Mapping):
        return _wrong_start(value)
    # A position None, of a shard that nobody has looked up, would begin from the oldest record again.
    for shard_id, number in value.items():
        if not isinstance(shard_id, str):
            return TypeError
        if not isinstance(number, str) or not is_sequence_number(number):
            kind = ValueError if isinstance(number, str) else TypeError
            raise argument_error(
                "read_stream", "start", number, kind, _STARTS_OF_SHARDS, f"for shard {shard_id[:60]!r}"
            )
    return None


_STARTS = "TRIM_HORIZON, LATEST, a sequence number or a datetime with a time zone"
_STARTS_OF_SHARDS = (
    f"{_STARTS}, or by shard id the sequence number of its last record that was handled (leave out a shard "
    "of which none was)"
)
add_row("start", _wrong_start, _STARTS)
add_row("start of read_stream", _wrong_start_of_shards, _STARTS_OF_SHARDS)


async def async_read_stream(
    sleep: Sleep,
    /,
    client: Any,
    stream: str,
    *,
    start: Start | Mapping[str, str] = "TRIM_HORIZON",
    follow: bool = False,
    shard_ids: Collection[str] | Literal["all"] = "all",
    poll_interval: float = POLL_INTERVAL,
    patience: float = PATIENCE,
) -> AsyncGenerator[KinesisRecord, None]:
    """The Kinesis records of all shards in turn, each shard after its parents.

    ``start``: where reading of the present shards begins; shards that open later are read from their first
    record. A sequence number is of one shard: give ``shard_ids`` with it. A mapping has, by shard id, the
    sequence number of the last record that was handled: reading goes on behind it. Of the shards that it does
    not have, those from which one of its shards descends were read to their ends, and all others are read
    from their first record. ``follow``: wait for new records, until all shards are closed; else each shard is
    read to its tip. ``shard_ids``: read these shards only. ``poll_interval``: seconds between two calls on a
    shard; ``patience``: seconds for which a failing call is retried.

    Raises StreamUnavailable, with the code RecordTrimmed where the record of ``start``, or one after which
    reading goes on, is past retention (MAP-29); TypeError and ValueError for an invalid ``start``, and
    UnknownShard for a shard of ``start`` or ``shard_ids`` that the stream does not have.
    """
    last_read = dict(start) if isinstance(start, Mapping) else {}
    position = TRIM_HORIZON if isinstance(start, Mapping) else position_of(start)
    shard_ids_before: set[str] = set()
    cursors: dict[str, ShardCursor] = {}  # by shard id
    while True:
        lineage = await async_fetch_lineage(sleep, client, stream)
        if not shard_ids_before:
            _refuse_unlisted(stream, lineage, () if shard_ids == "all" else shard_ids, last_read)
            # MAP-31: "Reading that goes on MUST read each shard behind its position, or from its first record
            # where it has none, but for the ancestors of a shard with one: these were read to their ends."
            above = {shard.shard_id for shard_id in last_read for shard in lineage.ancestors(shard_id)}
            shard_ids_before = above - last_read.keys()
        for shard_id, shard in lineage.items():
            is_new = shard_id not in shard_ids_before and (shard_ids == "all" or shard_id in shard_ids)
            # A closed shard has no records after LATEST.
            if is_new and (shard.open or position is not LATEST):
                pace = Pace(1 / poll_interval, None)
                number = last_read.get(shard_id)
                begin = position if number is None else after_record(number)
                # The number with which a shard begins is of no record.
                if shard.starting_sequence_number == (number or start):
                    begin = TRIM_HORIZON
                cursors[shard_id] = ShardCursor(
                    client, stream, shard_id, begin, pace=pace, patience=patience, sleep=sleep
                )
        shard_ids_before.update(lineage)
        position = TRIM_HORIZON
        # A shard that was read to its tip and has closed since is read to its end.
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
        one_has_ended = False  # a shard's end was read: its children may begin
        while not one_has_ended:
            for cursor in ready if follow else ready[:_MOST_CURSORS]:
                page = await cursor.read_whole()
                for record in page.records:
                    yield record_from_response(record, cursor.shard_id, stream)
                one_has_ended |= page.ended or (not follow and cursor.at_tip)


def _refuse_unlisted(
    stream: str, lineage: Lineage, shard_ids: Collection[str], last_read: Mapping[str, str]
) -> None:
    """Raises UnknownShard for a shard that is not listed: its records may be past retention."""
    for shard_id in (*shard_ids, *last_read):
        if shard_id not in lineage:
            listed = ", ".join(islice(lineage, _MOST_NAMED)) + ", ..." * (len(lineage) > _MOST_NAMED)
            reason = f"not in the listing of {stream}, which has {plural(len(lineage), 'shard')}: {listed}"
            if shard_id in last_read:
                reason += "; if all of its records were handled, take it out of start"
            raise UnknownShard(shard_id=shard_id, shard_ids=(shard_id,), reason=reason)


read_stream = sync_generator(async_read_stream)


async def async_read_record(
    sleep: Sleep,
    /,
    client: Any,
    stream: str,
    *,
    shard_id: str,
    sequence_number: str,
    patience: float = PATIENCE,
) -> KinesisRecord | None:
    """The record with this sequence number, None if the shard does not hold it.

    Raises StreamUnavailable, also where the service refuses the sequence number.
    """
    position = at_record(sequence_number)
    cursor = ShardCursor(client, stream, shard_id, position, patience=patience, sleep=sleep)
    for record in await records_at(cursor, 1):
        if record["SequenceNumber"] == sequence_number:
            return record_from_response(record, shard_id, stream)
    return None


read_record = sync_function(async_read_record)


async def records_at(cursor: ShardCursor, limit: int) -> Sequence[Mapping[str, Any]]:
    """The first records, at most ``limit``, from the cursor's position on."""
    while not cursor.ended:
        page = await cursor.read(limit=limit)
        if page.records or not page.behind:
            return page.records
    return ()
