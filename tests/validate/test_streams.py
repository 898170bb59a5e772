"""Records of several streams and one shard map: a map judges the records of its own stream, or none."""

from __future__ import annotations

import base64
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.adapters import kinesis_records, to_firehose, to_get_records
from kpl_codec.arrow import deaggregate_batches, deaggregate_table
from kpl_codec.aws_lambda import process_user_records, user_records
from kpl_codec.format.hash_keys import partition_key_hash
from kpl_codec.shards.placement import verify_placement
from kpl_codec.shards.stream_name import SeveralStreams
from kpl_codec.validate import LocalEngine, validate

from ..deaggregation.every_policy import NOT_RAISING, rules
from .test_job import validate_files

_numbers = itertools.count(10**55)
KEYS = [f"key-{number}" for number in range(40)]
#: Shards of each stream. Half of what `b` holds lies on the wrong shard.
SHARDS = {"a": 1, "b": 2}
#: What the KCL loses of each.
LOST = {"a": 0, "b": 3 * sum(partition_key_hash(key) >= 2**127 for key in KEYS)}


def map_of(name: str, *, named: bool) -> kpl.ShardMap:
    ranges = kpl.ALL_HASH_KEYS.split(SHARDS[name])
    shards = [kpl.Shard(f"shardId-{number:012d}", held) for number, held in enumerate(ranges)]
    return kpl.ShardMap(shards, stream=name if named else None)


def rows_of(name: str) -> list[dict[str, Any]]:
    return [
        {
            "streamName": name,
            "shardId": "shardId-000000000000",
            "sequenceNumber": str(next(_numbers)),
            "partitionKey": key,
            "data": kpl.encode([kpl.UserRecord(key, f"{key} {sub}".encode()) for sub in range(3)]),
        }
        for key in KEYS
    ]


def interleaved(streams: str) -> list[dict[str, Any]]:
    """Of two streams in turn, so that every neighbour is of another one."""
    each = [rows_of(name) for name in streams]
    return [row for rows in zip(*each, strict=True) for row in rows]


def capture(rows: list[dict[str, Any]], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as out:
        for row in rows:
            record = {
                "Data": base64.b64encode(row["data"]).decode(),
                "PartitionKey": row["partitionKey"],
                "SequenceNumber": row["sequenceNumber"],
                "ApproximateArrivalTimestamp": 1.7e9,
            }
            line = {"StreamName": row["streamName"], "ShardId": row["shardId"], "Records": [record]}
            out.write(json.dumps(line) + "\n")


@pytest.mark.requirement("SPK-110", "SPK-111")
@pytest.mark.parametrize("files", ["one file", "a file each"])
@pytest.mark.parametrize("named", [True, False], ids=["a map that says whose it is", "one that does not"])
@pytest.mark.parametrize("own", ["a", "b"])
@pytest.mark.parametrize("streams", ["a", "b", "ab"])
def test_no_verdict_by_another_streams_map(
    streams: str, own: str, named: bool, files: str, tmp_path: Path, capsys: Any
) -> None:
    if not named and streams != own and len(streams) == 1:
        return  # nothing says that the only stream is not the map's
    rows, shards = interleaved(streams), map_of(own, named=named)
    if files == "one file":
        capture(rows, tmp_path / "in/all.jsonl")
    else:
        for name in streams:
            capture([row for row in rows if row["streamName"] == name], tmp_path / f"in/{name}.jsonl")
    out = tmp_path / "out"
    refused = not named and len(streams) > 1
    status = validate_files(tmp_path / "in", shards, out, "--cores", "1")
    if refused:
        assert status == 2
        assert "kpl-codec shards list --stream NAME --closed --json" in capsys.readouterr().err
        assert not out.exists()
        return
    summary = json.loads((out / "summary.json").read_text())
    kinds = {kind["name"] for kind in summary["kinds"]}
    judged = {own} & set(streams)
    lost = sum(LOST[name] for name in judged)
    assert summary["totals"]["lostAtKcl"] == lost
    assert ("other-stream" in kinds) == (judged != set(streams))
    assert status == (0 if judged == set(streams) and not lost else 1)
    columns = ["streamName", "placement", "expectedShardId", "aggregatePlacement", "inRange", "hashKey"]
    users = pq.read_table(out / "user-records", columns=[*columns, "kcl"]).to_pylist()
    assert len(users) == 3 * len(rows)
    for user in users:
        verdicts = [user[name] for name in columns[1:]]
        assert None not in verdicts if user["streamName"] in judged else verdicts == [None] * 5
    assert sum(user["kcl"] == "dropped" for user in users) == lost
    assert {user["streamName"] for user in users if user["kcl"] == "dropped"} <= judged


@pytest.mark.requirement("SPK-111", "SPK-43")
@pytest.mark.parametrize("tasks", [1, 3], ids=["one task", "a task each"])
def test_a_job_of_several_streams_reads_no_further_and_leaves_nothing(tasks: int, tmp_path: Path) -> None:
    """A task that sees two streams ends; of tasks that see one each the job does not know before."""
    for number in range(3):
        rows = rows_of("aab"[number]) if tasks > 1 else interleaved("ab")
        capture(rows, tmp_path / f"in/{number}.jsonl")
    ran: list[int] = []

    class Counting(LocalEngine):
        def run(self, job: Any) -> None:
            ran.append(len(job.tasks))
            super().run(job)

    with pytest.raises(SeveralStreams, match="records of a and b"):
        validate(
            [str(tmp_path / "in")],
            map_of("a", named=False),
            str(tmp_path / "out"),
            engine=Counting(cores=1),
            task_bytes=1 if tasks > 1 else None,
        )
    assert ran == [tasks]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def known(users: pa.Table) -> Counter[str]:
    """The rows, without what is null. (Placement columns are null where there is no map.)"""
    rows = users.to_pylist()
    return Counter(repr(sorted((k, v) for k, v in row.items() if v is not None)) for row in rows)


@pytest.mark.requirement("SPK-3", "SPK-110", "SPK-111")
@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("own", ["a", "b"])
def test_columns_are_those_of_each_stream_alone(policy: Any, own: str) -> None:
    """A row of another stream comes as without a map, whatever stands beside it."""
    rows, shards = interleaved("ab"), map_of(own, named=True)
    alone = {name: pa.Table.from_pylist([row for row in rows if row["streamName"] == name]) for name in "ab"}
    made = deaggregate_table(pa.Table.from_pylist(rows), policy, shard_map=shards).table
    expected: Counter[str] = Counter()
    for name, table in alone.items():
        given = shards if name == own else None
        expected += known(deaggregate_table(table, policy, shard_map=given).table)
    assert known(made) == expected
    assert made.num_rows == 3 * len(rows) - (LOST[own] if rules(policy).as_kcl else 0)
    nameless = map_of(own, named=False)
    for table in alone.values():
        deaggregate_table(table, policy, shard_map=nameless)
    batches = pa.Table.from_pylist(rows).to_batches(max_chunksize=1)
    with pytest.raises(SeveralStreams, match="stream=NAME"):
        list(deaggregate_batches(batches, policy, shard_map=nameless))
    with pytest.raises(SeveralStreams):
        deaggregate_table(pa.concat_tables(alone.values()), policy, shard_map=nameless, threads=2)


def event_of(*streams: str, region: str = "us-east-1", consumer: str = "") -> dict[str, Any]:
    arn = f"arn:aws:kinesis:{region}:123456789012:stream/"
    return {
        "Records": [
            {
                "eventID": f"{row['shardId']}:{row['sequenceNumber']}",
                "eventSource": "aws:kinesis",
                "eventSourceARN": arn + row["streamName"] + consumer,
                "kinesis": {
                    "partitionKey": row["partitionKey"],
                    "sequenceNumber": row["sequenceNumber"],
                    "data": base64.b64encode(row["data"]).decode(),
                    "approximateArrivalTimestamp": 1.7e9,
                },
            }
            for name in streams
            for row in rows_of(name)
        ]
    }


@pytest.mark.requirement("LMB-21", "SPK-111")
def test_an_event_is_judged_by_the_map_of_its_stream() -> None:
    def verdicts(event: dict[str, Any], shards: kpl.ShardMap) -> set[str | None]:
        found: set[str | None] = set()

        def handle(record: kpl.DeaggregatedRecord) -> None:
            found.add(record.placement and record.placement.verdict)

        assert process_user_records(event, handle, shard_map=shards) == {"batchItemFailures": []}
        lazily = user_records(event, shard_map=shards)
        assert {record.placement and record.placement.verdict for record in lazily} == found
        return found

    both = {"expected", "stray"}
    for consumer in ("", "/consumer/reader:1700000000"):
        event = event_of("b", consumer=consumer)
        assert verdicts(event, map_of("b", named=True)) == verdicts(event, map_of("b", named=False)) == both
        assert verdicts(event, map_of("a", named=True)) == {None}
    shards = map_of("b", named=True).values()
    here = kpl.ShardMap(shards, stream="arn:aws:kinesis:us-east-1:123456789012:stream/b")
    assert verdicts(event_of("b"), here) == both
    assert verdicts(event_of("b", region="eu-west-1"), here) == {None}
    with pytest.raises(SeveralStreams):
        list(user_records(event_of("a", "b"), shard_map=map_of("a", named=False)))
    with pytest.raises(SeveralStreams):
        process_user_records(event_of("a", "b"), print, shard_map=map_of("a", named=False))


def as_text(event: Any) -> str:
    """Nobody writes a text as JSON once more."""
    return event if isinstance(event, str) else json.dumps(event)


#: Ways in which an event reaches somebody within something else.
AROUND: dict[str, Any] = {
    "a notice of an asynchronous invocation": lambda event: {"requestContext": {}, "requestPayload": event},
    "a notice of a batch": lambda event: {"payload": as_text(event)},
    "a queue's message": lambda event: {"Records": [{"messageId": "1", "body": as_text(event)}]},
    "text": as_text,
    "a list": lambda event: [event],
}


@pytest.mark.requirement("CAP-15", "LMB-21", "SPK-110")
@given(
    st.lists(st.sampled_from([*AROUND]), max_size=3),
    st.sampled_from(["lambda", "pipes", "firehose", "an answer"]),
    st.sampled_from(NOT_RAISING),
    st.sampled_from("ab"),
)
def test_the_stream_of_a_record_is_known_at_any_depth(
    around: list[str], shape: str, policy: Any, own: str
) -> None:
    """A map judges the records of its stream, and no others, whatever the event lies in."""
    event: Any = event_of("b", consumer="/consumer/reader:1")
    if shape == "pipes":
        event = [{**record["kinesis"], **record} for record in event["Records"]]
    elif shape != "lambda":
        records = list(kinesis_records(event))
        arn = records[0].stream
        firehose = to_firehose(records, delivery_stream_arn="arn:aws:firehose:us-east-1:1:deliverystream/d")
        answer = {**to_get_records(records, dump=True), "StreamARN": arn, "ShardId": records[0].shard_id}
        event = firehose if shape == "firehose" else answer
    for way in around:
        # A queue's message, a batch's notice and a text have text in them.
        event = event if way == "text" and isinstance(event, str) else AROUND[way](event)
    found = list(kinesis_records(event))
    assert {(record.stream, record.shard_id) for record in found} == {
        ("arn:aws:kinesis:us-east-1:123456789012:stream/b", "shardId-000000000000")
    }
    shards = map_of(own, named=True)
    alone = kpl.deaggregate(found, policy, shard_map=shards if own == "b" else None)
    opened = user_records(event, policy, shard_map=shards)
    assert list(opened) == list(alone)
    assert opened.counts == alone.counts
    assert opened.counts.dropped["out-of-range"] == (LOST["b"] if own == "b" and policy == "kcl" else 0)


@pytest.mark.requirement("SPK-110", "SPK-111", "DAG-12")
@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("named", ["by name", "by ARN"])
@pytest.mark.parametrize("own", ["a", "b"])
def test_records_are_those_of_each_stream_alone(policy: Any, own: str, named: str) -> None:
    """As objects: in turn, in runs, with some that name no stream, in a list and one by one."""
    arn = "arn:aws:kinesis:us-east-1:123456789012:stream/" if named == "by ARN" else ""
    records = [
        kpl.KinesisRecord(
            row["partitionKey"], row["data"], row["sequenceNumber"], row["shardId"],
            stream=arn + row["streamName"] if number % 5 or row["streamName"] != own else None,
        )
        for order in ("ab", "a", "b")
        for number, row in enumerate(interleaved(order))
    ]  # fmt: skip
    shards = map_of(own, named=True)
    expected = [
        row
        for record in records
        for row in kpl.deaggregate(
            [record], policy, shard_map=shards if record.stream in (None, arn + own) else None
        )
    ]
    lost = 2 * LOST[own] if policy == "kcl" else 0
    for source in (records, iter(records)):
        opened = kpl.deaggregate(source, policy, shard_map=shards)
        assert list(opened) == expected
        assert opened.counts.dropped["out-of-range"] == lost
    nameless = map_of(own, named=False)
    several = [record for record in records if record.stream is not None][:4]
    for given_ in (several, iter(several)):
        begun: list[kpl.DeaggregatedRecord] = []
        with pytest.raises(SeveralStreams):
            begun.extend(kpl.deaggregate(given_, policy, shard_map=nameless))
        assert begun == list(kpl.deaggregate(several[:1], policy, shard_map=nameless))


@pytest.mark.requirement("SPK-110")
def test_one_record_of_another_stream_has_no_verdict() -> None:
    record = kpl.KinesisRecord(KEYS[0], b"", "1", "shardId-000000000000", stream="b")
    assert verify_placement(record, map_of("a", named=True)).verdict == "unknown-shard"
    assert verify_placement(record, map_of("a", named=False)).verdict == "expected"
    assert verify_placement(record.replace(stream=None), map_of("a", named=True)).verdict == "expected"


@pytest.mark.requirement("SPK-110")
@pytest.mark.parametrize("way", AROUND)
def test_a_capture_within_a_notice_names_its_stream(way: str, tmp_path: Path) -> None:
    event = AROUND[way](event_of("b"))
    (tmp_path / "notice.json").write_text(event if isinstance(event, str) else json.dumps(event))
    assert validate_files(tmp_path / "notice.json", map_of("a", named=True), tmp_path / "out") == 1
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert "other-stream" in {kind["name"] for kind in summary["kinds"]}
    assert summary["totals"]["lostAtKcl"] == 0


@pytest.mark.requirement("SPK-110")
def test_an_event_by_enhanced_fan_out_names_its_stream(tmp_path: Path) -> None:
    """There the ARN is that of the consumer."""
    event = event_of("a", consumer="/consumer/reader:1700000000")
    (tmp_path / "event.json").write_text(json.dumps(event))
    assert validate_files(tmp_path / "event.json", map_of("a", named=True), tmp_path / "out") == 0


@pytest.mark.requirement("SPK-110")
def test_a_map_that_is_written_down_says_whose_it_is() -> None:
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
    shards = [*map_of("b", named=False).values()]
    for named in (None, "orders", arn):
        given = kpl.ShardMap(shards, stream=named)
        again = kpl.ShardMap.from_json(given.to_json())
        assert again.stream == given.stream
        assert again == given
    listed = [shard.to_aws() for shard in shards]
    about = {"StreamName": "orders", "StreamARN": arn, "StreamCreationTimestamp": "2026-01-02T03:04:05+00:00"}
    described = {"StreamDescription": {**about, "HasMoreShards": False, "Shards": listed}}
    stream = kpl.ShardMap.from_json(json.dumps(described)).stream
    assert stream is not None
    assert (stream.name, stream.arn, stream.region) == ("orders", arn, "eu-west-1")
    assert stream.created is not None
    told = kpl.ShardMap.from_json(json.dumps({"Shards": listed}), stream="b").stream
    assert told is not None
    assert told.name == "b"
    for odd in (5, "", "a b", None, ["x"], {}):
        page = {"StreamName": odd, "StreamARN": odd, "StreamCreationTimestamp": odd, "Shards": listed}
        assert kpl.ShardMap.from_list_shards(page).stream is None
