"""Read a stream with GetRecords: one shard, a shard and its children, or all of it.

For demos, captures and looking at things; not a consumer library (no leases, no checkpoints). What it
promises: every record of what it reads, each once, in the order of its shard, parents before children.
An expired iterator is replaced behind the last record read; throttling, server errors and broken
connections are tried again with backoff; what no retry can help is raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any, Literal

from ..lineage import Lineage
from ..live_shard_map import Failure, StreamUnavailable
from ..records import KinesisRecord
from .calls import CALL_ERRORS, failure_of, is_permanent
from .shard_map import fetch_lineage

Position = Literal["TRIM_HORIZON", "LATEST"] | str | datetime

#: GetRecords may be called 5 times a second on a shard, by all its consumers together.
POLL_INTERVAL = 0.2
_MOST_FAILURES = 10


class _ShardReader:
    """GetRecords on one shard, with its retries. `batches` ends at the shard's end or the stream's tip."""

    def __init__(
        self,
        client: Any,
        stream_name: str,
        shard_id: str,
        start: Position,
        *,
        until_tip: bool,
        poll_interval: float,
        sleep: Callable[[float], None],
    ) -> None:
        self._client = client
        self._stream = stream_name
        self._shard_id = shard_id
        self._until_tip = until_tip
        self._poll_interval = poll_interval
        self._sleep = sleep
        self._position = _position(start)
        self.ended = False  # the shard is closed and read to its end
        self.child_ids: tuple[str, ...] = ()

    def _call(self, operation: str, needs: str, **arguments: Any) -> dict[str, Any]:
        """One answer, after retries; it has ``needs`` in it. Raises StreamUnavailable."""
        for failures in range(_MOST_FAILURES):
            try:
                answer: dict[str, Any] = getattr(self._client, operation)(**arguments)
            except CALL_ERRORS as error:
                failure = failure_of(error)
            else:
                # MAP-14: "An answer without what was asked for MUST be taken for a call that failed."
                # botocore makes an empty success of an answer that was cut short: without this line a
                # broken connection would look like the end of the shard.
                if needs in answer:
                    return answer
                failure = Failure("IncompleteAnswer", f"an answer without {needs}")
            if is_permanent(failure) or failure.code == "ExpiredIteratorException":
                break
            self._sleep(min(0.1 * 2**failures, 5.0))
        raise StreamUnavailable(
            stream=self._stream,
            operation=operation,
            code=failure.code,
            reason=failure.reason,
            permanent=is_permanent(failure),
        )

    def _iterator(self) -> str:
        answer = self._call(
            "get_shard_iterator",
            "ShardIterator",
            StreamName=self._stream,
            ShardId=self._shard_id,
            **self._position,
        )
        return str(answer["ShardIterator"])

    def batches(self) -> Iterator[list[KinesisRecord]]:
        """The records, a GetRecords answer at a time; empty ones too."""
        begun = datetime.now(timezone.utc)
        iterator: str | None = self._iterator()
        if self._position == {"ShardIteratorType": "LATEST"}:
            # Should this iterator expire before it gave a record, LATEST again would skip some.
            self._position = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": begun}
        while iterator is not None:
            try:
                answer = self._call("get_records", "Records", ShardIterator=iterator)
            except StreamUnavailable as error:
                if error.code != "ExpiredIteratorException":
                    raise
                iterator = self._iterator()
                continue
            records = [_record(record, self._shard_id) for record in answer["Records"]]
            if records:
                self._position = {
                    "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
                    "StartingSequenceNumber": records[-1].sequence_number,
                }
            yield records
            iterator = answer.get("NextShardIterator")
            if iterator is None:
                self.ended = True
                self.child_ids = tuple(child["ShardId"] for child in answer.get("ChildShards", ()))
            elif not records:
                # Empty answers come in the middle of a shard too: only with nothing behind is it the tip.
                if self._until_tip and not answer.get("MillisBehindLatest"):
                    return
                self._sleep(self._poll_interval)


def _position(start: Position) -> dict[str, Any]:
    if isinstance(start, datetime):
        return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": start}
    if start in ("TRIM_HORIZON", "LATEST"):
        return {"ShardIteratorType": start}
    return {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": start}


def _record(record: dict[str, Any], shard_id: str) -> KinesisRecord:
    return KinesisRecord(
        record.get("PartitionKey"),
        bytes(record["Data"]),
        record["SequenceNumber"],
        shard_id,
        record.get("ApproximateArrivalTimestamp"),
    )


def read_shard(
    client: Any,
    stream_name: str,
    shard_id: str,
    *,
    start: Position = "TRIM_HORIZON",
    follow_children: bool = True,
    until_tip: bool = True,
    poll_interval: float = POLL_INTERVAL,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[KinesisRecord]:
    """The Kinesis records of one shard, then of the shards that came out of it, each shard once.

    ``start``: TRIM_HORIZON, LATEST, a sequence number (inclusive) or a time; children are read from
    their beginning, and a child of a merge holds records of its other parent's keys too.
    ``until_tip``: end when nothing is left to read, else wait for more for as long as a shard is open.
    With more than one open shard in reach and ``until_tip`` False, the first one is never left.
    Raises StreamUnavailable.
    """
    todo = [shard_id]
    done: set[str] = set()
    while todo:
        current = todo.pop(0)
        done.add(current)
        reader = _ShardReader(
            client,
            stream_name,
            current,
            start if current == shard_id else "TRIM_HORIZON",
            until_tip=until_tip,
            poll_interval=poll_interval,
            sleep=sleep,
        )
        for batch in reader.batches():
            yield from batch
        if reader.ended and follow_children:
            children = reader.child_ids or tuple(
                # kinesalite, and AWS for older iterators, do not name them
                child.shard_id
                for child in fetch_lineage(client, stream_name, sleep=sleep).children(current)
            )
            todo += [child for child in children if child not in done and child not in todo]


def read_stream(
    client: Any,
    stream_name: str,
    *,
    start: Position = "TRIM_HORIZON",
    poll_interval: float = POLL_INTERVAL,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[KinesisRecord]:
    """Every record in the stream up to now, shard by shard, parents before children.

    A reshard while reading is followed. ``start``: TRIM_HORIZON or a time. Raises StreamUnavailable.
    """
    done: set[str] = set()
    while True:
        lineage: Lineage = fetch_lineage(client, stream_name, sleep=sleep)
        left = [shard.shard_id for shard in lineage if shard.shard_id not in done]
        if not left:
            return
        for shard_id in left:
            done.add(shard_id)
            yield from read_shard(
                client,
                stream_name,
                shard_id,
                start=start,
                follow_children=False,
                poll_interval=poll_interval,
                sleep=sleep,
            )


def read_record(client: Any, stream_name: str, shard_id: str, sequence_number: str) -> KinesisRecord | None:
    """The record with this sequence number, None if the shard does not hold it.

    Raises StreamUnavailable, also where the service refuses the number.
    """
    reader = _ShardReader(
        client,
        stream_name,
        shard_id,
        sequence_number,
        until_tip=True,
        poll_interval=POLL_INTERVAL,
        sleep=time.sleep,
    )
    for batch in reader.batches():
        for record in batch:
            return record if record.sequence_number == sequence_number else None
    return None
