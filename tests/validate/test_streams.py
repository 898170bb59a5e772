"""Records of several streams and one shard map: a map judges the records of its own stream, or none."""

from __future__ import annotations

import base64
import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.adapters import kinesis_records, to_firehose, to_get_records, to_lambda
from kpl_codec.arrow import deaggregate_batches, deaggregate_table
from kpl_codec.aws_lambda import process_user_records, user_records
from kpl_codec.deaggregation.policy_rules import rules_of
from kpl_codec.format.hash_keys import partition_key_hash
from kpl_codec.shards.placement import verify_placement
from kpl_codec.shards.stream_name import SeveralStreams, stream_name
from kpl_codec.validate import LocalEngine, validate

from ..deaggregation.test_policies import NOT_RAISING
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
    records = [
        kpl.KinesisRecord(row["partitionKey"], row["data"], row["sequenceNumber"], row["shardId"])
        for row in rows
    ]
    FORMS["answers by name"](
        [one.replace(stream=row["streamName"]) for one, row in zip(records, rows, strict=True)], file
    )


def arn(name: str, region: str = "us-east-1", account: str = "123456789012") -> str:
    return f"arn:aws:kinesis:{region}:{account}:stream/{name}"


HERE = arn("orders")
OTHERS = {
    "another name": arn("payments"),
    "another region": arn("orders", "eu-west-1"),
    "another account": arn("orders", account="210987654321"),
}
SHARD = "shardId-000000000000"


def parquet(records: list[kpl.KinesisRecord], file: Path, **columns: list[Any]) -> None:
    names = {"data": "data", "sequenceNumber": "sequence_number", "partitionKey": "partition_key"}
    values = {name: [getattr(one, field) for one in records] for name, field in names.items()}
    pq.write_table(pa.table({**values, "shardId": [SHARD] * len(records), **columns}), file)


def lines(shape: Callable[[list[kpl.KinesisRecord], str], Any]) -> Callable[..., None]:
    def write(records: list[kpl.KinesisRecord], file: Path) -> None:
        file.write_text("\n".join(json.dumps(shape([one], str(one.stream))) for one in records))

    return write


def answer(each: list[kpl.KinesisRecord], **more: str) -> dict[str, Any]:
    return {**to_get_records(each, dump=True), "ShardId": str(each[0].shard_id), **more}


#: Writes records, of several streams, to a file.
FORMS: dict[str, Callable[[list[kpl.KinesisRecord], Path], None]] = {
    "answers": lines(lambda each, of: answer(each, StreamARN=of)),
    "answers by name": lines(lambda each, of: answer(each, StreamName=of.rpartition("/")[2])),
    "events of Lambda": lines(lambda each, of: to_lambda(each, stream_arn=of)),
    "of enhanced fan-out": lines(lambda each, of: to_lambda(each, stream_arn=f"{of}/consumer/app:1")),
    "in a notice": lines(lambda each, of: {"requestPayload": to_lambda(each, stream_arn=of)}),
    "events of Firehose": lines(
        lambda each, of: to_firehose(each, delivery_stream_arn="arn:aws:firehose:::x")
    ),
    "Parquet, streamName": lambda each, file: parquet(each, file, streamName=[one.stream for one in each]),
    "Parquet, streamArn beside it": lambda each, file: parquet(
        each,
        file,
        streamName=[str(one.stream).rpartition("/")[2] for one in each],
        streamArn=[one.stream for one in each],
    ),
}
#: Other stream, form, whether each stream has a file of its own, which streams there are.
INPUTS = [
    *((where, form, False, "both") for where in OTHERS for form in FORMS),
    *((where, "answers", True, there) for where in OTHERS for there in ("here", "other", "both")),
]


@pytest.mark.requirement("SPK-110", "SPK-111", "CAP-30")
@pytest.mark.parametrize(
    "own", [HERE, arn("payments"), "orders", None], ids=["here", "there", "name", "none"]
)
def test_validate_judges_each_record_by_the_map_of_its_stream(
    own: str | None, tmp_path: Path, capsys: Any
) -> None:
    """A bare name stands for the streams of that name, and a map without one for any: it may be that of one
    stream, and of several nobody knows which."""
    wrong = []
    data = kpl.encode(
        [kpl.UserRecord(f"key-{n}", b"%d" % n) for n in range(8)]
    )  # of both shards: all is lost
    for number, (where, form, apart, there) in enumerate(INPUTS):
        names = {"here": [HERE], "other": [OTHERS[where]], "both": [HERE, OTHERS[where]]}[there]
        if form == "answers by name" and where != "another name":
            continue
        folder = tmp_path / str(number)
        (folder / "in").mkdir(parents=True)
        records = [
            kpl.KinesisRecord("a", data, str(10**55 + 10 * turn + at), SHARD, stream=name)
            for turn in range(4)
            for at, name in enumerate(names)
        ]
        for part, name in enumerate(names if apart else [None]):
            of_part = [one for one in records if name in (None, one.stream)]
            FORMS[form](of_part, folder / f"in/{part}")
        judged = {name for name in names if own in (None, name, name.rpartition("/")[2])}
        shards = kpl.ShardMap(map_of("b", named=False).values(), stream=own)
        status = validate_files(folder / "in", shards, folder / "out", "--cores", "1")
        said = capsys.readouterr().err
        if len(judged) > 1:
            if (status, "records of " in said, (folder / "out").exists()) != (2, True, False):
                wrong.append((where, form, apart, there, status, said))
            continue
        summary = json.loads((folder / "out/summary.json").read_text())
        kinds = {kind["name"] for kind in summary["kinds"]}
        users = pq.read_table(folder / "out/user-records").to_pylist()
        numbers = {one.sequence_number for one in records if one.stream in judged}
        found = (
            (status, len(users), summary["totals"]["lostAtKcl"]),
            ("other-stream" in kinds, "duplicate" in kinds),
            *(
                {user["sequenceNumber"] for user in users if user[column] is not None}
                for column in ("placement", "expectedShardId", "aggregatePlacement", "inRange", "hashKey")
            ),
            {user["sequenceNumber"] for user in users if user["kcl"] == "dropped"},
        )
        # Another stream with the name of the map's is told by its ARN.
        others = {user["streamName"] for user in users if user["sequenceNumber"] not in numbers}
        shown = {stream_name(name) if where == "another name" else name for name in {*names} - judged}
        if own == HERE and others != shown:
            wrong.append((where, form, apart, there, others))
        counts = (1, 8 * len(records), 8 * len(numbers))
        if found != (counts, (judged != {*names}, False), *[numbers] * 6):
            wrong.append((where, form, apart, there, *found))
    assert wrong == []


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
            output=str(tmp_path / "out"),
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
@pytest.mark.parametrize("region", [None, "us-east-1", "eu-west-1"])
@pytest.mark.parametrize("own", ["a", "b"])
def test_columns_are_those_of_each_stream_alone(policy: Any, own: str, region: str | None) -> None:
    """A row of another stream comes as without a map, whatever stands beside it. ``region``: where the other
    stream of one name is; None: the two have names."""
    full = (
        {"a": "a", "b": "b"}
        if region is None
        else {own: arn("s"), "ba"["ab".index(own)]: arn("s", region, "2" * 12)}
    )
    rows, shards = interleaved("ab"), kpl.ShardMap(map_of(own, named=False).values(), stream=full[own])
    alone = {
        name: pa.Table.from_pylist(
            [{**row, "streamName": full[name]} for row in rows if row["streamName"] == name]
        )
        for name in "ab"
    }
    rows = [{**row, "streamName": full[row["streamName"]]} for row in rows]
    made = deaggregate_table(pa.Table.from_pylist(rows), policy, shard_map=shards).table
    expected: Counter[str] = Counter()
    for name, table in alone.items():
        given = shards if name == own else None
        expected += known(deaggregate_table(table, policy, shard_map=given).table)
    assert known(made) == expected
    assert made.num_rows == 3 * len(rows) - (LOST[own] if rules_of(policy).as_kcl else 0)
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
    called: list[Any] = []
    with pytest.raises(SeveralStreams):
        process_user_records(event_of("a", "b"), called.append, shard_map=map_of("a", named=False))
    assert called == []


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
    # A bare name stands for either stream of that name.
    here, there = (record.replace(stream=arn("b", region)) for region in ("us-east-1", "eu-west-1"))
    for beside in ([here, there], [record, here, there]):
        for stream in ("b", None):
            with pytest.raises(SeveralStreams):
                list(
                    kpl.deaggregate(
                        beside, shard_map=kpl.ShardMap(map_of("b", named=False).values(), stream=stream)
                    )
                )


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
