"""Every way in gives the same user records, and tells the same of what it dropped."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from fuzz.invariants import frame
from kpl_codec.adapters import kinesis_records, to_firehose, to_lambda
from kpl_codec.arrow import Deaggregator, deaggregate_batches, deaggregate_table
from kpl_codec.aws_lambda import aio, process_user_records, user_records
from kpl_codec.base.compiled import speedups
from kpl_codec.deaggregation import policies
from kpl_codec.deaggregation.deaggregated_record import Counts
from kpl_codec.deaggregation.policies import opened
from kpl_codec.deaggregation.policy_rules import POLICIES

from ..shards.test_shard_map import HALF, SPLIT
from .every_policy import EVERY_POLICY, rules

MAP = kpl.ShardMap(SPLIT)
SHARD = "shardId-000000000001"
ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
MIXED = kpl.encode([kpl.UserRecord("a", b"in"), kpl.UserRecord("a", b"out", str(HALF))])
FOREIGN = kpl.encode([kpl.UserRecord("a", b"out", str(HALF))] * 3)
SOUND = kpl.encode([kpl.UserRecord("a", b"in"), kpl.UserRecord("a", b"too")])
BAD_INDEX = frame(b"\x0a\x01a\x1a\x05\x08\x00\x1a\x01x\x1a\x05\x08\x07\x1a\x01y\x1a\x05\x08\x00\x1a\x01z")
EMPTY = frame(b"\x0a\x01a")
DATA = [SOUND, MIXED, b"plain", BAD_INDEX, EMPTY, FOREIGN, SOUND]

Told = tuple[list[bytes], Counter[str], list[kpl.Drop], int]


def source(data: Iterable[bytes] = DATA) -> list[kpl.KinesisRecord]:
    return [kpl.KinesisRecord("a", one, str(number), SHARD) for number, one in enumerate(data, 1)]


def batch() -> pa.RecordBatch:
    names = {"data": "data", "sequenceNumber": "sequence_number", "shardId": "shard_id"}
    columns = {name: [getattr(record, field) for record in source()] for name, field in names.items()}
    return pa.RecordBatch.from_pydict({**columns, "partitionKey": ["a"] * len(DATA)})


def objects(records: Callable[[], Iterable[kpl.KinesisRecord]], **more: Any) -> Callable[..., Told]:
    def told(policy: Any, **options: Any) -> Told:
        drops: list[kpl.Drop] = []
        found = opened(records(), policy, on_drop=drops.append, **options, **more)
        return [row.data for row in found], found.counts.dropped, drops, found.counts.empty_records

    return told


def columns(run: Callable[..., tuple[Iterable[pa.RecordBatch], Counts]]) -> Callable[..., Told]:
    def told(policy: Any, **options: Any) -> Told:
        drops: list[kpl.Drop] = []
        made, counts = run(policy, on_drop=drops.append, **options)
        data = [value for out in made for value in out["data"].to_pylist()]
        return data, counts.dropped, drops, counts.empty_records

    return told


def by_table(policy: Any, threads: int = 1, **options: Any) -> tuple[Iterable[pa.RecordBatch], Counts]:
    table, counts = deaggregate_table(batch(), policy, threads=threads, **options)
    return table.to_batches(), counts


def by_batches(policy: Any, **options: Any) -> tuple[Iterable[pa.RecordBatch], Counts]:
    made = deaggregate_batches([batch()], policy, **options)
    return made, made.counts


def by_deaggregator(policy: Any, **options: Any) -> tuple[Iterable[pa.RecordBatch], Counts]:
    deaggregator = Deaggregator(batch().schema, policy, **options)
    return deaggregator.process(batch()), deaggregator.counts


WAYS: dict[str, Callable[..., Told]] = {
    "a list": objects(source),
    "an iterator": objects(lambda: iter(source())),
    "a generator": objects(lambda: (record for record in source())),
    "a generator, read ahead": objects(lambda: (record for record in source()), read_ahead=True),
    "batches": columns(by_batches),
    "a table": columns(by_table),
    "a table by threads": columns(lambda policy, **options: by_table(policy, threads=3, **options)),
    "Deaggregator": columns(by_deaggregator),
}


@pytest.mark.requirement("DAG-4", "DAG-12", "KCL-3", "KCL-4", "SPK-3")
@pytest.mark.parametrize("known", ["map", "range", "nothing"])
@pytest.mark.usefixtures("drop_policy")
@pytest.mark.parametrize("policy", [policy for policy in EVERY_POLICY if not rules(policy).raises])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_tells_what_it_dropped(way: str, policy: str, known: str) -> None:
    options: dict[str, Any] = {
        "map": {"shard_map": MAP},
        "range": {"hash_key_range": MAP[SHARD].hash_key_range},
        "nothing": {},
    }[known]
    data, dropped, drops, empty = WAYS[way](policy, **options)
    one_by_one = [kpl.deaggregate([record], policy, **options) for record in source()]
    assert data == [row.data for rows in one_by_one for row in rows]
    assert dropped == sum((rows.counts.dropped for rows in one_by_one), Counter())
    assert empty == sum(rows.counts.empty_records for rows in one_by_one)
    assert Counter(drop.reason for drop in drops for _ in range(drop.user_records)) == dropped
    assert bool(dropped) == bool(empty) == rules(policy).drops
    if policy == "kcl":
        assert dropped == {"index-out-of-table": 2} | ({"out-of-range": 5} if known != "nothing" else {})
    if policy == "kcl" and known != "nothing":
        assert [(d.sequence_number, d.shard_id, d.user_records, d.record_index) for d in drops] == [
            ("2", SHARD, 2, 1),
            ("4", SHARD, 2, 1),
            ("6", SHARD, 3, 0),
        ]


def _process(run: Callable[..., Any], event: Any, handle: Any, **options: Any) -> None:
    assert run(event, handle, **options)["batchItemFailures"] == []


async def _handled(record: kpl.DeaggregatedRecord) -> None: ...


LOOPS: dict[str, Callable[..., None]] = {
    "process_user_records": lambda event, **options: _process(
        process_user_records, event, lambda record: None, **options
    ),
    "aio": lambda event, **options: _process(
        lambda *args, **more: aio.run(aio.process_user_records(*args, **more)), event, _handled, **options
    ),
}


@pytest.mark.requirement("LMB-12", "DAG-4")
@pytest.mark.usefixtures("drop_policy")
@pytest.mark.parametrize("policy", [policy for policy in EVERY_POLICY if rules(policy).drops])
@pytest.mark.parametrize("loop", LOOPS)
def test_every_lambda_loop_tells_what_it_dropped(loop: str, policy: Any) -> None:
    event = to_lambda(source(), stream_arn="arn:aws:kinesis:eu-west-1:1:stream/s")
    expected = kpl.deaggregate(source(), policy, shard_map=MAP, on_drop=(wanted := []).append)
    rows = list(expected)
    drops: list[kpl.Drop] = []
    LOOPS[loop](event, policy=policy, shard_map=MAP, on_drop=drops.append)
    assert drops == wanted != []
    with pytest.raises(ValueError, match="on_drop"):
        LOOPS[loop](event, policy=policy, shard_map=MAP)
    drops.clear()
    found = user_records(event, policy, shard_map=MAP, on_drop=drops.append)
    assert [row.data for row in found] == [row.data for row in rows]
    assert (found.counts, drops) == (expected.counts, wanted)


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


@pytest.mark.requirement("DAG-12")
@pytest.mark.skipif(speedups is None, reason="without compiled code all are read one by one")
def test_read_ahead_compiled_code_reads_an_iterable_as_often_as_a_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nearly: of an iterator it is given 32 Kinesis records at first, and twice as many each time."""
    records = source([SOUND] * 3000)
    read: list[int] = []
    real = policies._FrameRows

    def counting(held: list[kpl.KinesisRecord], *more: Any, **options: Any) -> Any:
        read.append(len(held))
        return real(held, *more, **options)

    monkeypatch.setattr(policies, "_FrameRows", counting)
    for given_, most in ((records, 3), (tuple(records), 3), (iter(records), 8), (deque(records), 8)):
        read.clear()
        assert sum(1 for _ in opened(given_, read_ahead=True)) == 6000
        assert len(read) <= most


@pytest.mark.requirement("DAG-8")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shape", ["records", "kclpy", "firehose", "lambda"])
def test_what_was_opened_before_stays_closed_whatever_its_number(policy: Any, shape: str) -> None:
    """A sub-sequence number of 0 says as much as any other: named by it, and never opened."""
    numbers = [0, 1, 2**31, 2**63 - 1]
    given_ = [
        kpl.KinesisRecord("a", data, "7", SHARD, sub_sequence_number=number)
        for number in numbers
        for data in (SOUND, BAD_INDEX, b"plain")
    ]
    wanted = [(row.data, row.sequence_number, row.sub_sequence_number, ()) for row in given_]
    if shape == "records":
        read: list[kpl.KinesisRecord] = given_
    elif shape == "kclpy":
        read = list(kinesis_records([kclpy(row) for row in given_], shard_id=SHARD))
    elif shape == "firehose":
        event = to_firehose(given_, delivery_stream_arn=ARN, source_stream_arn=ARN)
        read = list(kinesis_records(event))
    else:  # as `powertools.user_record_event` and aws_kinesis_agg give it out
        event = to_lambda([row.replace(sub_sequence_number=None) for row in given_], stream_arn=ARN)
        for row, raw in zip(given_, event["Records"], strict=True):
            raw["kinesis"]["subSequenceNumber"] = row.sub_sequence_number
        read = list(kinesis_records(event))
    for source_ in (read, iter(read)):
        made = kpl.deaggregate(
            source_, policy, shard_map=MAP, **({"on_drop": print} if policy == "kcl" else {})
        )
        rows = list(made)
        assert [
            (row.data, row.sequence_number, row.sub_sequence_number, row.defects) for row in rows
        ] == wanted
        # An iterator of KinesisRecords that were not read from anything shows no siblings.
        alone = shape == "records" and source_ is not read
        assert [row.aggregated for row in rows] == [not alone or row.sub_sequence_number > 0 for row in rows]


def kclpy(record: kpl.KinesisRecord) -> Any:
    """amazon_kclpy's object."""
    return SimpleNamespace(
        binary_data=record.data,
        partition_key=record.partition_key,
        sequence_number=record.sequence_number,
        sub_sequence_number=record.sub_sequence_number,
    )
