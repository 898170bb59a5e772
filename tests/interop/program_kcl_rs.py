"""Adapter for kcl-rs (PyPI), which opens aggregates before Python sees them: each frame is put on a local
stream of one shard between two plain records with numbers of their own, so that it shows where nothing comes.

On a loaded machine kcl-rs may lose its lease, wait for it (10 s and more), and read everything again."""

from __future__ import annotations

import itertools
import os
import queue
from importlib.metadata import version
from typing import Any

import boto3
import kcl_rs
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

from kpl_codec.aws import fetch_shard_map
from kpl_codec.conformance.program import serve, user_record
from kpl_codec.testing.local_kinesis import local_kinesis

from ..kcl.leases import create_leases

STREAM, KEY, BEHIND = "vectors", "outer", "behind"
#: Seconds that kcl-rs may take for a frame.
PATIENCE = 120
markers = itertools.count()
got: queue.Queue[Any] = queue.Queue()


class Processor(kcl_rs.RecordProcessorBase):
    def initialize(self, given: Any) -> None:
        pass

    def process_records(self, given: Any) -> None:
        for record in given.records:
            got.put((record.partition_key, record.data))

    def lease_lost(self, given: Any) -> None:
        pass

    def shard_ended(self, given: Any) -> None:
        pass

    def shutdown_requested(self, given: Any) -> None:
        pass


def decode(asked: dict[str, Any]) -> dict[str, Any]:
    data = bytes.fromhex(asked["data"])
    try:
        client.put_record(StreamName=STREAM, PartitionKey=KEY, Data=data)
    except ClientError:
        return {"unsupported": True}  # too large for Kinesis
    marker = b"%d" % next(markers)
    client.put_record(StreamName=STREAM, PartitionKey=BEHIND, Data=marker)
    records: list[Any] = []
    while (record := got.get(timeout=PATIENCE)) != (BEHIND, marker):
        # A marker of an earlier frame: what came before it is not of this one.
        records = [] if record[0] == BEHIND else [*records, record]
    if records == [(KEY, data)]:
        return {"plain": True}
    return {"user_records": [user_record(*record) for record in records]}


if __name__ == "__main__":
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
        scheduler = kcl_rs.Scheduler(
            stream_name=STREAM,
            application_name=STREAM,
            record_processor_factory=Processor,
            region="us-east-1",
            initial_position="TRIM_HORIZON",
            retrieval_mode="POLLING",
            idle_time_between_reads_millis=200,
        )
        scheduler.start()
        serve("kcl-rs", version("kcl-rs"), {"decode": decode}, ("partition_key", "data"))
        os._exit(0)  # its threads end with it
