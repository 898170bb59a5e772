"""Streams of one name in two regions or accounts are two streams: by their ARNs, wherever these are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kpl_codec as kpl
from kpl_codec.adapters import kinesis_records, to_firehose, to_get_records, to_lambda
from kpl_codec.arrow import deaggregate_table
from kpl_codec.aws_lambda import process_user_records, user_records
from kpl_codec.shards.stream_name import SeveralStreams

from ..deaggregation.every_policy import NOT_RAISING
from .test_job import validate_files

HERE = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
ELSEWHERE = {
    "another region": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
    "another account": "arn:aws:kinesis:us-east-1:210987654321:stream/orders",
}
SHARD = "shardId-000000000000"
#: In one aggregate, those of both halves of the hash keys: the KCL drops all of it.
USERS = [kpl.UserRecord(f"key-{number}", b"%d" % number) for number in range(8)]


def records_of(arn: str, first: int, count: int = 5) -> list[kpl.KinesisRecord]:
    data = kpl.encode(USERS)
    numbers = range(10**55 + first, 10**55 + first + count)
    return [kpl.KinesisRecord("a", data, str(number), SHARD, stream=arn) for number in numbers]


def map_of(stream: str | None) -> kpl.ShardMap:
    ranges = kpl.ALL_HASH_KEYS.split(2)
    shards = [kpl.Shard(f"shardId-{number:012d}", held) for number, held in enumerate(ranges)]
    return kpl.ShardMap(shards, stream=stream)


def parquet(records: list[kpl.KinesisRecord], file: Path, **columns: list[Any]) -> None:
    rows = [
        [record.data, record.sequence_number, record.shard_id, record.partition_key] for record in records
    ]
    names = ["data", "sequenceNumber", "shardId", "partitionKey"]
    table = pa.table([list(column) for column in zip(*rows, strict=True)], names)
    for name, column in columns.items():
        table = table.append_column(name, pa.array(column))
    pq.write_table(table, file)


def lines(shape: Callable[[list[kpl.KinesisRecord], str], Any]) -> Callable[..., None]:
    def write(records: list[kpl.KinesisRecord], file: Path) -> None:
        file.write_text("\n".join(json.dumps(shape([one], str(one.stream))) for one in records))

    return write


#: Writes records, of several streams, to a file.
FORMS: dict[str, Callable[[list[kpl.KinesisRecord], Path], None]] = {
    "events of Lambda": lines(lambda each, arn: to_lambda(each, stream_arn=arn)),
    "of enhanced fan-out": lines(lambda each, arn: to_lambda(each, stream_arn=f"{arn}/consumer/app:1")),
    "events of Firehose": lines(
        lambda each, arn: to_firehose(each, delivery_stream_arn="arn:aws:firehose:::x")
    ),
    "answers": lines(
        lambda each, arn: {**to_get_records(each, dump=True), "StreamARN": arn, "ShardId": SHARD}
    ),
    "Parquet, streamName": lambda each, file: parquet(each, file, streamName=[one.stream for one in each]),
    "Parquet, streamArn beside it": lambda each, file: parquet(
        each, file, streamName=["orders"] * len(each), streamArn=[one.stream for one in each]
    ),
}


@pytest.mark.requirement("SPK-110", "SPK-111", "CAP-30")
@pytest.mark.parametrize("files", ["one file", "a file each"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("where", ELSEWHERE)
@pytest.mark.parametrize("map_is", ["of here", "of elsewhere", "of the name", "of no stream"])
def test_validate_judges_each_by_its_own_map(
    map_is: str, where: str, form: str, files: str, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "in").mkdir()
    each = [records_of(HERE, 0), records_of(ELSEWHERE[where], 100, 3)]
    if files == "one file":
        turns = [one for pair in zip(*each, strict=False) for one in pair] + each[0][3:]
        FORMS[form](turns, tmp_path / "in/all")
    else:
        for number, records in enumerate(each):
            FORMS[form](records, tmp_path / f"in/{number}")
    known = {"of here": HERE, "of elsewhere": ELSEWHERE[where], "of the name": "orders", "of no stream": None}
    own = known[map_is]
    judged = [one.sequence_number for records in each for one in records if one.stream == own]
    status = validate_files(tmp_path / "in", map_of(own), tmp_path / "out", "--cores", "1")
    if own in ("orders", None):  # it may be the map of either
        assert status == 2
        assert f"records of {min(HERE, ELSEWHERE[where])} and" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
        return
    assert status == 1
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    kinds = {kind["name"] for kind in summary["kinds"]}
    assert "other-stream" in kinds
    assert "duplicate" not in kinds
    assert summary["totals"]["lostAtKcl"] == len(USERS) * len(judged)
    users = pq.read_table(tmp_path / "out/user-records").to_pylist()
    assert len(users) == 8 * len(USERS)
    assert {user["sequenceNumber"] for user in users if user["placement"] is not None} == set(judged)
    assert {user["streamName"] for user in users if user["sequenceNumber"] in judged} <= {"orders"}
    assert {user["sequenceNumber"] for user in users if user["kcl"] == "dropped"} == set(judged)


@pytest.mark.requirement("SPK-110", "SPK-111", "LMB-21")
@pytest.mark.parametrize("policy", NOT_RAISING)
def test_objects_columns_and_events_are_judged_by_their_own_map_or_refused(policy: Any) -> None:
    there = ELSEWHERE["another region"]
    both = [one for pair in zip(records_of(HERE, 0), records_of(there, 50), strict=True) for one in pair]
    names = ["streamName", "shardId", "sequenceNumber", "partitionKey", "data"]
    columns = [
        [getattr(one, name) for one in both]
        for name in ("stream", "shard_id", "sequence_number", "partition_key", "data")
    ]
    table = pa.table(columns, names)
    event = {
        "Records": [row for one in both for row in to_lambda([one], stream_arn=str(one.stream))["Records"]]
    }
    assert [*kinesis_records(event)] == both
    named = map_of(there)
    rows = kpl.deaggregate(both, policy, shard_map=named)
    places = {(row.sequence_number, row.placement is None) for row in rows}
    assert {number for number, unjudged in places if unjudged} == {one.sequence_number for one in both[::2]}
    assert deaggregate_table(table, policy, shard_map=named).table.num_rows == rows.counts.user_records
    # A bare name stands for either.
    for beside in (both, [both[0].replace(stream="orders"), *both]):
        for stream in ("orders", None):
            with pytest.raises(SeveralStreams):
                list(kpl.deaggregate(beside, policy, shard_map=map_of(stream)))
    for stream in ("orders", None):
        with pytest.raises(SeveralStreams):
            deaggregate_table(table, policy, shard_map=map_of(stream))
        with pytest.raises(SeveralStreams):
            list(user_records(event, policy, shard_map=map_of(stream)))
        dropped: dict[str, Any] = {} if policy == "report" else {"on_drop": print}
        called: list[Any] = []
        with pytest.raises(SeveralStreams):
            process_user_records(event, called.append, policy=policy, shard_map=map_of(stream), **dropped)
        assert called == []
