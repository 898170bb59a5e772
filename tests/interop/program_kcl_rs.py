"""What kcl-rs (PyPI) delivers of frames, which it opens before Python sees them.

Standard input has a frame a line, in hex; standard output an answer a line, in the form of `conformance`. The
frames lie on a local stream of one shard. Each is put behind a plain record with its number, the marker.
"""

from __future__ import annotations

import json
import os
import queue
import sys
from typing import Any

import boto3
import kcl_rs
from moto.server import ThreadedMotoServer

from kpl_codec.aws import fetch_shard_map
from kpl_codec.testing.local_kinesis import local_kinesis

from ..kcl.leases import create_leases
from .conformance import user_record

STREAM, KEY, MARKER = "vectors", "outer", "marker"
#: Seconds in which kcl-rs has to deliver the next user record. A worker that loses its lease waits for it,
#: 10 s and more, and reads everything again.
PATIENCE = 120
#: Frames on the stream that kcl-rs has not read. The more there are, the oftener it ends with SIGSEGV.
AT_ONCE = 8
delivered: queue.Queue[Any] = queue.Queue()


class Processor(kcl_rs.RecordProcessorBase):
    def process_records(self, kcl_input: Any) -> None:
        for record in kcl_input.records:
            delivered.put((record.partition_key, record.data))

    def initialize(self, kcl_input: Any) -> None:
        pass

    lease_lost = shard_ended = shutdown_requested = initialize


def deliveries(client: Any, frames: list[bytes]) -> dict[int, list[tuple[str, bytes]]]:
    """Keys and data that came behind the marker of each frame; of the last time, where kcl-rs reads again."""
    records: dict[int, list[tuple[str, bytes]]] = {}
    latest = 0
    for number, frame in enumerate([*frames, b"behind the last"]):
        client.put_record(StreamName=STREAM, PartitionKey=MARKER, Data=b"%d" % number)
        client.put_record(StreamName=STREAM, PartitionKey=KEY, Data=frame)
        while latest < number and (number % AT_ONCE == 0 or number == len(frames)):
            key, data = delivered.get(timeout=PATIENCE)
            if key == MARKER:
                latest = int(data)
                records[latest] = []
            else:
                records[latest].append((key, data))
    return records


def main() -> None:
    frames = [bytes.fromhex(line) for line in sys.stdin]
    dynamodb = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    dynamodb.start()
    with local_kinesis() as kinesis:
        kinesis.create_stream(STREAM)
        client = kinesis.client()
        os.environ |= {
            "AWS_ENDPOINT_URL": "http://{}:{}".format(*dynamodb.get_host_and_port()),
            "AWS_ENDPOINT_URL_KINESIS": kinesis.endpoint_url,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
        }
        shards = list(fetch_shard_map(client, STREAM).values())
        create_leases(boto3.client("dynamodb", region_name="us-east-1"), STREAM, shards)
        scheduler = kcl_rs.Scheduler(  # it ends when nobody holds it
            stream_name=STREAM,
            application_name=STREAM,
            record_processor_factory=Processor,
            region="us-east-1",
            initial_position="TRIM_HORIZON",
            retrieval_mode="POLLING",
            idle_time_between_reads_millis=200,
        )
        scheduler.start()
        records = deliveries(client, frames)
    for number, frame in enumerate(frames):
        if records[number] == [(KEY, frame)]:
            print(json.dumps({"plain": True}))
        else:
            print(json.dumps({"user_records": [user_record(*record) for record in records[number]]}))
    sys.stdout.flush()
    os._exit(0)  # its threads end with it


if __name__ == "__main__":
    main()
