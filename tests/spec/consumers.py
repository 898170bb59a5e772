"""What consumers make of the Kinesis records of an encoder in the wild, on a stream of four even shards."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

from aws_kinesis_agg.deaggregator import iter_deaggregate_records

import kpl_codec as kpl
from kpl_codec.deaggregation import kcl
from kpl_codec.format.hash_keys import partition_key_hash

from .vectors import Written

#: The hash key ranges of four shards.
SHARDS = [kpl.HashKeyRange(n << 126, ((n + 1) << 126) - 1) for n in range(4)]

#: One user record as a consumer gives it: partition key, data, explicit hash key.
Row = tuple[str, bytes, str | None]


def range_of(case: Written, number: int) -> kpl.HashKeyRange:
    """The range of the shard that the Kinesis record of that number is put on."""
    key, explicit = case.outputs[number].partition_key, case.outer_hash_keys[number]
    hash_key = kpl.effective_hash_key(key or "", explicit)
    return next(shard for shard in SHARDS if hash_key in shard)


def from_kcl(case: Written) -> Iterator[Row]:
    """The user records that the KCL delivers out of aggregates."""
    for number, output in enumerate(case.outputs):
        outcome = kcl.outcome(output.data, range_of(case, number))
        if not outcome.raw:
            yield from kcl.user_records(output.data, outcome.delivered)


def from_report(case: Written) -> Iterator[Row]:
    """What the bytes hold, by the report policy."""
    for record in kpl.deaggregate(case.outputs, "report"):
        if record.aggregated and record.partition_key is not None:
            yield record.partition_key, record.data, record.explicit_hash_key


def from_aws_kinesis_agg(case: Written) -> Iterator[Row]:
    """What awslabs' Python module gives a Lambda function."""
    for output in case.outputs:
        event = {
            "kinesisSchemaVersion": "1.0",
            "sequenceNumber": "1",
            "approximateArrivalTimestamp": 1.0,
            "partitionKey": output.partition_key,
            "data": base64.b64encode(output.data).decode(),
        }
        with suppress(IndexError):  # it raises this at an index out of its table
            for row in iter_deaggregate_records([{"kinesis": event}]):
                found = row["kinesis"]
                if found.get("aggregated"):
                    data = base64.b64decode(found["data"])
                    yield found["partitionKey"], data, found["explicitHashKey"]


def put(case: Written) -> list[Row]:
    """What the encoder was given."""
    return [(record.partition_key, record.data, record.explicit_hash_key) for record in case.inputs]


def compared(given: Iterable[Row], found: Iterable[Row]) -> Counter[str]:
    """What became of the user records that were put, matched by data: right, with another partition key,
    with another hash key, or missing. An explicit hash key that is the partition key's own hash is none."""
    left = [_hashed(row) for row in given]
    counts: Counter[str] = Counter()
    for row in map(_hashed, found):
        same = [other for other in left if other[1] == row[1]]
        assert same, "data that nobody put"
        nearest = min(same, key=lambda other: (other[0] != row[0], other[2] != row[2]))
        left.remove(nearest)
        if nearest == row:
            counts["right"] += 1
        else:
            counts["partition key" if nearest[0] != row[0] else "hash key"] += 1
    counts["missing"] = len(left)
    return counts


def _hashed(row: Row) -> tuple[str, bytes, str]:
    """With the effective hash key; the explicit one where it is no number."""
    key, data, explicit = row
    return key, data, str(partition_key_hash(key)) if explicit is None else explicit
