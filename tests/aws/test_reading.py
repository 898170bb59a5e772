"""Reading shards and streams from real servers, with faults in front."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from kpl_codec import UnknownShard
from kpl_codec.aws import read_record, read_stream
from kpl_codec.aws_errors import NO_RECORD, NO_SHARD
from kpl_codec.cli.main import main
from kpl_codec.format.hash_keys import partition_key_hash
from kpl_codec.shards.live_shard_map import StreamUnavailable
from kpl_codec.shards.sequence_numbers import sequence_hint
from kpl_codec.testing.faults import cut_response, error, throttle
from tests.testing.event_stream import cut_before

from ..every import every
from .readers import READERS, sleep_with
from .test_shard_map import merge, split

pytestmark = pytest.mark.server


def put_numbered(client, stream, count, begin=0):
    entries = [{"Data": str(begin + i).encode(), "PartitionKey": f"k{begin + i}"} for i in range(count)]
    answer = client.put_records(StreamName=stream, Records=entries)
    assert answer["FailedRecordCount"] == 0
    return [(r["ShardId"], r["SequenceNumber"]) for r in answer["Records"]]


@pytest.mark.parametrize("kind", ["kinesis_local", "kinesalite"])
def test_a_stream_is_read_whole_through_splits_and_merges(kind, request, stream_name):
    server = request.getfixturevalue(kind)
    server.create_stream(stream_name, shards=2)
    client = server.client()
    put = put_numbered(client, stream_name, 40)
    split(server, stream_name, "shardId-000000000000", 2**126)
    put += put_numbered(client, stream_name, 40, 40)
    merge(server, stream_name, "shardId-000000000003", "shardId-000000000001")
    put += put_numbered(client, stream_name, 40, 80)
    for readers in READERS.values():
        records = list(readers.read_stream(client, stream_name, poll_interval=0.01))
        assert sorted((r.shard_id, r.sequence_number) for r in records) == sorted(put)
        assert {int(r.data) for r in records} == set(range(120))
        assert {r.stream for r in records} == {stream_name}
        lineage = readers.fetch_lineage(client, stream_name)
        for record in records:
            assert partition_key_hash(record.partition_key) in lineage[record.shard_id].hash_key_range
            assert sequence_hint(record.sequence_number).shard_id == record.shard_id
        # Shards 0 -> 2, 3 -> 4, which shard 1 was merged into: every shard after its parents.
        places = [r.shard_id for r in records]
        for shard in lineage.values():
            for parent in lineage.parents(shard.shard_id):
                last = len(places) - 1 - places[::-1].index(parent.shard_id)
                assert shard.shard_id not in places[:last]
        some = ["shardId-000000000000", "shardId-000000000003"]
        chosen = list(readers.read_stream(client, stream_name, shard_ids=some, poll_interval=0.01))
        assert chosen == [r for r in records if r.shard_id in some]
        shard_id, last = put[-1]
        from_it = readers.read_stream(client, stream_name, start=last, shard_ids=[shard_id])
        assert [r.data for r in from_it] == [b"119"]
        (shard_id, number), behind = put[0], str(int(put[0][1]) + (100 << 80))
        one = readers.read_record(client, stream_name, shard_id=shard_id, sequence_number=number)
        assert one is not None
        assert (one.data, one.sequence_number) == (b"0", number)
        if kind == "kinesalite":  # the other refuses a number that no record has
            assert readers.read_record(client, stream_name, shard_id=shard_id, sequence_number=behind) is None
    server.delete_stream(stream_name)


def test_reading_through_faults_gives_every_record_once(readers, proxy, faulty, client, stream, monkeypatch):
    sleep_with(monkeypatch, lambda _: None)
    put = put_numbered(client, stream, 60)
    proxy.on("GetRecords", throttle(), times=2)
    proxy.on("GetRecords", error("ExpiredIteratorException"), after=1, times=1)
    proxy.on("GetRecords", cut_response(0.4), times=2)
    proxy.on("GetShardIterator", error("InternalFailure", status=500), times=1)
    proxy.on("GetRecords", cut_before, times=1)
    records = list(readers.read_stream(faulty, stream, poll_interval=0.01))
    assert sorted((r.shard_id, r.sequence_number) for r in records) == sorted(put)
    assert {c.fault for c in proxy.calls} >= {"throttle", "cut_response", "cut_before"}


def test_following_goes_through_a_split(kinesis_local, client, stream):
    put_numbered(client, stream, 5)
    reader = read_stream(client, stream, follow=True, poll_interval=0.01)
    assert {next(reader).data for _ in range(5)} == {b"%d" % n for n in range(5)}
    for shard, at in (("shardId-000000000000", 2**126), ("shardId-000000000001", 3 * 2**126)):
        split(kinesis_local, stream, shard, at)
    client.put_record(StreamName=stream, Data=b"late", PartitionKey="k")
    assert next(reader).data == b"late"
    reader.close()


@pytest.mark.requirement("CHN-3")
@pytest.mark.parametrize("kind", ["kinesis_local", "kinesalite"])
def test_a_place_that_a_stream_does_not_have_is_no_wrong_name(kind, request, stream_name, tmp_path, capsys):
    """Whoever asks for it: a number that no record of the shard has, and a shard that is not there."""
    server = request.getfixturevalue(kind)
    server.create_stream(stream_name, shards=2)
    client = server.client()
    (shard_id, number), *_ = put_numbered(client, stream_name, 1)
    (other,) = {"shardId-000000000000", "shardId-000000000001"} - {shard_id}
    source = ["--stream", stream_name, "--endpoint-url", server.endpoint_url, "--region", "us-east-1"]
    only = tmp_path / "only"
    wrong = []
    for shard, place in (
        *((shard_id, str(int(number) + behind)) for behind in (1, -1, 100 << 80)),
        (other, number),
        ("shardId-000000000077", number),
    ):
        only.write_text(f"{shard}:{place}")
        said = {}
        for way, start in (("a start", place), ("a mapping", {shard: place})):
            try:
                assert not [*read_stream(client, stream_name, start=start, shard_ids=[shard])]
            except (StreamUnavailable, UnknownShard) as error:
                said[way] = str(error)
        try:
            record = read_record(client, stream_name, shard_id=shard, sequence_number=place)
            assert record is None
        except StreamUnavailable as error:
            said["read_record"] = str(error)
        assert main(["inspect", *source, "--shard-id", shard, "--sequence-number", place]) == 2
        said["inspect"] = capsys.readouterr().err
        assert main(["cat", *source, "--only", str(only)]) == 1
        said["cat"] = capsys.readouterr().err
        words = (NO_RECORD, NO_SHARD, "is not in the listing", "RecordTrimmed: " + shard)
        wrong += [(kind, shard, place, way, text) for way, text in said.items() if "check the" in text]
        wrong += [(place, way, text) for way, text in said.items() if not any(word in text for word in words)]
    assert wrong == []
    server.delete_stream(stream_name)


@every("start", ["trim_horizon", "SHARD_END", "AT_TIMESTAMP", "", "-5", "49x"])
def test_another_word_for_a_place_is_refused_with_those_there_are(start: str) -> None:
    with pytest.raises(ValueError, match="TRIM_HORIZON, LATEST, a sequence number") as raised:
        next(read_stream(Mock(), "s", start=start))
    assert ("SHARD_END" in str(raised.value)) == (start == "SHARD_END")
