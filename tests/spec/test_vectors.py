"""Every vector of spec/vectors against this library, and the vector files against their schema."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import kpl_codec as kpl
from fuzz.invariants import check_user_records
from kpl_codec import verify_placement
from kpl_codec.adapters import kinesis_records
from kpl_codec.deaggregation import kcl
from kpl_codec.deaggregation.policy_rules import POLICIES
from kpl_codec.format.codec import AggregatedRecordBuilder, is_canonical
from kpl_codec.format.frame import disguise_of
from kpl_codec.format.hash_keys import format_hash_key, hash_key_from_bytes, hash_key_to_bytes, parse_hash_key
from kpl_codec.format.records import opened_before
from kpl_codec.schema_registry import SchemaFrameError, frame, unframe

from ..every import every
from ..guides.blocks import blocks
from .vectors import VECTORS, Vector, facts, files, hash_key_range, load, of_kind, user_record

SCHEMA = json.loads((VECTORS / "schema.json").read_text())


@every("path", files(), ids=lambda path: path.name)
def test_files_follow_their_schema(path: Any) -> None:
    document = json.loads(path.read_text())
    validator = jsonschema.Draft202012Validator(SCHEMA)
    assert [error.json_path for error in validator.iter_errors(document)] == []


def test_the_schema_refuses_what_is_wrong() -> None:
    document = json.loads((VECTORS / "frames.json").read_text())
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    vector = document["vectors"][0]
    for change in ({"result": "invalid"}, {"kind": "other"}, {"id": "Has Spaces"}, {"requirements": []}):
        assert not validator.is_valid({**document, "vectors": [{**vector, **change}]})


def test_ids_are_unique() -> None:
    ids = [vector["id"] for vector in load()]
    assert sorted(set(ids)) == sorted(ids)


def refused(vector: Vector, kind: type[kpl.KplError], call: Callable[[], object]) -> bool:
    """Whether the vector says that the call fails; then it does, with the facts that the vector names."""
    if "error" not in vector:
        return False
    with pytest.raises(kind) as caught:
        call()
    assert facts(caught.value, vector["error"]) == vector["error"]
    return True


@every("vector", of_kind("decode"))
def test_decode(vector: Vector) -> None:
    data = bytes.fromhex(vector["input"]["data"])
    explanation = kpl.explain(data)
    if "user_records" in vector:
        assert list(kpl.decode(data)) == list(map(user_record, vector["user_records"]))
        assert kpl.is_aggregated(data)
        assert is_canonical(data) == explanation.canonical == vector["canonical"]
        assert explanation.sound
        return
    with pytest.raises(kpl.DecodeError) as caught:
        kpl.decode(data)
    if vector.get("plain"):
        assert isinstance(caught.value, kpl.NotAggregated)
        foreign = {"disguise": "a frame with a foreign magic"} if disguise_of(data) is not None else {}
        assert caught.value.fields == {"offset": 0, "length": len(data), **foreign}
        assert not kpl.is_aggregated(data)
        assert explanation.kind == ("encoded frame" if foreign else "plain")
    else:
        assert facts(caught.value, vector["error"]) == vector["error"]
        assert explanation.defects[0] == caught.value


@every("vector", of_kind("decode"))
def test_what_the_kcl_does(vector: Vector) -> None:
    data = bytes.fromhex(vector["input"]["data"])
    expected = vector["kcl"]
    outcome = kcl.outcome(data, hash_key_range(vector["input"].get("hash_key_range")))
    assert outcome.raw == ("raw" in expected)
    if not outcome.raw:
        assert outcome.total - outcome.delivered == expected["dropped"]
        assert outcome.reason == expected.get("reason")
        delivered = [kpl.UserRecord(*row) for row in kcl.user_records(data, outcome.delivered)]
        assert delivered == list(map(user_record, expected["user_records"]))
    if seen := vector.get("observed", {}).get("KCL 3.5.1"):  # what the KCL itself was seen to do
        assert (expected.get("raw"), expected.get("user_records")) == (
            seen.get("raw"),
            seen.get("user_records"),
        )


@every("vector", of_kind("encode"))
def test_encode(vector: Vector) -> None:
    records = list(map(user_record, vector["input"]["user_records"]))
    builder = AggregatedRecordBuilder(vector["input"].get("max_size"))

    def build() -> bytes:
        for record in records:
            builder.add(record)
        return builder.build()

    if refused(vector, kpl.EncodeError, build):
        if vector["error"]["code"] != "aggregate-full":
            refused(vector, kpl.EncodeError, lambda: kpl.encode(records))
        return
    data = build()
    assert data.hex() == vector["data"]
    assert builder.size == len(data) == vector["size"]
    assert kpl.encode(records) == data
    assert list(kpl.decode(data)) == records
    if len(data) < 5_000:
        check_user_records(records)  # both encoders, all decoders, the executable spec


@every("vector", of_kind("hash-key"))
def test_hash_key(vector: Vector) -> None:
    keys = vector["input"]["partition_key"], vector["input"].get("explicit_hash_key")
    if refused(vector, kpl.HashKeyError, lambda: kpl.effective_hash_key(*keys)):
        return
    hash_key = kpl.effective_hash_key(*keys)
    assert format_hash_key(hash_key) == vector["hash_key"]
    assert hash_key_to_bytes(hash_key).hex() == vector["column"]
    assert hash_key_from_bytes(bytes.fromhex(vector["column"])) == hash_key


@every("vector", of_kind("hash-key-text"))
def test_hash_key_text(vector: Vector) -> None:
    text = vector["input"]["text"]
    if not refused(vector, kpl.HashKeyError, lambda: parse_hash_key(text)):
        assert format_hash_key(parse_hash_key(text)) == vector["hash_key"]


@every("vector", of_kind("hash-key-range"))
def test_hash_key_range(vector: Vector) -> None:
    ends = int(vector["input"]["starting_hash_key"]), int(vector["input"]["ending_hash_key"])
    if refused(vector, kpl.HashKeyError, lambda: kpl.HashKeyRange(*ends)):
        return
    found = kpl.HashKeyRange(*ends)
    assert all(int(hash_key) in found for hash_key in vector["inside"])
    assert not any(int(hash_key) in found for hash_key in vector["outside"])


@every("vector", of_kind("shard-map"))
def test_shard_map(vector: Vector) -> None:
    pages = vector["input"]["pages"]
    if refused(vector, kpl.ShardMapError, lambda: kpl.ShardMap.from_list_shards(pages)):
        return
    found = kpl.ShardMap.from_list_shards(pages)
    assert [shard.shard_id for shard in found.open_shards] == vector["open_shards"]
    for hash_key, shard_id in vector["lookups"].items():
        assert found.shard_for(int(hash_key)).shard_id == shard_id
    unknown = {shard: list(missing) for shard, missing in found.unknown_parents.items()}
    assert unknown == vector["unknown_parents"]


@every("vector", of_kind("placement"))
def test_placement(vector: Vector) -> None:
    given = vector["input"]
    shard_map = kpl.ShardMap.from_list_shards(
        given["pages"], distribution=given.get("distribution", "USER_PARTITION_KEY")
    )
    if given["aggregated"]:
        record = kpl.DeaggregatedRecord(
            given["partition_key"], b"", given["explicit_hash_key"], (), "1", 0, True, given["shard_id"], None
        )
        found = verify_placement(record, shard_map)
    else:
        plain = kpl.KinesisRecord(
            given["partition_key"], b"", "1", given["shard_id"], None, given["explicit_hash_key"]
        )
        found = verify_placement(plain, shard_map)
    assert found.verdict == vector["verdict"]
    assert found.expected_shard_id == vector["expected_shard_id"]
    assert found.in_range == vector["in_range"]
    assert found.shard_id == given["shard_id"]
    keys = given["partition_key"], given["explicit_hash_key"]
    assert found.hash_key == (
        None if keys == (None, None) else kpl.effective_hash_key(keys[0] or "", keys[1])
    )


def row(record: kpl.DeaggregatedRecord) -> dict[str, Any]:
    """A deaggregated record as the vectors write it."""
    for defect in record.defects:
        assert (defect.sequence_number, defect.shard_id) == (record.sequence_number, record.shard_id)
        assert defect.record_index in (None, record.sub_sequence_number)
        assert (defect.record_index is None) == (not record.aggregated)
    placement = record.placement
    fields = {
        "sequence_number": record.sequence_number,
        "sub_sequence_number": record.sub_sequence_number,
        "partition_key": record.partition_key,
        "data": record.data.hex(),
        "aggregated": record.aggregated,
    }
    optional = {
        "explicit_hash_key": record.explicit_hash_key,
        "tags": [{"key": tag.key, "value": tag.value} for tag in record.tags] or None,
        "defects": [defect.code for defect in record.defects] or None,
        "kcl": record.kcl,
        "placement": placement.verdict if placement is not None else None,
        "aggregate": placement.aggregate if placement is not None else None,
    }
    return {**fields, **{name: value for name, value in optional.items() if value is not None}}


def kinesis_record(given: dict[str, Any]) -> kpl.KinesisRecord:
    key, opened = given["partition_key"], given.get("opened", {})
    sub = opened.get("sub_sequence_number")
    return kpl.KinesisRecord(
        key,
        bytes.fromhex(given["data"]),
        given["sequence_number"],
        given.get("shard_id"),
        sub_sequence_number=sub,
        opened_before=opened_before(opened["by"], opened["aggregated"], sub, key, None) if opened else None,
    )


@every("vector", of_kind("deaggregate"))
@every("given_as", [list, iter], ids=lambda kind: kind.__name__)
def test_deaggregate(vector: Vector, given_as: Any) -> None:
    given = vector["input"]
    records = list(kinesis_records(list(map(kinesis_record, given["records"]))))
    shard_map = kpl.ShardMap.from_list_shards(given["pages"]) if "pages" in given else None
    result = kpl.deaggregate(
        given_as(records),
        given["policy"],
        shard_map=shard_map,
        hash_key_range=hash_key_range(given.get("hash_key_range")),
    )
    user_records: list[kpl.DeaggregatedRecord] = []
    if not refused(vector, kpl.DecodeError, lambda: user_records.extend(result)):
        user_records.extend(result)
        found = {name: getattr(result.counts, name) for name in vector["counts"]}
        assert {name: dict(v) if isinstance(v, dict) else v for name, v in found.items()} == vector["counts"]
    assert list(map(row, user_records)) == vector["rows"]
    properties = vector.get("properties", [{}] * len(user_records))
    for record, values in zip(user_records, properties, strict=True):
        assert {name: getattr(record, name) for name in values} == values


#: A program in the form of spec/vectors/README.md around this library. ``{}``: which user records it gives.
_DECODER = """\
import json, sys
import kpl_codec as kpl
from tests.interop.conformance import of_user_record
for line in sys.stdin:
    try:
        answer = {{"user_records": [*map(of_user_record, kpl.decode(bytes.fromhex(line)))][{}]}}
    except kpl.NotAggregated:
        answer = {{"plain": True}}
    except kpl.DecodeError as error:
        answer = {{"error": error.code}}
    print(json.dumps(answer))
"""


@pytest.mark.parametrize(("user_records", "given"), [(":", 1000), (":1", 1)])
def test_a_program_in_any_language_can_be_asked(user_records: str, given: int, tmp_path: Path) -> None:
    (asks,) = (block for block in blocks((VECTORS / "README.md").read_text()) if "file" in block.options)
    (tmp_path / "ask.py").write_text(asks.text)
    (tmp_path / "mine.py").write_text(_DECODER.format(user_records))
    command = [sys.executable, tmp_path / "ask.py", sys.executable, tmp_path / "mine.py"]
    there = {**os.environ, "PYTHONPATH": str(VECTORS.parents[1])}
    asked = subprocess.run(command, cwd=VECTORS, env=there, capture_output=True, text=True, check=True)
    more = [v["id"] for v in load() if v["kind"] == "decode" and len(v.get("user_records", ())) > given]
    assert [line.split()[0] for line in asked.stdout.splitlines()] == more
    assert bool(more) == (given == 1)


def test_every_policy_has_vectors() -> None:
    assert {vector["input"]["policy"] for vector in load() if vector["kind"] == "deaggregate"} == {*POLICIES}


@every("vector", of_kind("schema-frame"))
def test_schema_frames(vector: Vector) -> None:
    data = bytes.fromhex(vector["input"]["data"])
    if refused(vector, SchemaFrameError, lambda: unframe(data)):
        return
    version, payload = unframe(data)
    assert (version, payload.hex()) == (vector["schema_version_id"], vector["payload"])
    if version is not None:
        assert frame(payload, version, compress=data[1] == 5) == data
