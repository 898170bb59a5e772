"""Adapter for aiokpl (PyPI): its codec functions."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from aiokpl.aggregation import Tag, UserRecord, decode_aggregated, encode_aggregated, is_aggregated

from .conformance import serve, user_record


def decode(request: dict[str, Any]) -> dict[str, Any]:
    data = bytes.fromhex(request["data"])
    if not is_aggregated(data):
        return {"plain": True}
    rows = []
    for record in decode_aggregated(data):
        tags = [(tag.key, tag.value) for tag in record.tags]
        rows.append(user_record(record.partition_key, record.data, record.explicit_hash_key, tags))
    return {"user_records": rows}


def encode(request: dict[str, Any]) -> dict[str, Any]:
    if "max_size" in request:
        return {"unsupported": True}
    records = [
        UserRecord(
            partition_key=record["partition_key"],
            data=bytes.fromhex(record["data"]),
            explicit_hash_key=record.get("explicit_hash_key"),
            tags=[Tag(key=tag["key"], value=tag.get("value")) for tag in record.get("tags", ())],
        )
        for record in request["user_records"]
    ]
    return {"data": encode_aggregated(records).hex()}


if __name__ == "__main__":
    serve("aiokpl", version("aiokpl"), {"decode": decode, "encode": encode})
