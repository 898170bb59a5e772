"""What is no user record counts as none, whoever looks at the rows of the report policy."""

from __future__ import annotations

import base64
from typing import Any

import pytest

import kpl_codec as kpl
from fuzz.invariants import frame
from kpl_codec.adapters import to_lambda
from kpl_codec.audit import Ledger
from kpl_codec.aws_lambda import process_user_records
from kpl_codec.aws_lambda.powertools import UserRecordBatchProcessor

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
SHARD = "shardId-000000000000"


def damaged(user_records: int) -> bytes:
    """A frame with a defect outside of its user records: a key that is no text, and that none uses."""
    users = b"".join(b"\x1a\x05\x08\x01\x1a\x01%d" % number for number in range(user_records))
    return frame(b"\x0a\x01\xff" + b"\x0a\x01k" + users)


def event_of(count: int) -> dict[str, Any]:
    record = kpl.KinesisRecord("outer", damaged(count), "7", SHARD)
    return to_lambda([record], stream_arn=ARN)


@pytest.mark.requirement("AUD-7")
def test_a_ledger_has_no_row_about_a_frame() -> None:
    lines: list[str] = []
    handled: list[int] = []
    ledger = Ledger(lines.append)
    answer = process_user_records(
        event_of(3), lambda row: handled.append(row.sub_sequence_number), policy="report", ledger=ledger
    )
    assert (answer, handled) == ({"batchItemFailures": []}, [-1, 0, 1, 2])
    assert [line for line in lines if '"sub_sequence_number":0,"user_records":3' in line]
    assert not [line for line in lines if '"sub_sequence_number":-1' in line]
    put = Ledger(lines.append).writer("orders")
    del lines[:]
    put.put(SHARD, "7", partition_key="outer", data=damaged(3))
    put.flush()
    assert [line for line in lines if '"user_records":3' in line]


def test_powertools_get_user_records_only() -> None:
    """Their dicts have no place for a defect."""
    seen: list[bytes] = []
    processor = UserRecordBatchProcessor(policy="report")
    with processor(event_of(3)["Records"], lambda record: seen.append(base64.b64decode(record.kinesis.data))):
        processor.process()
    assert seen == [b"0", b"1", b"2"]
