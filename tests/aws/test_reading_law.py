"""A law of reading a stream: each record once, each shard after its parents, and an end, while it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec import UnknownShard
from kpl_codec.aws.calls import _steps_of, run_sync
from kpl_codec.aws.cursor import ShardCursor
from kpl_codec.aws.stream_reading import (
    async_read_stream,
    fetch_lineage,
    fetch_shard_map,
    read_record,
    read_stream,
)
from kpl_codec.aws.subscription import StreamConsumers
from kpl_codec.shards.live_shard_map import StreamUnavailable
from kpl_codec.shards.starting_position import TRIM_HORIZON, at_record

from ..every import every
from ..examples import examples
from ..producer.model_client import ModelClient

#: Records of one answer.
_MOST = 2
_CHANGES = st.lists(st.sampled_from(["put", "split", "merge", "nothing"]), max_size=30)
#: What happens before reading begins.
_BEFORE = st.lists(st.sampled_from(["put", "put", "split", "merge"]), max_size=20)


class ChangingStream(ModelClient):
    """A stream that changes before each GetRecords: as ``changes`` say, ``then`` always the same."""

    def __init__(self, changes: list[str], then: str) -> None:
        super().__init__(2)
        self._changes, self._then, self._puts = iter(changes), then, 0
        for _ in range(6):
            self.change("put")

    def change(self, what: str) -> None:
        if what == "put":
            self._puts += 1
            data = b"%d" % self._puts
            hash_key = str(self._puts * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128)
            self.stream.put_records([{"Data": data, "PartitionKey": "a", "ExplicitHashKey": hash_key}])
        elif what == "split":
            self.stream.split(self._puts)
        elif what == "merge" and len(self.stream.open) > 1:
            self.stream.merge(self._puts)

    def get_shard_iterator(self, *, ShardId: str, StartingSequenceNumber: str = "0", **_: Any) -> Any:
        held = [record for record in self.stream.stored if record.shard_id == ShardId]
        before = sum(int(str(record.sequence_number)) < int(StartingSequenceNumber) for record in held)
        return {"ShardIterator": f"{ShardId}:{before}"}

    def get_records(self, *, ShardIterator: str, Limit: int, **_: Any) -> Any:
        self.change(next(self._changes, self._then))
        shard_id, _, begin = ShardIterator.partition(":")
        held = [record for record in self.stream.stored if record.shard_id == shard_id]
        end = min(int(begin) + min(Limit, _MOST), len(held))
        records = [
            {"Data": r.data, "PartitionKey": "a", "SequenceNumber": r.sequence_number}
            for r in held[int(begin) : end]
        ]
        is_open = shard_id in {shard.shard_id for shard in self.stream.open}
        answer: dict[str, Any] = {"Records": records, "MillisBehindLatest": 1000 * (end < len(held))}
        if is_open or end < len(held):
            answer["NextShardIterator"] = f"{shard_id}:{end}"
        return answer


def read_at_once(client: Any, **options: Any) -> Iterator[kpl.KinesisRecord]:
    """`read_stream` without waiting."""
    return _steps_of(async_read_stream(lambda _: None, client, "orders", **options))


@given(_CHANGES)
def test_a_stream_that_is_written_to_all_the_time_has_a_tip_all_the_same(changes: list[str]) -> None:
    client = ChangingStream(changes, "put")
    before = {(record.shard_id, record.sequence_number) for record in client.stream.stored}
    read = [(record.shard_id, record.sequence_number) for record in islice(read_at_once(client), 1000)]
    assert before <= set(read)
    assert len(set(read)) == len(read) < 1000


@pytest.mark.requirement("MAP-31")
@settings(max_examples=examples(200))
@given(_BEFORE, _CHANGES, st.lists(st.integers(0, 20), max_size=4), st.booleans())
def test_runs_that_go_on_at_positions_give_each_record_once(
    before: list[str], changes: list[str], stops: list[int], keeps_parents: bool
) -> None:
    """The loop of spec/guides/read.md, ended after some records and begun again."""
    client = ChangingStream(changes, "nothing")
    for change in before:
        client.change(change)
    positions, read = dict[str, str](), list[tuple[str, str]]()
    for stop in (*stops, None):
        for record in islice(read_at_once(client, start=positions), stop):
            shard_id, number = str(record.shard_id), str(record.sequence_number)
            read.append((shard_id, number))
            if shard_id not in positions and not keeps_parents:
                for parent in fetch_lineage(client, "orders").parents(shard_id):
                    positions.pop(parent.shard_id, None)
            positions[shard_id] = number
    assert sorted(read) == sorted((r.shard_id, r.sequence_number) for r in client.stream.stored)
    parents = {shard.shard_id: shard.parent_shard_ids for shard in client.stream.shards}
    for at, (shard_id, _) in enumerate(read):
        assert not {other for other, _ in read[at:]} & {*parents[shard_id]}
        same = [int(number) for other, number in read[at:] if other == shard_id]
        assert same == sorted(same)


_SHARD, _NUMBER = "shardId-000000000000", "49545115243490985018280067714973144582180062593244200961"


@pytest.mark.requirement("MAP-31")
def test_each_position_that_cannot_be_gone_on_from_is_refused_by_name() -> None:
    client = ChangingStream([], "nothing")
    words = ("SHARD_END", "TRIM_HORIZON", "LATEST", "-1", "")
    for number, kind in [(None, TypeError), (5, TypeError), *((word, ValueError) for word in words)]:
        with pytest.raises(
            kind, match=rf"start of read_stream is .* for shard '{_SHARD}', give .* by shard id the sequence"
        ):
            read_stream(client, "orders", start={_SHARD: number})  # type: ignore[dict-item]
    with pytest.raises(UnknownShard, match=r"shardId-77 is not in the listing of orders.*out of start"):
        list(read_at_once(client, start={"shardId-77": _NUMBER}))
    shard: Any = KeptForADay([], stored=6)
    shard.list_shards, shard.describe_stream_summary = client.list_shards, client.describe_stream_summary
    first, last = shard.stored[0][0], shard.stored[-1][0]
    behind = read_at_once(shard, start={_SHARD: first}, shard_ids=[_SHARD])
    assert [record.sequence_number for record in behind] == [number for number, _ in shard.stored[1:]]
    assert not list(read_at_once(shard, start={_SHARD: last}, shard_ids=[_SHARD]))
    shard.step("day")  # nothing says whether a record behind the last one was there
    for number in (first, last):
        with pytest.raises(StreamUnavailable, match="RecordTrimmed"):
            list(read_at_once(shard, start={_SHARD: number}, shard_ids=[_SHARD]))


class Truncated:
    """A client whose every response was cut short: botocore makes a success without members of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, operation: str) -> Callable[..., dict[str, Any]]:
        def call(**_: Any) -> dict[str, Any]:
            self.calls.append(operation)
            return {"ResponseMetadata": {}}

        return call


STREAM = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


@pytest.mark.requirement("MAP-14")
@every(
    "request_of",
    [
        lambda client: fetch_shard_map(client, "orders", patience=0),
        lambda client: read_record(
            client, "orders", shard_id="shardId-000000000000", sequence_number="1", patience=0
        ),
        lambda client: StreamConsumers(client, patience=0).describe_stream("orders"),
        lambda client: StreamConsumers(client, patience=0).require_active("orders", "reader"),
        lambda client: StreamConsumers(client, patience=0).require_active(STREAM, "reader"),
        lambda client: StreamConsumers(client, patience=0).require_active("", f"{STREAM}/consumer/reader:1"),
    ],
)
def test_a_truncated_response_is_a_call_that_failed(request_of: Callable[[Any], object]) -> None:
    client = Truncated()
    with pytest.raises(
        StreamUnavailable, match=r"IncompleteAnswer|answer without|malformed|has no list"
    ) as caught:
        request_of(client)
    assert "permanent" not in caught.value.fields or not caught.value.fields["permanent"]
    assert "register_stream_consumer" not in client.calls  # nobody knows that there is none


#: Seconds that pass before a call: iterators live for five minutes, records for a day.
_PASSES = {"second": 1.0, "minutes": 360.0, "day": 25 * 3600.0}
_KEPT, _ITERATOR_LIVES = 24 * 3600.0, 300.0


class KeptForADay:
    """One open shard whose records leave it after a day. ``steps``: "put", or time that passes, before each
    GetRecords; then nothing more happens."""

    def __init__(self, steps: list[str], stored: int) -> None:
        self.now, self._steps = 1_700_000_000.0, iter(steps)
        self.stored: list[tuple[str, float]] = []  # the sequence numbers and when they arrived
        for _ in range(stored):
            self.step("put")

    def step(self, what: str) -> None:
        if what == "put":
            self.stored.append((str(10**20 + len(self.stored)), self.now))
        self.now += _PASSES.get(what, 0.0)

    def oldest(self) -> int:
        """The place of the oldest record that is still there."""
        kept = [at for at, (_, since) in enumerate(self.stored) if since > self.now - _KEPT]
        return kept[0] if kept else len(self.stored)

    def is_gone(self, number: str) -> bool:
        return number not in {held for held, _ in self.stored[self.oldest() :]}

    def get_shard_iterator(
        self, *, ShardIteratorType: str, StartingSequenceNumber: str = "0", **_: Any
    ) -> Any:
        after = int(StartingSequenceNumber) + (ShardIteratorType == "AFTER_SEQUENCE_NUMBER")
        place = sum(int(number) < after for number, _ in self.stored)
        return {"ShardIterator": f"{max(place, self.oldest())} {self.now}"}

    def get_records(self, *, ShardIterator: str, Limit: int, **_: Any) -> Any:
        self.step(next(self._steps, "nothing"))
        place, since = (float(part) for part in ShardIterator.split())
        if self.now - since > _ITERATOR_LIVES:
            error = {"Error": {"Code": "ExpiredIteratorException", "Message": ""}}
            raise ClientError(error, "GetRecords")  # type: ignore[arg-type]
        end = min(int(place) + min(Limit, _MOST), len(self.stored))
        page = self.stored[int(place) : end]
        records = [{"Data": b"", "PartitionKey": "a", "SequenceNumber": number} for number, _ in page]
        behind = 1000 * (end < len(self.stored))
        return {"Records": records, "MillisBehindLatest": behind, "NextShardIterator": f"{end} {self.now}"}


@pytest.mark.requirement("MAP-29")
@given(
    st.lists(st.sampled_from(["put", *_PASSES]), max_size=12),
    st.sampled_from([[], ["minutes"], ["day"], ["put", "day", "put"]]),
    st.none() | st.integers(0, 5),
)
def test_each_record_is_given_or_that_it_may_be_gone_is_an_error(
    steps: list[str], before: list[str], start: int | None
) -> None:
    shard = KeptForADay(steps, stored=6)
    begin = TRIM_HORIZON if start is None else at_record(shard.stored[start][0])
    for what in before:  # between the reader's last run and this one
        shard.step(what)
    cursor = ShardCursor(
        shard, "orders", "shardId-000000000000", begin, now=lambda: shard.now, sleep=lambda _: None
    )
    read: list[str] = []
    try:
        while next_step := next(shard._steps, None):
            shard.step(next_step)
            read += [record["SequenceNumber"] for record in run_sync(cursor.read_whole()).records]
        while not cursor.at_tip:
            read += [record["SequenceNumber"] for record in run_sync(cursor.read_whole()).records]
    except StreamUnavailable as error:
        assert error.code == "RecordTrimmed"
        # It is no false alarm: the record that reading goes on from is gone.
        assert shard.is_gone(read[-1] if read else begin.sequence_number)
        whole = False
    else:
        whole = True
    stored = [number for number, _ in shard.stored]
    first = stored.index(read[0]) if read and start is None else start or 0
    assert read == stored[first : first + len(read)]
    assert not whole or not read or first + len(read) == len(stored)
    assert not whole or start is None or read[:1] == [stored[start]]


@pytest.mark.requirement("MAP-30")
@every("answer", [{}, {"MillisBehindLatest": None}])
def test_who_is_not_told_how_far_behind_it_is_is_not_at_the_tip(answer: dict[str, Any]) -> None:
    class Silent(ChangingStream):
        def get_records(self, **request: Any) -> Any:
            response = super().get_records(**request)
            del response["MillisBehindLatest"]
            return response | answer

    with pytest.raises(StreamUnavailable, match="without MillisBehindLatest"):
        list(read_at_once(Silent([], "nothing"), patience=0))


@pytest.mark.requirement("MAP-29")
def test_the_number_with_which_a_shard_begins_names_no_record() -> None:
    client = ChangingStream([], "nothing")
    shard = next(iter(fetch_shard_map(client, "orders").values()))
    held = [r.sequence_number for r in client.stream.stored if r.shard_id == shard.shard_id]
    assert shard.starting_sequence_number not in held
    start = str(shard.starting_sequence_number)
    begun = read_at_once(client, start=start, shard_ids=[shard.shard_id])
    assert [record.sequence_number for record in begun] == held
