"""The published packages: two from PyPI, and one from npm behind ``program_npm.js``.

A question is ``{"op": "decode", "data"}`` or ``{"op": "encode", "user_records"}``, perhaps with ``max_size``,
in the form of the vectors. The answer has ``user_records``, ``plain``, ``data``, ``error``, or
``unsupported``.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import aiokpl.aggregation as aiokpl
from aws_kinesis_agg.aggregator import RecordAggregator
from aws_kinesis_agg.deaggregator import deaggregate_records

from kpl_codec import UserRecord
from kpl_codec.testing.local_kinesis import find_node, install

from .conformance import Answer, user_record

NPM_VERSION = "4.2.7"


class Package(NamedTuple):
    """A published package. ``name`` and ``version``: those of its registry."""

    name: str
    version: str
    ask: Callable[[Answer], Answer]

    def encode(self, *records: UserRecord) -> bytes:
        rows = [user_record(one.partition_key, one.data, one.explicit_hash_key) for one in records]
        return bytes.fromhex(self.ask({"op": "encode", "user_records": rows})["data"])

    def decode(self, data: bytes) -> Answer:
        return self.ask({"op": "decode", "data": data.hex()})


def decode_by_aws_kinesis_agg(data: bytes) -> Answer:
    event = {
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": "outer",
            "sequenceNumber": "1",
            "data": base64.b64encode(data).decode(),
            "approximateArrivalTimestamp": 1.0,
        },
        "eventSource": "aws:kinesis",
        "eventID": "shardId-000000000000:1",
    }
    rows = [record["kinesis"] for record in deaggregate_records([event])]
    if len(rows) == 1 and not rows[0].get("aggregated"):
        return {"plain": True}
    return {
        "user_records": [
            user_record(row["partitionKey"], base64.b64decode(row["data"]), row["explicitHashKey"])
            for row in rows
        ]
    }


def encode_by_aws_kinesis_agg(question: Answer) -> Answer:
    aggregator = RecordAggregator(question.get("max_size", 1024 * 1024))
    for record in question["user_records"]:
        full = aggregator.add_user_record(
            record["partition_key"], bytes.fromhex(record["data"]), record.get("explicit_hash_key")
        )
        if full is not None:
            return {"error": "the aggregate is full"}
    aggregate = aggregator.clear_and_get()
    return {"error": "nothing"} if aggregate is None else {"data": aggregate.get_contents()[2].hex()}


def decode_by_aiokpl(data: bytes) -> Answer:
    if not aiokpl.is_aggregated(data):
        return {"plain": True}
    rows = []
    for record in aiokpl.decode_aggregated(data):
        tags = [(tag.key, tag.value) for tag in record.tags]
        rows.append(user_record(record.partition_key, record.data, record.explicit_hash_key, tags))
    return {"user_records": rows}


def encode_by_aiokpl(question: Answer) -> Answer:
    if "max_size" in question:
        return {"unsupported": True}
    records = [
        aiokpl.UserRecord(
            partition_key=record["partition_key"],
            data=bytes.fromhex(record["data"]),
            explicit_hash_key=record.get("explicit_hash_key"),
            tags=[aiokpl.Tag(key=tag["key"], value=tag.get("value")) for tag in record.get("tags", ())],
        )
        for record in question["user_records"]
    ]
    return {"data": aiokpl.encode_aggregated(records).hex()}


def of_python(name: str, decode: Callable[[bytes], Answer], encode: Callable[[Answer], Answer]) -> Package:
    """Whatever it raises becomes an error."""

    def ask(question: Answer) -> Answer:
        try:
            return encode(question) if question["op"] == "encode" else decode(bytes.fromhex(question["data"]))
        except Exception as error:  # noqa: BLE001 - whatever it raises is the observation
            return {"error": f"{type(error).__name__}: {error}"}

    return Package(name, version(name), ask)


@contextmanager
def packages() -> Iterator[dict[str, Package]]:
    """By name, in the order of the table in section 12.3. That of npm is installed into a cache."""
    program = Path(__file__).with_name("program_npm.js")
    command = [find_node(), str(program), os.fspath(install("aws-kinesis-agg", NPM_VERSION))]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        questions, answers = process.stdin, process.stdout

        def ask(question: Answer) -> Answer:
            """A question is a line of JSON, and so is its answer."""
            print(json.dumps(question), file=questions, flush=True)
            line = answers.readline()
            assert line, f"the program ended at {question}"
            answer: Answer = json.loads(line)
            return answer

        every = [
            of_python("aws_kinesis_agg", decode_by_aws_kinesis_agg, encode_by_aws_kinesis_agg),
            of_python("aiokpl", decode_by_aiokpl, encode_by_aiokpl),
            Package("aws-kinesis-agg", ask({"op": "hello"})["version"], ask),
        ]
        yield {package.name: package for package in every}
