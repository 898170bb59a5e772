"""What a task reads: exactly the records of its pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ...arrow import FIELDS
from ...aws.cursor import MOST_RECORDS, ShardCursor
from ...aws.shard_map import fetch_shard_map
from ...shards.lineage import Lineage
from ...shards.live_shard_map import StreamUnavailable
from ...shards.place import TRIM_HORIZON, at_record
from ...shards.shard_map import ShardMap
from ..columns import result_with
from .access import GONE, Access
from .offsets import Piece
from .options import Options

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
#: Seconds that a task waits for a record that the driver has seen.
_CATCH_UP: Final = 30.0
_FEW_RECORDS: Final = 1000
_SHARED_TASKS: Final = 16
_SHARDS_PER_TASK: Final = 5
#: Bytes of records in a partition. Spark warns of tasks of more than a megabyte.
CARRIED_BY_TASK: Final = 512 * 1024
#: Seconds by which the clocks of two machines may differ.
_CLOCK_SKEW: Final = 5.0
#: The columns of a Kinesis record, as a task builds them.
KINESIS_FIELDS = tuple(
    field for field in FIELDS if field.name not in ("subSequenceNumber", "aggregated", "explicitHashKey")
)


def arrow_schema(options: Options) -> pa.Schema:
    kinesis = pa.schema(KINESIS_FIELDS)
    if options.policy == "none":
        return kinesis
    kinds = {"placement": options.placement, "tags": options.tags, "unframe": options.unframe}
    return result_with(options.policy, **kinds)(kinesis)


@dataclass
class KinesisPartition(InputPartition):
    """What one task reads. ``listing``: the shards for judging placement, if wanted; ``carried``: records
    that the planner has read, columns `KINESIS_FIELDS`; ``consumer``: the ARN of the one that subscribes,
    None to poll."""

    pieces: tuple[Piece, ...]
    listing: str | None = None
    carried: pa.RecordBatch | None = None
    consumer: str | None = None


def shared_out(pieces: list[Piece], most: int | None = None) -> list[tuple[Piece, ...]]:
    """The pieces that each task reads. ``most``: tasks. None: because a task is slower than reading a few
    records, small pieces share 16 tasks; of others at most five share one, which can read so fast."""
    if most is not None:
        count = min(most, len(pieces))
        return [tuple(pieces[number::count]) for number in range(count)]
    few = [piece for piece in pieces if piece.records is not None and piece.records <= _FEW_RECORDS]
    many = [piece for piece in pieces if piece.records is None or piece.records > _FEW_RECORDS]
    runs: list[tuple[Piece, ...]] = []
    for shared, together in ((few, len(few)), (many, _SHARDS_PER_TASK)):
        size = max(1, min(together, -(-len(shared) // _SHARED_TASKS)))
        runs += [tuple(shared[at : at + size]) for at in range(0, len(shared), size)]
    return runs


def name_of(lineage: Lineage) -> str:
    """The same for listings that name the same shards, open and closed, as the same."""
    text = "".join(f"{shard_id} {shard.open}\n" for shard_id, shard in lineage.items())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=2)
def shard_map_of(client: Any, stream: str, _listing: str) -> ShardMap:
    # SPK-74: "A shard map MUST NOT be part of a partition: each worker process asks for it once per
    # listing."
    return fetch_shard_map(client, stream, closed=True)


def read_piece(access: Access, consumer: str | None, piece: Piece) -> Iterator[list[dict[str, Any]]]:
    """The Kinesis records of a piece, by answer. ``consumer``: as in `KinesisPartition`. Raises DataLoss,
    StreamUnavailable."""
    # SPK-61: "The readers of a shard together MUST keep to the GetRecords and GetShardIterator calls and the
    # bytes a second that the options allow."
    pace = access.pace()
    wait = max(0.0, piece.not_before - access.now())
    pace.begin_in(min(wait, pace.interval + _CLOCK_SKEW))
    begin, first, count = piece.start, None, piece.records
    if begin.names_record:
        # A read after a record begins at that record: if it comes, nothing behind it is missing.
        first = begin.sequence_number
        # SPK-72: "A task MUST NOT ask for more records than its piece has, where the offset says how many."
        count = count and count + (begin.kind == "AFTER_SEQUENCE_NUMBER")
        begin = at_record(first)
    cursor = partial(access.cursor, piece.shard_id, pace=pace, consumer=consumer)
    if (yield from _to_end(access, piece, cursor(begin), first, count)):
        yield from _to_end(access, piece, cursor(TRIM_HORIZON))
    # The planner knows of one more call, not of its bytes.
    access.sleep(max(0.0, pace.delay("get_records") - pace.interval))


def _to_end(
    access: Access, piece: Piece, cursor: ShardCursor, first: str | None = None, left: int | None = None
) -> Generator[list[dict[str, Any]], None, bool]:
    """The records of a piece, read by ``cursor``. ``first``: the record that must come first; ``left``: how
    many records are asked for. True: the cursor's place is gone, and loss is allowed."""
    end, waits_since = piece.end.sequence_number, None
    lost = partial(access.report_loss, piece.shard_id)
    with closing(cursor):
        while True:
            limit = MOST_RECORDS if left is None else min(max(left, 1), MOST_RECORDS)
            try:
                answer = cursor.fetch(limit)
            except StreamUnavailable as error:
                if error.code not in GONE:
                    raise
                lost(piece.start, GONE[error.code], error.reason)
                return True
            numbers = [record["SequenceNumber"] for record in answer.records]
            if numbers:
                if first not in (None, numbers[0]):
                    lost(piece.start, "trimmed", "the record is past retention")
                first = waits_since = None
                left = left and left - len(numbers)
                # Where the start is gone, records before the piece come, too.
                low, high = piece.start.lowest, piece.end.lowest
                if inside := [r for r in answer.records if low <= int(r["SequenceNumber"]) < high]:
                    yield inside
            if numbers and int(numbers[-1]) >= int(end):
                if end not in numbers:
                    lost(piece.end, "record-missing", "the batch should end there")
                return False
            if answer.at_tip(limit):
                # The driver has seen the end of this piece, but this reader may not see it yet.
                now = access.clock()
                waits_since = waits_since or now
                if answer.ended or now - waits_since > _CATCH_UP:
                    lost(piece.end, "record-missing", "the shard has ended before it")
                    return False
                access.sleep(0.2)


def kinesis_batch(stream: str, shard_id: str, records: list[dict[str, Any]]) -> pa.RecordBatch:
    count = len(records)
    columns: Mapping[str, list[Any]] = {
        "streamName": [stream] * count,
        "shardId": [shard_id] * count,
        "sequenceNumber": [record["SequenceNumber"] for record in records],
        "partitionKey": [record.get("PartitionKey") for record in records],
        "data": [record["Data"] for record in records],
        "approximateArrivalTimestamp": [record.get("ApproximateArrivalTimestamp") for record in records],
    }
    return pa.RecordBatch.from_pydict(columns, schema=pa.schema(KINESIS_FIELDS))


def side_by_side(
    read: Callable[[_Item], Iterator[_Result]], items: Sequence[_Item], threads: int = 8
) -> Iterator[tuple[_Item, _Result]]:
    """``read`` of each item, in threads; the results of an item keep their order. At most one result of each
    thread waits. The first error of a thread is raised here."""
    if len(items) == 1:
        yield from ((items[0], result) for result in read(items[0]))
        return
    left = iter(items)
    asked: dict[Future[_Result | None], tuple[_Item, Iterator[_Result]]] = {}
    with ThreadPoolExecutor(threads, "kpl-codec read") as pool:

        def ask(item: _Item, results: Iterator[_Result]) -> None:
            asked[pool.submit(next, results, None)] = item, results

        for item in islice(left, threads):
            ask(item, read(item))
        while asked:
            for future in wait(asked, return_when=FIRST_COMPLETED).done:
                item, results = asked.pop(future)
                result = future.result()
                if result is not None:
                    ask(item, results)
                    yield item, result
                elif (following := next(left, None)) is not None:
                    ask(following, read(following))
