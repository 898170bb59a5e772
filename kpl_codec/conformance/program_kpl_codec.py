"""A program that answers the questions of spec/09-conformance.md with this library."""

from __future__ import annotations

from typing import Any

import kpl_codec as kpl
from kpl_codec.schema_registry import unframe

from ..format.hash_keys import format_hash_key, parse_hash_key
from ..shards.placement import verify_placement
from .program import AnswerFunction, serve, user_record


def _record(fields: dict[str, Any]) -> kpl.UserRecord:
    tags = tuple(kpl.Tag(tag["key"], tag.get("value")) for tag in fields.get("tags", ()))
    return kpl.UserRecord(
        fields["partition_key"], bytes.fromhex(fields["data"]), fields.get("explicit_hash_key"), tags
    )


def decode(question: dict[str, Any]) -> dict[str, Any]:
    try:
        return {
            "user_records": [user_record(*record) for record in kpl.decode(bytes.fromhex(question["data"]))]
        }
    except kpl.NotAggregated:
        return {"plain": True}


def encode(question: dict[str, Any]) -> dict[str, Any]:
    builder = kpl.AggregatedRecordBuilder(question.get("max_size"))
    for record in question["user_records"]:
        builder.add(_record(record))
    return {"data": builder.build().hex()}


def hash_key_range(question: dict[str, Any]) -> dict[str, Any]:
    keys = kpl.HashKeyRange(int(question["starting_hash_key"]), int(question["ending_hash_key"]))
    return {"inside": [probe for probe in question["probes"] if int(probe) in keys]}


def shard_map(question: dict[str, Any]) -> dict[str, Any]:
    shards = kpl.ShardMap.from_list_shards(question["pages"])
    return {
        "open_shards": [shard.shard_id for shard in shards.open_shards],
        "lookups": {probe: shards.shard_for(int(probe)).shard_id for probe in question["probes"]},
        "unknown_parents": {shard: list(parents) for shard, parents in shards.unknown_parents.items()},
    }


def placement(question: dict[str, Any]) -> dict[str, Any]:
    shards = kpl.ShardMap.from_list_shards(
        question["pages"], question.get("distribution", "USER_PARTITION_KEY")
    )
    keys, shard_id = (question["partition_key"], question["explicit_hash_key"]), question["shard_id"]
    record: kpl.KinesisRecord | kpl.DeaggregatedRecord
    if question["aggregated"]:
        record = kpl.DeaggregatedRecord(keys[0], b"", keys[1], (), "1", 0, True, shard_id, None)
    else:
        record = kpl.KinesisRecord(keys[0], b"", "1", shard_id, None, keys[1])
    verdict = verify_placement(record, shards)
    return {name: getattr(verdict, name) for name in ("verdict", "expected_shard_id", "in_range")}


def _row(record: kpl.DeaggregatedRecord) -> dict[str, Any]:
    row = {
        **user_record(record.partition_key, record.data, record.explicit_hash_key, record.tags),
        "sequence_number": record.sequence_number,
        "sub_sequence_number": record.sub_sequence_number,
        "aggregated": record.aggregated,
    }
    if record.defects:
        row["defects"] = [defect.code for defect in record.defects]
    if record.kcl is not None:
        row["kcl"] = record.kcl
    if record.placement is not None:
        row["placement"] = record.placement.verdict
        if record.placement.aggregate is not None:
            row["aggregate"] = record.placement.aggregate
    return row


def deaggregate(question: dict[str, Any]) -> dict[str, Any]:
    records = (
        kpl.KinesisRecord(
            r["partition_key"], bytes.fromhex(r["data"]), r["sequence_number"], r.get("shard_id")
        )
        for r in question["records"]
    )
    ends = question.get("hash_key_range")
    user_records = kpl.deaggregate(
        records,
        question["policy"],
        shard_map=kpl.ShardMap.from_list_shards(question["pages"]) if "pages" in question else None,
        hash_key_range=kpl.HashKeyRange(int(ends[0]), int(ends[1])) if ends else None,
    )
    rows: list[dict[str, Any]] = []
    try:
        rows.extend(map(_row, user_records))
    except kpl.DecodeError as error:
        return {"rows": rows, "error": error.code}
    return {"rows": rows}


def schema_frame(question: dict[str, Any]) -> dict[str, Any]:
    version, payload = unframe(bytes.fromhex(question["data"]))
    return {"schema_version_id": version, "payload": payload.hex()}


OPERATIONS: dict[str, AnswerFunction] = {
    "decode": decode,
    "encode": encode,
    "hash-key": lambda question: {
        "hash_key": str(kpl.effective_hash_key(question["partition_key"], question.get("explicit_hash_key")))
    },
    "hash-key-text": lambda question: {"hash_key": format_hash_key(parse_hash_key(question["text"]))},
    "hash-key-range": hash_key_range,
    "shard-map": shard_map,
    "placement": placement,
    "deaggregate": deaggregate,
    "schema-frame": schema_frame,
}

if __name__ == "__main__":
    serve("kpl_codec", kpl.__version__, OPERATIONS)
