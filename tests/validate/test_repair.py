"""Repair: what the KCL lost is put where it belongs, once, and everything is written down."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kpl_codec as kpl
from kpl_codec.adapters import to_get_records
from kpl_codec.aws import fetch_shard_map, read_stream
from kpl_codec.captures import Location
from kpl_codec.cli.main import main
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.producer import Producer
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap
from kpl_codec.shards.stream_name import stream_members, stream_of
from kpl_codec.validate.repair import _target_stream, apply_repair
from tests.captures.test_captures import answer
from tests.widths import too_wide

from .test_job import validate_files
from .test_repair_model import plan_of
from .test_stream import Stream, stream

pytestmark = pytest.mark.server
__all__ = ["stream"]
NOON = datetime(2026, 11, 25, 12, tzinfo=timezone.utc)
ORDERS = stream_of("arn:aws:kinesis:eu-west-1:123456789012:stream/orders")._replace(created=NOON)


def at_the_kcl(source: Stream) -> Counter[bytes]:
    """What a KCL consumer gets, shard by shard, each with its range."""
    shard_map = fetch_shard_map(source.client, source.name)
    return Counter(
        r.data for r in kpl.deaggregate(read_stream(source.client, source.name), "kcl", shard_map=shard_map)
    )


def repair(source: Stream, results: Path, *more: str) -> int:
    options = source.options[2 * ("--stream" in more) :] if "--apply" in more else ()
    return main(["repair", str(results), "--quiet", *options, *more])


def log_of(results: Path) -> list[dict[str, Any]]:
    files = results.glob("repair/log/*")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.requirement("SPK-30", "SPK-32")
def test_a_naive_stream_is_made_whole(stream: Stream, tmp_path: Path, capsys: Any) -> None:
    stream.put(5)
    stream.put(12, naive=True)
    lost = stream.sent - at_the_kcl(stream)
    assert sum(lost.values()) >= 100
    out = tmp_path / "out"
    assert repair(stream, out) == 2  # nothing was validated yet
    assert repair(stream, out, "--apply") == 2
    assert stream.validate(out) == 1
    before = len(list(read_stream(stream.client, stream.name)))
    killed = out / "repair" / "plan" / "part-00000-half.snappy.parquet"
    killed.parent.mkdir(parents=True)  # what a planning that was killed leaves
    killed.write_bytes(b"PAR1")
    assert repair(stream, out, "--apply") == 2  # no plan yet
    assert repair(stream, out) == 0  # the dry run
    assert not killed.exists()
    assert len(list(read_stream(stream.client, stream.name))) == before
    plan = pq.read_table(out / "repair" / "plan").to_pylist()
    assert Counter(row["data"] for row in plan if row["decision"] == "put") == lost
    assert repair(stream, out, "--apply") == 0
    assert not too_wide(capsys.readouterr().out)
    assert at_the_kcl(stream) == stream.sent  # every user record, each once
    log = log_of(out)
    assert len(log) == len(plan)
    assert {entry["outcome"] for entry in log} == {"put"}
    assert json.loads((out / "repair" / "record.json").read_text())["StreamName"] == stream.name
    # Again: it is all written down, so nothing is put; nor on another stream.
    assert repair(stream, out, "--apply") == 0
    stream.server.create_stream("another")
    assert repair(stream, out, "--apply", "--stream", "another", "--other-stream") == 2
    assert "applied to another stream" in capsys.readouterr().err
    stream.server.delete_stream("another")
    assert at_the_kcl(stream) == stream.sent
    capsys.readouterr()
    assert repair(stream, out) == 2  # one plan for one run of validate
    assert f"its plan was applied: {len(plan)} of {len(plan)} user records sent to {stream.name}," in (
        capsys.readouterr().err
    )
    assert stream.validate(out) == 2
    assert "the log of their repair, which must stay" in capsys.readouterr().err


@pytest.mark.requirement("SPK-46")
@pytest.mark.parametrize("named", [True, False])
def test_user_records_are_put_to_their_own_stream_unless_told_otherwise(
    named: bool, stream: Stream, tmp_path: Path, capsys: Any
) -> None:
    """Results that name their stream, and captures that do not: then the shards tell."""
    stream.put(12, naive=True)
    if named:
        assert stream.validate(tmp_path / "out") == 1
    else:
        capture = tmp_path / "capture"
        capture.mkdir()
        shard_map = fetch_shard_map(stream.client, stream.name)
        for shard in shard_map.values():
            records = read_stream(stream.client, stream.name, shard_ids=[shard.shard_id])
            answer = to_get_records(records, dump=True)
            (capture / f"{shard.shard_id}.json").write_text(json.dumps(answer))
        assert validate_files(capture, shard_map, tmp_path / "out") == 1
    assert repair(stream, tmp_path / "out") == 0
    # Of other shards: those of two streams that are made within one second are equal in all that is known.
    stream.server.create_stream("another", shards=3)
    capsys.readouterr()
    assert repair(stream, tmp_path / "out", "--apply", "--stream", "another") == 2
    assert "its user records are of another stream" in capsys.readouterr().err
    assert list(read_stream(stream.client, "another")) == []
    assert repair(stream, tmp_path / "out", "--apply", "--stream", "another", "--other-stream") == 0
    assert list(read_stream(stream.client, "another"))
    stream.server.delete_stream("another")


def write_plan_of(folder: Path, user_records: int) -> None:
    """A plan to put so many user records, in three files."""
    rows = plan_of(user_records)
    plan = folder / "repair" / "plan"
    plan.mkdir(parents=True)
    (folder / "user-records").mkdir()
    (folder / "user-records" / "_SUCCESS").touch()
    (folder / "summary.json").write_text('{"rows": {"findings": 0, "user-records": 0}}')
    for done in (folder / "shards.json", plan / "_SUCCESS"):
        done.touch()
    for number in range(3):
        pq.write_table(pa.Table.from_pylist(rows[number::3]), plan / f"part-{number:05d}.parquet")


@pytest.mark.requirement("SPK-32")
def test_two_at_once_put_everything_once(stream: Stream, tmp_path: Path) -> None:
    write_plan_of(tmp_path, 300)
    settings = {"endpoint_url": stream.server.endpoint_url, "region": "us-east-1"}

    def put(_: int) -> dict[str, int]:
        return apply_repair(str(tmp_path), settings, stream.name)

    with ThreadPoolExecutor(2) as pool:
        counts = list(pool.map(put, range(2)))
    assert sorted(counts, key=repr) == [{"put": 300}, {"put-before": 300}]
    assert at_the_kcl(stream) == Counter(b"%d" % number for number in range(300))


@pytest.mark.slow
@pytest.mark.requirement("SPK-32")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(stream: Stream, tmp_path: Path, number: int) -> None:
    """What is on the stream has its line in the log, and the next run sends the rest."""
    write_plan_of(tmp_path, 30_000)
    repair = ["repair", str(tmp_path), "--apply", "--other-stream", *stream.options]
    command = [sys.executable, "-m", "kpl_codec.cli.main", *repair]
    with Popen(command, stdout=PIPE, stderr=PIPE, text=True) as running:
        while not any(tmp_path.glob("repair/log/*.jsonl")):
            assert running.poll() is None
            time.sleep(0.001)
        running.send_signal(number)
        _, errors = running.communicate()
    assert running.returncode == 130
    assert errors.endswith("interrupted: run the same command again to send the rest\n")

    def on_the_stream() -> Counter[bytes]:
        return Counter(r.data for r in kpl.deaggregate(read_stream(stream.client, stream.name)))

    assert 0 < len(log_of(tmp_path)) == on_the_stream().total() < 30_000
    assert main([*repair, "--quiet"]) == 0
    assert on_the_stream() == Counter(b"%d" % each for each in range(30_000))


@pytest.mark.requirement("SPK-31")
def test_what_a_producer_sent_again_is_left_alone(stream: Stream, tmp_path: Path) -> None:
    """A split leaves dropped aggregates whose user records were delivered with the second attempt."""
    with Producer(stream.name, client_settings=stream.server.client_settings) as producer:
        producer.put("warm", b"up").result(60)
        stream.sent[b"up"] += 1
        stream.split()
        futures = []
        for number in range(400):
            data = b"after the split %d" % number
            stream.sent[data] += 1
            futures.append(producer.put(f"key-{number}", data))
        for future in futures:
            future.result(60)
    assert at_the_kcl(stream) == stream.sent
    out = tmp_path / "out"
    assert stream.validate(out) in (0, 1)
    assert repair(stream, out) == 0
    rows = pq.read_table(out / "user-records", columns=["kcl"])["kcl"].to_pylist()
    assert "dropped" in rows  # else there is nothing to see here
    decisions = Counter(pq.read_table(out / "repair" / "plan", columns=["decision"])["decision"].to_pylist())
    assert decisions == {"already-delivered": rows.count("dropped")}
    assert repair(stream, out, "--apply") == 0
    assert at_the_kcl(stream) == stream.sent


@pytest.mark.requirement("SPK-123")
def test_what_a_kcl_without_a_range_delivered_is_left_out_when_told(
    stream: Stream, tmp_path: Path, capsys: Any
) -> None:
    stream.put(20, naive=True)
    assert stream.validate(tmp_path / "out") == 1
    assert repair(stream, tmp_path / "out") == 0
    told = capsys.readouterr().out
    assert "Cannot get the shard for this ProcessTask" in told
    assert "--without-range SHARD" in told
    every = pq.read_table(tmp_path / "out/repair/plan").to_pylist()
    shards = sorted({row["shardId"] for row in every})
    assert len(shards) == 2
    assert repair(stream, tmp_path / "out", "--without-range", shards[0]) == 0
    assert "on shards whose range the KCL did not know" in capsys.readouterr().out
    decisions = {
        (row["shardId"], row["decision"]) for row in pq.read_table(tmp_path / "out/repair/plan").to_pylist()
    }
    assert decisions == {(shards[0], "delivered-without-range"), (shards[1], "put")}
    before = at_the_kcl(stream)
    assert repair(stream, tmp_path / "out", "--apply") == 0
    again = at_the_kcl(stream) - before
    assert again.total() == sum(row["shardId"] == shards[1] for row in every)


@pytest.mark.requirement("SPK-30")
def test_captures_of_two_streams_are_not_put_to_one(tmp_path: Path, capsys: Any) -> None:
    shards = [Shard(f"shardId-{i:012d}", held) for i, held in enumerate(ALL_HASH_KEYS.split(2))]
    mixed = kpl.encode([kpl.UserRecord(f"key-{number}", b"x") for number in range(20)])
    pages = [{**answer(mixed), "StreamName": name} for name in ("orders", "payments")]
    (tmp_path / "capture.jsonl").write_text("\n".join(map(json.dumps, pages)))
    assert validate_files(tmp_path / "capture.jsonl", ShardMap(shards), tmp_path / "out") == 1
    assert main(["repair", "--quiet", str(tmp_path / "out")]) == 2
    assert "several streams" in capsys.readouterr().err
    assert not (tmp_path / "out" / "repair").exists()


@pytest.mark.requirement("SPK-32", "SPK-46")
@pytest.mark.parametrize(
    ("before", "now", "another"),
    [
        (stream_members(ORDERS), ORDERS, False),
        (stream_members(ORDERS), ORDERS._replace(created=NOON + timedelta(days=1)), True),
        (stream_members(stream_of("payments")), stream_of("orders"), True),
        ({}, ORDERS, True),
        ([], ORDERS, True),
    ],
)
def test_a_plan_goes_on_with_the_stream_that_it_was_applied_to(
    before: Any, now: Any, another: bool, tmp_path: Path
) -> None:
    record = tmp_path / "record.json"
    record.write_text(json.dumps(before))
    known = _target_stream(Location(str(record)))
    assert (known is None or known.is_another(now) or known.is_another_life(now)) == another


@pytest.mark.requirement("SPK-33", "SPK-34")
def test_what_cannot_be_put_is_named(stream: Stream, tmp_path: Path, capsys: Any) -> None:
    """User records captured from a stream that takes large ones, put to one that does not: one of 2 MiB, and
    one that the tag of its copy makes too large."""
    users = [kpl.UserRecord("small", b"fine"), kpl.UserRecord("large", bytes(2 << 20))]
    users.append(kpl.UserRecord("edge", bytes((1 << 20) - 20)))
    users += [kpl.UserRecord(f"other-{number}", b"%d" % number) for number in range(20)]
    capture, out = tmp_path / "capture.jsonl", tmp_path / "out"
    shard_map = fetch_shard_map(stream.client, stream.name)
    # The capture names another stream: so the map is one that names none, as list-shards prints it.
    capture.write_text(json.dumps(answer(kpl.encode(users), shard=shard_map.open_shards[0].shard_id)))
    assert validate_files(capture, ShardMap(shard_map.values()), out) == 1
    assert repair(stream, out) == 0
    assert re.search(r"23 +to re-send", capsys.readouterr().out)
    assert repair(stream, out, "--apply", "--other-stream") == 1
    assert at_the_kcl(stream) == Counter(user.data for user in users if len(user.data) < 100)
    log = log_of(out)
    failed = {entry["old"][2]: entry["error"] for entry in log if entry["outcome"] == "failed"}
    assert failed.keys() == {1, 2}
    assert all(failed.values())


@pytest.mark.requirement("SPK-30", "SPK-33")
def test_the_plan_says_why_a_user_record_cannot_be_put(tmp_path: Path, capsys: Any) -> None:
    """An aggregate of two shards in a file with the name of its shard: it has no sequence number."""
    shards = [Shard(f"shardId-{number:012d}", part) for number, part in enumerate(ALL_HASH_KEYS.split(2))]
    users = [kpl.UserRecord(f"customer-{number}", b"lost") for number in range(10)]
    capture = tmp_path / "shardId-000000000000.bin"
    capture.write_bytes(kpl.encode(users))
    out = tmp_path / "out"
    assert validate_files(capture, ShardMap(shards), out) == 1
    assert main(["repair", str(out)]) == 1
    assert re.search(r"10 +cannot be re-sent: column reason of the plan", capsys.readouterr().out)
    plan = pq.read_table(out / "repair/plan").to_pylist()
    assert {(row["decision"], row["cause"], row["reason"]) for row in plan} == {
        ("cannot", "across-shards", "it has no sequence number, so its copy cannot name it")
    }
