"""A program that reads a stream and checks where its user records are."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone

import kpl_codec as kpl
from kpl_codec.aws import (
    GoneRecord,
    StreamUnavailable,
    UnreadableEntry,
    aio,
    fetch_records,
    fetch_shard_map,
    find_sequence_numbers,
    kinesis_client,
    read_record,
    read_stream,
)

client = kinesis_client(profile="orders", role_arn="arn:aws:iam::123456789012:role/reader")


def verdicts(hours: int) -> Counter[kpl.Verdict]:
    shard_map: kpl.ShardMap = fetch_shard_map(client, "orders", patience=5)
    since = datetime.now(timezone.utc) - timedelta(hours=hours)
    found: Counter[kpl.Verdict] = Counter()
    for record in kpl.deaggregate(read_stream(client, "orders", start=since), "report", shard_map=shard_map):
        placement = kpl.verify_placement(record, shard_map)
        found[placement.verdict] += 1
        for defect in record.defects:
            print(defect.code, defect.offset, record.kcl)
    return found


def one(shard_id: str, number: str) -> bytes:
    try:
        record = read_record(client, "orders", shard_id=shard_id, sequence_number=number)
    except StreamUnavailable as error:
        return error.code.encode()
    return b"" if record is None else record.data


def of_list(path: str) -> list[kpl.KinesisRecord]:
    with open(path, "rb") as file:
        locations = find_sequence_numbers(file.read())
    records: list[kpl.KinesisRecord] = []
    for item in fetch_records(client, "orders", locations):
        if isinstance(item, (GoneRecord, UnreadableEntry)):
            print(item.reason)
        else:
            records.append(item)
    return records


async def newest(other: object) -> kpl.KinesisRecord | None:
    async for record in aio.read_stream(other, "orders", start="LATEST", follow=True):
        return record
    return None
