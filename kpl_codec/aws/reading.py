"""Reads one shard, a shard and its children, a whole stream, or one record.

For demos and captures. It is not a consumer library: it has no leases and no checkpoints. It gives each
record once, in the order of its shard, parents before children. `kpl_codec.aws.cursor` makes the calls and
retries them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from ..format.records import KinesisRecord, answered_record
from ..shards.lineage import Lineage
from ..shards.place import LATEST, TRIM_HORIZON, Place, at_record, at_time
from .cursor import Pace, ShardCursor
from .shard_map import fetch_lineage

#: Where to start: TRIM_HORIZON, LATEST, a sequence number (that record is read too), or an aware time.
Start = str | datetime

#: Seconds between two calls: a shard allows 5 GetRecords calls a second to all its consumers together.
POLL_INTERVAL = 0.2
#: Seconds for which a failing call is tried again.
PATIENCE = 60.0


def place_of(start: Start) -> Place:
    """The place in a shard that ``start`` names."""
    if isinstance(start, datetime):
        return at_time(round(start.timestamp() * 1000))
    if start == "TRIM_HORIZON":
        return TRIM_HORIZON
    return LATEST if start == "LATEST" else at_record(start)


def read_shard(
    client: Any,
    stream: str,
    shard_id: str,
    *,
    start: Start = "TRIM_HORIZON",
    follow_children: bool = True,
    until_tip: bool = True,
    poll_interval: float = POLL_INTERVAL,
    patience: float = PATIENCE,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[KinesisRecord]:
    """The Kinesis records of one shard, then of its descendants, each shard once.

    ``start``: TRIM_HORIZON, LATEST, a sequence number (that record is read too) or a time. Children are
    read from their beginning; a child of a merge also holds records of its other parent's keys.
    ``until_tip``: end when there are no more records; False: wait for more while the shard is open, so the
    next shards are read only after it is closed. ``poll_interval``: seconds from call to call; ``patience``:
    seconds for which a failing call is retried. Raises StreamUnavailable.
    """
    todo = [shard_id]
    done: set[str] = set()
    while todo:
        current = todo.pop(0)
        done.add(current)
        cursor = ShardCursor(
            client,
            stream,
            current,
            place_of(start if current == shard_id else "TRIM_HORIZON"),
            pace=Pace(1 / poll_interval, None, sleep=sleep),
            patience=patience,
            sleep=sleep,
        )
        while not cursor.ended:
            answer = cursor.fetch()
            for record in answer.records:
                yield answered_record(record, current)
            # An answer may be empty in the middle of a shard, too: only 0 ms behind means the tip.
            if until_tip and not answer.records and not answer.behind:
                break
        if cursor.ended and follow_children:
            children = fetch_lineage(client, stream, sleep=sleep).children(current)
            todo += [child.shard_id for child in children if child.shard_id not in done.union(todo)]


def read_stream(
    client: Any,
    stream: str,
    *,
    start: Start = "TRIM_HORIZON",
    poll_interval: float = POLL_INTERVAL,
    patience: float = PATIENCE,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[KinesisRecord]:
    """Every record in the stream up to now, shard by shard, parents before children.

    A reshard while reading is followed. ``start``: TRIM_HORIZON or a time. Raises StreamUnavailable.
    """
    done: set[str] = set()
    while True:
        lineage: Lineage = fetch_lineage(client, stream, sleep=sleep)
        left = [shard.shard_id for shard in lineage if shard.shard_id not in done]
        if not left:
            return
        for shard_id in left:
            done.add(shard_id)
            yield from read_shard(
                client,
                stream,
                shard_id,
                start=start,
                follow_children=False,
                poll_interval=poll_interval,
                patience=patience,
                sleep=sleep,
            )


def read_record(
    client: Any, stream: str, shard_id: str, sequence_number: str, *, patience: float = PATIENCE
) -> KinesisRecord | None:
    """The record with this sequence number, None if the shard does not hold it.

    Raises StreamUnavailable, also where the service refuses the sequence number.
    """
    cursor = ShardCursor(client, stream, shard_id, at_record(sequence_number), patience=patience)
    while not cursor.ended:
        answer = cursor.fetch(limit=1)
        for record in answer.records:
            found = record["SequenceNumber"] == sequence_number
            return answered_record(record, shard_id) if found else None
        if not answer.behind:
            break
    return None
