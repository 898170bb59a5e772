"""The same three Kinesis records in every shape: see events/README.md."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import kpl_codec as kpl
from tests.spec.vectors import VECTORS

EVENTS = Path(__file__).parent / "events"
SHARD = "shardId-000000000006"
STREAM = "arn:aws:kinesis:us-east-2:123456789012:stream/orders"
FIRST = 49590338271490256608559692538361571095921575989136588898


def load(name: str) -> Any:
    return json.loads((EVENTS / name).read_text())


def vector(vector_id: str) -> dict[str, Any]:
    story = json.loads((VECTORS / "story-kpl.json").read_text())
    return next(v for v in story["vectors"] if v["id"] == vector_id)


def utc(seconds: int, milliseconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=milliseconds * 1000)


KINESIS_RECORDS = [
    kpl.KinesisRecord("order-7", b"Hello, this is a test.", str(FIRST), SHARD, utc(1545084650, 987)),
    kpl.KinesisRecord(
        "a", bytes.fromhex(vector("story-kpl-e008")["data"]), str(FIRST + 1), SHARD, utc(1545084651, 123)
    ),
    kpl.KinesisRecord(
        "a",
        bytes.fromhex(vector("story-kpl-ehk-second")["data"]),
        str(FIRST + 2),
        SHARD,
        utc(1545084711, 500),
    ),
]


def expected_user_records() -> list[tuple[str, str | None, bytes, str, int]]:
    """Partition key, explicit hash key, data, sequence number, sub-sequence number: from the vectors."""
    rows = [("order-7", None, b"Hello, this is a test.", str(FIRST), 0)]
    for number, vector_id in ((FIRST + 1, "story-kpl-e008"), (FIRST + 2, "story-kpl-ehk-second")):
        for sub, record in enumerate(vector(vector_id)["input"]["user_records"]):
            data = bytes.fromhex(record["data"])
            rows.append((record["partition_key"], record.get("explicit_hash_key"), data, str(number), sub))
    return rows


@pytest.fixture
def event() -> Any:
    return load("lambda_kinesis.json")


@pytest.fixture
def poisoned(event: Any) -> Any:
    """The event with its second Kinesis record broken: a byte of the message is wrong."""
    data = bytearray(b64decode(event["Records"][1]["kinesis"]["data"]))
    data[10] ^= 1
    event["Records"][1]["kinesis"]["data"] = b64encode(data).decode()
    return event
