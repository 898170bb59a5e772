"""Lists, iterators and the loops of Lambda functions give the same user records, in the same order.

A list and an iterator of any records: test_policies. Columns: tests/arrow."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from fuzz.invariants import frame
from kpl_codec.adapters import to_lambda
from kpl_codec.aws_lambda import aio, process_user_records, user_records
from kpl_codec.aws_lambda.powertools import UserRecordBatchProcessor
from kpl_codec.deaggregation.policies import opened
from kpl_codec.deaggregation.policy_rules import POLICIES

from ..shards.test_shard_map import HALF, SPLIT

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
MAP = kpl.ShardMap(SPLIT)
SHARD = "shardId-000000000001"
MIXED = kpl.encode([kpl.UserRecord("a", b"in"), kpl.UserRecord("a", b"out", str(HALF))])
FOREIGN = kpl.encode([kpl.UserRecord("a", b"out", str(HALF))] * 3)
SOUND = kpl.encode([kpl.UserRecord("a", b"in"), kpl.UserRecord("a", b"too")])
BAD_INDEX = frame(b"\x0a\x01a\x1a\x05\x08\x00\x1a\x01x\x1a\x05\x08\x07\x1a\x01y\x1a\x05\x08\x00\x1a\x01z")
EMPTY = frame(b"\x0a\x01a")
DATA = [SOUND, MIXED, b"plain", BAD_INDEX, EMPTY, FOREIGN, SOUND]


def source(data: Iterable[bytes] = DATA) -> list[kpl.KinesisRecord]:
    return [kpl.KinesisRecord("a", one, str(number), SHARD) for number, one in enumerate(data, 1)]


@pytest.mark.requirement("LMB-12", "DAG-4")
def test_every_lambda_loop_tells_what_it_dropped() -> None:
    async def handle(record: kpl.DeaggregatedRecord) -> None: ...

    def on_asyncio(**options: Any) -> Any:
        return aio.run(aio.process_user_records(event, handle, **options))

    options: Any = {"policy": "kcl", "shard_map": MAP}
    event = to_lambda(source(), stream_arn=ARN)
    expected = kpl.deaggregate(source(), **options, on_drop=(wanted := []).append)
    rows = list(expected)
    for loop in (partial(process_user_records, event, lambda record: None), on_asyncio):
        drops: list[kpl.Drop] = []
        assert loop(**options, on_drop=drops.append) == {"batchItemFailures": []}
        assert drops == wanted != []
        with pytest.raises(ValueError, match="on_drop"):
            loop(**options)
    drops.clear()
    found = user_records(event, **options, on_drop=drops.append)
    assert [row.data for row in found] == [row.data for row in rows]
    assert (found.counts, drops) == (expected.counts, wanted)


def test_a_handler_gets_the_row_about_a_frame_and_powertools_do_not() -> None:
    """Their dicts have no place for its defect: a key that is no text, and that none uses."""
    users = b"".join(b"\x1a\x05\x08\x01\x1a\x01%d" % number for number in range(3))
    event = to_lambda(source([frame(b"\x0a\x01\xff\x0a\x01k" + users)]), stream_arn=ARN)
    handled: list[int] = []
    process_user_records(event, lambda row: handled.append(row.sub_sequence_number), policy="report")
    assert handled == [-1, 0, 1, 2]
    seen: list[bytes] = []
    processor = UserRecordBatchProcessor(policy="report")
    with processor(event["Records"], lambda record: seen.append(b64decode(record.kinesis.data))):
        processor.process()
    assert seen == [b"0", b"1", b"2"]


@pytest.mark.requirement("DAG-12")
@given(st.lists(st.sampled_from([SOUND, MIXED, b"plain", BAD_INDEX]), max_size=90), st.sampled_from(POLICIES))
def test_what_an_iterator_gave_before_it_failed_comes_first(data: list[bytes], policy: Any) -> None:
    class Lost(Exception):
        pass

    def records() -> Iterator[kpl.KinesisRecord]:
        yield from source(data)
        raise Lost

    wanted: list[Any] = []
    raised: type[Exception] = Lost
    for record in source(data):
        try:
            wanted += kpl.deaggregate([record], policy)
        except kpl.DecodeError as error:
            raised = type(error)
            break
    for read_ahead in (True, False):
        found: list[Any] = []
        with pytest.raises(raised):
            found.extend(opened(records(), policy, read_ahead=read_ahead))
        assert found == wanted


@pytest.mark.requirement("DAG-12")
@pytest.mark.parametrize("read_ahead", [None, True])
def test_the_user_records_before_what_is_no_kinesis_record_come_first(read_ahead: bool | None) -> None:
    records: list[Any] = [*source([SOUND, b"plain"]), {"Data": SOUND}, *source()]
    found: list[kpl.DeaggregatedRecord] = []
    for given_ in (records, iter(records)):
        with pytest.raises(TypeError, match="kinesis_records"):
            found.extend(opened(given_, read_ahead=read_ahead))
        assert [record.data for record in found] == [b"in", b"too", b"plain"]
        found.clear()


@pytest.mark.requirement("DAG-13")
@given(
    st.lists(st.sampled_from([SOUND, MIXED, b"plain", BAD_INDEX]), max_size=90),
    st.sampled_from(POLICIES),
    st.integers(0, 100),
)
def test_whoever_stops_goes_on_with_the_next_record(data: list[bytes], policy: Any, stop: int) -> None:
    """At any user record, and at an error."""
    records = iter(source(data))
    reached = 0
    try:
        for count, row in enumerate(kpl.deaggregate(records, policy)):
            reached = int(row.sequence_number or 0)
            if count == stop:
                break
        else:
            reached = len(data)
    except kpl.DecodeError as error:
        reached = int(error.fields["sequence_number"])
    rest = [record.sequence_number for record in records]
    assert rest == [str(number) for number in range(reached + 1, len(data) + 1)]


@pytest.mark.requirement("DAG-13")
def test_an_iterator_is_not_read_far_ahead() -> None:
    """Where it is allowed: at first 32 Kinesis records, then as many as have about half a MiB."""
    large = kpl.encode([kpl.UserRecord("a", bytes(100_000))])
    asked = Counter[str]()

    def records() -> Iterator[kpl.KinesisRecord]:
        for _ in range(1000):
            asked["records"] += 1
            yield kpl.KinesisRecord("a", large)

    rows = opened(records(), read_ahead=True)
    for number, _ in enumerate(rows, 1):
        assert asked["records"] <= number + 64
