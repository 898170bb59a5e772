"""What somebody opened before is judged as the aggregated record that it was, whoever has opened it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from fuzz.invariants import frame
from kpl_codec.adapters import captured, kinesis_records, to_firehose, to_lambda
from kpl_codec.aws_lambda import process_user_records, user_records
from kpl_codec.aws_lambda.powertools import user_record_event
from kpl_codec.compat.aws_kinesis_agg.deaggregator import deaggregate_records
from spec.reference import shards as reference
from tests.examples import examples

from ..shards.test_shard_map import HALF, MAX, shard

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
SHARD, NUMBER = "shardId-000000000000", "49590338271490256608559692538361571095921575989136588898"
MAPS = [
    kpl.ShardMap([shard(0, 0, HALF - 1), shard(1, HALF, MAX)]),
    kpl.ShardMap([shard(0, 0, MAX)]),
    kpl.ShardMap([shard(1, 0, MAX)]),  # without the shard that the record is on
]
#: An opener: the user records that are kept of an aggregated record, in the form in which it gives them.
Opener = Callable[[list[kpl.UserRecord], Sequence[int]], Any]


def _of(users: list[kpl.UserRecord], kept: Sequence[int]) -> list[kpl.KinesisRecord]:
    return [
        kpl.KinesisRecord(users[i].partition_key, users[i].data, NUMBER, SHARD, None, None, i, stream=ARN)
        for i in kept
    ]


def _event(users: list[kpl.UserRecord]) -> dict[str, Any]:
    return to_lambda([kpl.KinesisRecord("a", kpl.encode(users), NUMBER, SHARD)], stream_arn=ARN)


def _rows(users: list[kpl.UserRecord], kept: Sequence[int], **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "sequenceNumber": NUMBER,
            "subSequenceNumber": i,
            "partitionKey": users[i].partition_key,
            "data": b64encode(users[i].data).decode(),
            "shardId": SHARD,
            **more,
        }
        for i in kept
    ]


def drop_in(users: list[kpl.UserRecord], kept: Sequence[int]) -> Any:
    opened = deaggregate_records(_event(users)["Records"])
    return {"Records": [opened[i] for i in kept]}


def drop_in_member(users: list[kpl.UserRecord], kept: Sequence[int]) -> Any:
    return [{**row["kinesis"], "shardId": SHARD} for row in drop_in(users, kept)["Records"]]


def powertools(users: list[kpl.UserRecord], kept: Sequence[int]) -> Any:
    opened = user_record_event(_event(users))["Records"]
    return {"Records": [opened[i] for i in kept]}


def firehose(users: list[kpl.UserRecord], kept: Sequence[int]) -> Any:
    return to_firehose(_of(users, kept), delivery_stream_arn=ARN)


def daemon(users: list[kpl.UserRecord], kept: Sequence[int]) -> Any:
    rows = _rows(users, kept, action="record")
    return {"action": "processRecords", "shardId": SHARD, "records": rows}


def kclpy(users: list[kpl.UserRecord], kept: Sequence[int]) -> Any:
    names = ("partition_key", "sequence_number", "sub_sequence_number")
    return [
        SimpleNamespace(binary_data=row.data, **{name: getattr(row, name) for name in names})
        for row in _of(users, kept)
    ]


def java_kcl(users: list[kpl.UserRecord], kept: Sequence[int]) -> Any:
    rows = _rows(users, kept, aggregated=True, encryptionType=None, schema=None)
    return "\n".join(
        json.dumps({**row, "explicitHashKey": users[row["subSequenceNumber"]].explicit_hash_key})
        for row in rows
    )


def npm(users: list[kpl.UserRecord], kept: Sequence[int]) -> Any:
    return "".join(
        json.dumps({**row, "explicitPartitionKey": users[row["subSequenceNumber"]].explicit_hash_key})
        for row in _rows(users, kept)
    )


#: Who gives explicit hash keys on; who does not; who marks each user record as aggregated; who is the KCL.
KEYS, NO_KEYS = [drop_in, drop_in_member, powertools, java_kcl, npm], [firehose, daemon, kclpy]
MARKING, KCL = [drop_in, drop_in_member, powertools, java_kcl], [daemon, kclpy, java_kcl]


def unopened(users: list[kpl.UserRecord], shard_map: kpl.ShardMap) -> list[kpl.DeaggregatedRecord]:
    record = kpl.KinesisRecord("a", kpl.encode(users), NUMBER, SHARD, stream=ARN)
    return list(kpl.deaggregate([record], "report", shard_map=shard_map))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Opener, list[kpl.UserRecord], list[int]]:
    opener = draw(st.sampled_from([*KEYS, *NO_KEYS]))
    keys = st.none() | st.sampled_from(["0", str(HALF - 1), str(HALF), str(MAX)])
    user = st.builds(
        kpl.UserRecord,
        st.text("abcdefg", min_size=1, max_size=2),
        st.sampled_from([b"", b"data", kpl.encode([kpl.UserRecord("k", b"inner")]), frame(b"\x0a\x01a")]),
        keys if opener in KEYS else st.none(),
    )
    users = draw(st.lists(user, min_size=1, max_size=6))
    kept = draw(st.lists(st.sampled_from(range(len(users))), min_size=1, unique=True).map(sorted))
    return opener, users, draw(st.sampled_from([kept, [*range(len(users))]]))


#: The second key is of the other half of hash keys.
USERS = [kpl.UserRecord("a", b"1"), kpl.UserRecord("d", b"2"), kpl.UserRecord("a", b"3")]


@pytest.mark.requirement("PLC-3", "PLC-6", "PLC-7", "DAG-8", "SPK-2", "SPK-3")
@settings(max_examples=examples(300))
@given(cases(), st.sampled_from(MAPS))
@example((firehose, USERS, [0, 1, 2]), MAPS[0])
@example((firehose, USERS, [1]), MAPS[0])
@example((drop_in, USERS[1:2], [0]), MAPS[0])
@example((powertools, USERS, [0, 1, 2]), MAPS[0])
@example((npm, [USERS[0], USERS[2]], [1]), MAPS[0])
def test_opened_and_unopened_differ_only_where_a_fact_is_gone(
    case: tuple[Opener, list[kpl.UserRecord], list[int]], shard_map: kpl.ShardMap
) -> None:
    opener, users, kept = case
    truth = unopened(users, shard_map)
    read = list(kinesis_records(opener(users, kept), shard_id=SHARD, stream=ARN))
    rows = list(kpl.deaggregate(read, "report", shard_map=shard_map))
    assert rows == list(kpl.deaggregate(iter(read), "report", shard_map=shard_map)), "read one by one"
    assert [(row.sub_sequence_number, row.data) for row in rows] == [(i, users[i].data) for i in kept]
    known = opener in MARKING or kept != [0]  # else it looks like a plain record
    expected = reference.opened_before(
        [(i, truth[i].placement and truth[i].placement.in_range) for i in kept], by_kcl=opener in KCL
    )
    for i, row in zip(kept, rows, strict=True):
        mine, theirs = row.placement, truth[i].placement
        assert mine is not None
        assert theirs is not None
        assert row.aggregated == known
        assert (mine.hash_key, mine.in_range) == (theirs.hash_key, theirs.in_range)
        assert mine.verdict == theirs.verdict or not known
        if known and mine.in_range is not None:
            assert row.kcl == expected
        if known and opener not in KCL and kept == [*range(len(users))]:
            assert (row.kcl, mine) == (truth[i].kcl, theirs), "all facts are there"
    dropped = [row.kcl for row in rows].count("dropped")
    assert dropped in (0, len(rows))
    assert not dropped or truth[0].kcl == "dropped", "what is called dropped was dropped"
    drops: list[kpl.Drop] = []
    left = list(kpl.deaggregate(read, "kcl", shard_map=shard_map, on_drop=drops.append))
    assert (len(left), sum(drop.user_records for drop in drops)) == (len(rows) - dropped, dropped)
    outside = [i for i, row in zip(kept, rows, strict=True) if row.placement and not row.placement.in_range]
    assert {drop.record_index for drop in drops} == ({outside[0]} if dropped else set())
    if opener in (drop_in, powertools):
        event, handled, reported = opener(users, kept), list[Any](), list[kpl.Drop]()
        options: Any = {"policy": "kcl", "shard_map": shard_map, "on_drop": reported.append}
        assert list(user_records(event, "report", shard_map=shard_map)) == rows
        assert process_user_records(event, handled.append, **options) == {"batchItemFailures": []}
        assert (handled, reported) == (left, drops)


@pytest.mark.requirement("PLC-6")
def test_an_iterator_is_not_read_ahead() -> None:
    """It may be of a live stream. A list of the same records shows their siblings."""
    taken: list[int] = []

    def live() -> Any:
        for index, record in enumerate(kclpy(USERS, range(3))):
            taken.append(index)
            yield record

    next(kinesis_records(live()))
    assert taken == [0]
    (first, *_) = kinesis_records(kclpy(USERS, range(3)))
    assert first.opened_before is not None
    assert len(first.opened_before.user_records) == 3


@pytest.mark.requirement("PLC-6", "CAP-1")
def test_what_cat_prints_is_no_capture_and_others_marks_are() -> None:
    line = {"sequenceNumber": "1", "partitionKey": "k", "aggregated": True, "data": "text"}
    printed = [line, {**line, "approximateArrivalTimestamp": "2026-11-21T00:00:00+00:00"}]
    read = [
        {**line, "approximateArrivalTimestamp": 1545084650.987},
        {**line, "approximateArrivalTimestamp": "2026-11-21T00:00:00.000Z"},
        {**line, "encryptionType": None},
        {**line, "kinesisSchemaVersion": "1.0", "recordId": "7"},
    ]
    assert [str(error)[-60:] for error in captured(printed) if "cat" not in str(error)] == []
    assert [one.aggregated for one in kpl.deaggregate(kinesis_records(read))] == [True] * 4
    (error,) = captured({**read[2], "aggregated": "yes"})
    assert (error.code, error.fields["field"]) == ("wrong-type", "aggregated")  # type: ignore[union-attr]
