"""Records of several streams and one shard map: a map judges the records of its own stream, or none. Which
stream a captured record is of: tests/adapters/test_streams_of_records.py."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kpl_codec as kpl
from kpl_codec.adapters import to_get_records, to_lambda
from kpl_codec.arrow import deaggregate_batches, deaggregate_table
from kpl_codec.aws_lambda import process_user_records, user_records
from kpl_codec.format.hash_keys import partition_key_hash
from kpl_codec.shards.placement import verify_placement
from kpl_codec.shards.stream_name import SeveralStreams, stream_name
from kpl_codec.validate import LocalEngine, validate

from ..deaggregation.test_policies import NOT_RAISING
from ..every import every

_numbers = itertools.count(10**55)
KEYS = [f"key-{number}" for number in range(40)]
#: Shards of each stream. Half of what `b` holds lies on the wrong shard.
SHARDS = {"a": 1, "b": 2}
#: What the KCL loses of each.
LOST = {"a": 0, "b": 3 * sum(partition_key_hash(key) >= 2**127 for key in KEYS)}
SHARD = "shardId-000000000000"


def map_of(name: str, *, named: bool) -> kpl.ShardMap:
    ranges = kpl.ALL_HASH_KEYS.split(SHARDS[name])
    shards = [kpl.Shard(f"shardId-{number:012d}", held) for number, held in enumerate(ranges)]
    return kpl.ShardMap(shards, stream=name if named else None)


def rows_of(name: str) -> list[dict[str, Any]]:
    return [
        {
            "streamName": name,
            "shardId": SHARD,
            "sequenceNumber": str(next(_numbers)),
            "partitionKey": key,
            "data": kpl.encode([kpl.UserRecord(key, f"{key} {sub}".encode()) for sub in range(3)]),
        }
        for key in KEYS
    ]


def arn(name: str, region: str = "us-east-1", account: str = "123456789012") -> str:
    return f"arn:aws:kinesis:{region}:{account}:stream/{name}"


HERE = arn("orders")
#: Streams of another name, region and account.
OTHERS = [arn("payments"), arn("orders", "eu-west-1"), arn("orders", account="210987654321")]
#: What a map may say of its stream.
OWN = [HERE, "orders", arn("payments"), None]


def of_map(own: str | None, stream: str | None) -> bool:
    """Whether a map of ``own`` judges the records of ``stream``: a bare name stands for the streams of that
    name, and None for any."""
    if own is None or stream is None or ":" not in own or ":" not in stream:
        return None in (own, stream) or stream_name(own) == stream_name(stream)
    return own == stream


def shard_map(own: str | None) -> kpl.ShardMap:
    return kpl.ShardMap(map_of("b", named=False).values(), stream=own)


def records_of(*streams: str | None) -> list[kpl.KinesisRecord]:
    """Of each stream in turn, so that every neighbour is of another one."""
    each = [rows_of("b")[:6] for _ in streams]
    return [
        kpl.KinesisRecord(row["partitionKey"], row["data"], row["sequenceNumber"], SHARD, stream=stream)
        for rows in zip(*each, strict=True)
        for row, stream in zip(rows, streams, strict=True)
    ]


def table_of(records: list[kpl.KinesisRecord]) -> pa.Table:
    fields = {"streamName": "stream", "shardId": "shard_id", "sequenceNumber": "sequence_number"}
    fields |= {"partitionKey": "partition_key", "data": "data"}
    return pa.table({name: [getattr(one, field) for one in records] for name, field in fields.items()})


Row = tuple[str | None, bytes, str | None, str | None]


def rows(records: Any) -> list[Row]:
    return [
        (one.sequence_number, one.data, one.placement and one.placement.verdict, one.kcl) for one in records
    ]


def rows_of_table(table: pa.Table) -> list[Row]:
    columns = ("sequenceNumber", "data", "placement", "kcl")
    return [tuple(row.get(name) for name in columns) for row in table.to_pylist()]


@pytest.mark.requirement("SPK-3", "SPK-110", "SPK-111", "DAG-12", "LMB-21")
@every("policy", NOT_RAISING)
@every("other", OTHERS)
@every("own", OWN)
def test_whoever_opens_records_judges_each_by_the_map_of_its_stream(
    own: str | None, other: str, policy: Any
) -> None:
    """As objects, in columns, and in an event of Lambda: each record as if it were there alone."""
    shards, streams = shard_map(own), [HERE, "orders", None, other]
    records = records_of(*streams)
    of_arns = [one for one in records if one.stream in (HERE, other)]
    events = [to_lambda([one], stream_arn=f"{one.stream}/consumer/reader:1") for one in of_arns]
    event = {"Records": [record for one in events for record in one["Records"]]}
    called: list[kpl.DeaggregatedRecord] = []
    options: Any = {"policy": policy, "shard_map": shards, "on_drop": lambda drop: None}

    def expected(given: list[kpl.KinesisRecord]) -> Iterator[kpl.DeaggregatedRecord]:
        for one in given:
            yield from kpl.deaggregate([one], policy, shard_map=shards if of_map(own, one.stream) else None)

    if of_map(own, HERE) and of_map(own, other):
        readers = (
            lambda: list(kpl.deaggregate(records, policy, shard_map=shards)),
            lambda: list(kpl.deaggregate(iter(records), policy, shard_map=shards)),
            lambda: list(
                deaggregate_batches(table_of(records).to_batches(max_chunksize=1), policy, shard_map=shards)
            ),
            lambda: deaggregate_table(table_of(records), policy, shard_map=shards, threads=2),
            lambda: list(user_records(event, policy, shard_map=shards)),
            lambda: process_user_records(event, called.append, **options),
        )
        for reader in readers:
            with pytest.raises(SeveralStreams, match="stream=NAME"):
                reader()
        assert called == []
        return
    for source in (records, iter(records)):
        opened = kpl.deaggregate(source, policy, shard_map=shards)
        assert list(opened) == list(expected(records))
        dropped = opened.counts.dropped["out-of-range"]
    made = deaggregate_table(table_of(records), policy, shard_map=shards)
    assert rows_of_table(made.table) == rows(expected(records))
    assert made.counts.dropped["out-of-range"] == dropped
    assert rows(user_records(event, policy, shard_map=shards)) == rows(expected(of_arns))
    assert process_user_records(event, called.append, **options) == {"batchItemFailures": []}
    assert rows(called) == rows(expected(of_arns))


def parquet(records: list[kpl.KinesisRecord], file: Path) -> None:
    table = table_of(records)
    names = [stream_name(one.stream) for one in records]
    table = table.set_column(0, "streamName", pa.array(names)).append_column("streamArn", table["streamName"])
    pq.write_table(table, file)


def answers(records: list[kpl.KinesisRecord], file: Path) -> None:
    said = (
        {**to_get_records([one], dump=True), "ShardId": SHARD, "StreamARN": one.stream} for one in records
    )
    file.write_text("\n".join(map(json.dumps, said)))


@pytest.mark.requirement("SPK-110", "SPK-111", "SPK-43", "CAP-30")
@every("write, apart", [(answers, False), (parquet, True)])
@every("other", OTHERS)
@every("own", OWN)
def test_validate_judges_each_record_by_the_map_of_its_stream(
    own: str | None, other: str, write: Any, apart: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A task that sees two streams that the map cannot tell apart ends; of tasks that see one each the job
    knows it at its end. Then nothing is left of it."""
    tmp_path = tmp_path_factory.mktemp("run")
    records = records_of(HERE, other)
    (tmp_path / "in").mkdir()
    for stream in (HERE, other) if apart else (None,):
        of_file = [one for one in records if stream in (None, one.stream)]
        write(of_file, tmp_path / f"in/{str(stream).replace('/', '-')}")
    ran: list[int] = []

    class Counting(LocalEngine):
        def run(self, job: Any) -> None:
            ran.append(len(job.tasks))
            super().run(job)

    def run() -> Any:
        given = [str(tmp_path / "in")], shard_map(own)
        engine, task_bytes = Counting(cores=1), 1 if apart else None
        return validate(*given, output=str(tmp_path / "out"), engine=engine, task_bytes=task_bytes)

    judged = {stream for stream in (HERE, other) if of_map(own, stream)}
    if len(judged) > 1:
        with pytest.raises(SeveralStreams, match="records of "):
            run()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]
    else:
        summary = run().summary
        users = pq.read_table(tmp_path / "out/user-records").to_pylist()
        mine = [one.sequence_number for one in records if one.stream in judged]
        assert ("other-stream" in {kind["name"] for kind in summary["kinds"]}) == (len(mine) < len(records))
        for column in ("placement", "expectedShardId", "aggregatePlacement", "inRange", "hashKey"):
            assert {one["sequenceNumber"] for one in users if one[column] is not None} == {*mine}
        lost = [one for one in users if one["kcl"] == "dropped"]
        assert {one["sequenceNumber"] for one in lost} <= {*mine}
        assert (summary["totals"]["lostAtKcl"] > 0) == bool(lost) == bool(mine)
        # Another stream with the name of the map's is told by its ARN.
        beside = {
            one if own == HERE and one.endswith("orders") else stream_name(one)
            for one in {HERE, other} - judged
        }
        assert {one["streamName"] for one in users if one["sequenceNumber"] not in mine} == beside
    assert ran == [2 if apart else 1]


@pytest.mark.requirement("SPK-110")
def test_one_record_of_another_stream_has_no_verdict() -> None:
    for own, stream in itertools.product(OWN, [*OTHERS, HERE, "orders", "payments", None]):
        for spelling in (stream, *([f"{stream}/consumer/app:1"] if stream in (HERE, *OTHERS) else [])):
            record = kpl.KinesisRecord(KEYS[0], b"", "1", SHARD, stream=spelling)
            known = verify_placement(record, shard_map(own)).verdict != "unknown-shard"
            assert known == of_map(own, stream), (own, spelling)


@pytest.mark.requirement("SPK-110")
def test_a_map_that_is_written_down_says_whose_it_is() -> None:
    for own in OWN:
        given = shard_map(own)
        again = kpl.ShardMap.from_json(given.to_json())
        assert (again, again.stream) == (given, given.stream)
    listed = [shard.to_aws() for shard in shard_map(None).values()]
    about = {
        "StreamName": "orders",
        "StreamARN": HERE,
        "StreamCreationTimestamp": "2026-01-02T03:04:05+00:00",
    }
    described = {"StreamDescription": {**about, "HasMoreShards": False, "Shards": listed}}
    stream = kpl.ShardMap.from_json(json.dumps(described)).stream
    assert stream is not None
    assert (stream.name, stream.arn, stream.region) == ("orders", HERE, "us-east-1")
    assert stream.created is not None
    told = kpl.ShardMap.from_json(json.dumps({"Shards": listed}), stream="b").stream
    assert told is not None
    assert told.name == "b"
    odds: tuple[Any, ...] = (5, "", "a b", None, ["x"], {})
    for odd in odds:
        page = {"StreamName": odd, "StreamARN": odd, "StreamCreationTimestamp": odd, "Shards": listed}
        assert kpl.ShardMap.from_list_shards(page).stream is None
