"""A law of reading a stream: each record once, each shard after its parents, and an end, while it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import example, given, settings
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
from ..spark.source.model import HOUR, ModelKinesis

#: Records of one answer.
_MOST = 2
#: Seconds that pass: iterators live for five minutes, records for a day.
_PASSES = {"second": 1.0, "minutes": 360.0, "day": 25 * HOUR}
_CHANGES = st.lists(st.sampled_from(["put", "split", "merge", "minutes", "nothing"]), max_size=30)
#: What happens before reading begins.
_BEFORE = st.lists(st.sampled_from(["put", "put", "split", "merge"]), max_size=20)


class ChangingStream(ModelKinesis):
    """A stream with six records. Before each GetRecords the next of ``steps`` happens, ``then`` always the
    same."""

    def __init__(self, steps: list[str], then: str = "nothing", *, shards: int = 2) -> None:
        super().__init__(shards, silent=True)
        self.steps, self._then = iter(steps), then
        for _ in range(6):
            self.step("put")

    def step(self, what: str) -> None:
        if what in ("put", "split", "merge"):
            self.now += 0.01
            self.put()
        if what in ("split", "merge"):  # between two records that are put
            getattr(self, what)(len(self.shards))
            self.put()
        self.now += _PASSES.get(what, 0.0)

    def get_records(self, *, ShardIterator: str, Limit: int = 10_000, **_: Any) -> Any:
        assert self.calls["get_records"] < 5000, "reading does not end"
        self.step(next(self.steps, self._then))
        return super().get_records(ShardIterator=ShardIterator, Limit=min(Limit, _MOST))

    def numbers(self, shard_id: str) -> list[str]:
        return [str(number) for number, _, _ in self.shards[shard_id].records]


def read_at_once(client: Any, **options: Any) -> Iterator[kpl.KinesisRecord]:
    """`read_stream` without waiting."""
    return _steps_of(async_read_stream(lambda _: None, client, "orders", **options))


@given(_CHANGES)
def test_a_stream_that_is_written_to_all_the_time_has_a_tip_all_the_same(changes: list[str]) -> None:
    client = ChangingStream(changes, "put")
    before = client.names()
    read = [(str(record.shard_id), record.sequence_number) for record in islice(read_at_once(client), 1000)]
    assert before <= set(read)
    assert len(set(read)) == len(read) < 1000


@given(st.lists(st.sampled_from(["put", "split", "merge", "nothing"]), max_size=30))
def test_latest_waits_for_what_comes_and_skips_none_of_it(changes: list[str]) -> None:
    client = ChangingStream(["nothing", "nothing", *changes])  # each shard is looked at once
    before = client.names()
    put = changes.count("put") + 2 * changes.count("split") + 2 * changes.count("merge")
    records = islice(read_at_once(client, start="LATEST", follow=True), put)
    read = [(str(record.shard_id), str(record.sequence_number)) for record in records]
    assert sorted(read) == sorted(client.names() - before)


@pytest.mark.requirement("MAP-31")
@settings(max_examples=examples(200))
@given(_BEFORE, _CHANGES, st.lists(st.integers(0, 20), max_size=4), st.booleans())
@example([], [*["put"] * 4, "split"], [], False)  # a shard that was read to its tip, and has closed since
def test_runs_that_go_on_at_positions_give_each_record_once(
    before: list[str], changes: list[str], stops: list[int], keeps_parents: bool
) -> None:
    """The loop of spec/guides/read.md, ended after some records and begun again."""
    client = ChangingStream(changes)
    for change in before:
        client.step(change)
    positions, read = dict[str, str](), list[tuple[str, str]]()
    for run, stop in enumerate([*stops, None, None]):
        if run > len(stops):  # in the last run nothing changes
            client.steps = iter([])
        for record in islice(read_at_once(client, start=positions), stop):
            shard_id, number = str(record.shard_id), str(record.sequence_number)
            read.append((shard_id, number))
            if shard_id not in positions and not keeps_parents:
                for parent in fetch_lineage(client, "orders").parents(shard_id):
                    positions.pop(parent.shard_id, None)
            positions[shard_id] = number
    assert sorted(read) == sorted(client.names())
    for at, (shard_id, _) in enumerate(read):
        assert not {other for other, _ in read[at:]} & {*client.shards[shard_id].parents}
        same = [int(number) for other, number in read[at:] if other == shard_id]
        assert same == sorted(same)


_SHARD, _NUMBER = "shardId-000000000000", "49545115243490985018280067714973144582180062593244200961"


@pytest.mark.requirement("MAP-31")
def test_each_position_that_cannot_be_gone_on_from_is_refused_by_name() -> None:
    client = ChangingStream([], shards=1)
    words = ("SHARD_END", "TRIM_HORIZON", "LATEST", "-1", "")
    for number, kind in [(None, TypeError), (5, TypeError), *((word, ValueError) for word in words)]:
        with pytest.raises(
            kind, match=rf"start of read_stream is .* for shard '{_SHARD}', give .* by shard id the sequence"
        ):
            read_stream(client, "orders", start={_SHARD: number})  # type: ignore[dict-item]
    with pytest.raises(UnknownShard, match=r"shardId-77 is not in the listing of orders.*out of start"):
        list(read_at_once(client, start={"shardId-77": _NUMBER}))
    with pytest.raises(UnknownShard, match=rf"shard 0 is not in .* of orders, which has 1 shard: {_SHARD}"):
        list(read_at_once(client, shard_ids=["0"]))
    first, *behind, last = client.numbers(_SHARD)
    assert [r.sequence_number for r in read_at_once(client, start={_SHARD: first})] == [*behind, last]
    assert not list(read_at_once(client, start={_SHARD: last}))
    client.step("day")  # nothing says whether a record behind the last one was there
    for number in (first, last):
        with pytest.raises(StreamUnavailable, match="RecordTrimmed"):
            list(read_at_once(client, start={_SHARD: number}))


@pytest.mark.requirement("MAP-29")
def test_the_number_with_which_a_shard_begins_names_no_record() -> None:
    client = ChangingStream([])
    start = str(fetch_shard_map(client, "orders")[_SHARD].starting_sequence_number)
    held = client.numbers(_SHARD)
    assert start not in held
    begun = read_at_once(client, start=start, shard_ids=[_SHARD])
    assert [record.sequence_number for record in begun] == held


ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
CALLS = (
    "describe_stream_consumer",
    "describe_stream_summary",
    "get_shard_iterator",
    "list_shards",
    "register_stream_consumer",
)


@pytest.mark.requirement("MAP-14")
@every(
    "request_of",
    [
        lambda client: fetch_shard_map(client, "orders", patience=0),
        lambda client: read_record(client, "orders", shard_id=_SHARD, sequence_number="1", patience=0),
        lambda client: StreamConsumers(client, patience=0).describe_stream("orders"),
        lambda client: StreamConsumers(client, patience=0).require_active("orders", "reader"),
        lambda client: StreamConsumers(client, patience=0).require_active(ARN, "reader"),
        lambda client: StreamConsumers(client, patience=0).require_active("", f"{ARN}/consumer/reader:1"),
    ],
)
def test_a_truncated_response_is_a_call_that_failed(request_of: Callable[[Any], object]) -> None:
    """botocore makes a success without members of one that was cut short."""
    client = Mock(spec=CALLS, **{f"{call}.return_value": {"ResponseMetadata": {}} for call in CALLS})
    with pytest.raises(
        StreamUnavailable, match=r"IncompleteAnswer|answer without|malformed|has no list"
    ) as caught:
        request_of(client)
    assert "permanent" not in caught.value.fields or not caught.value.fields["permanent"]
    assert not client.register_stream_consumer.called  # nobody knows that there is none


@pytest.mark.requirement("MAP-29")
@given(
    st.lists(st.sampled_from(["put", *_PASSES]), max_size=12),
    st.sampled_from([[], ["minutes"], ["day"], ["put", "day", "put"]]),
    st.none() | st.integers(0, 5),
)
def test_each_record_is_given_or_that_it_may_be_gone_is_an_error(
    steps: list[str], before: list[str], start: int | None
) -> None:
    stream = ChangingStream(steps, shards=1)
    begin = TRIM_HORIZON if start is None else at_record(stream.numbers(_SHARD)[start])
    for what in before:  # between the reader's last run and this one
        stream.step(what)
    cursor = ShardCursor(stream, "orders", _SHARD, begin, now=stream.clock, sleep=lambda _: None)
    read: list[str] = []
    try:
        while next_step := next(stream.steps, None):
            stream.step(next_step)
            read += [record["SequenceNumber"] for record in run_sync(cursor.read_whole()).records]
        while not cursor.at_tip:
            read += [record["SequenceNumber"] for record in run_sync(cursor.read_whole()).records]
    except StreamUnavailable as error:
        assert error.code == "RecordTrimmed"
        # It is no false alarm: the record that reading goes on from is gone.
        assert (_SHARD, read[-1] if read else begin.sequence_number) not in stream.names(left=True)
        whole = False
    else:
        whole = True
    stored = stream.numbers(_SHARD)
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
        list(read_at_once(Silent([]), patience=0))
