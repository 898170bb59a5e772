"""Old and new side by side: aws_kinesis_agg 1.2.3 as published, and ours by the same names.

The laws hold wherever the real package is right; each `differs` test shows what ours does elsewhere.
"""

from __future__ import annotations
import __future__

import base64
import copy
import importlib.metadata
import importlib.util
import json
import os
import pkgutil
import queue
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import aws_kinesis_agg as old_package
import pytest
from aws_kinesis_agg import aggregator as old_aggregator
from aws_kinesis_agg import deaggregator as old_deaggregator
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec import adapters
from kpl_codec.compat import aws_kinesis_agg as new_package
from kpl_codec.compat.aws_kinesis_agg import aggregator as new_aggregator
from kpl_codec.compat.aws_kinesis_agg import deaggregator as new_deaggregator
from kpl_codec.format.frame import looks_aggregated
from kpl_codec.testing import strategies
from tests.examples import examples

from ..aws_lambda.conftest import KINESIS_RECORDS, load
from ..every import every


def old(records: Any, **arguments: Any) -> list[Any]:
    return list(old_deaggregator.iter_deaggregate_records(copy.deepcopy(records), **arguments))


def new(records: Any, *arguments: Any, **more: Any) -> list[Any]:
    return list(new_deaggregator.iter_deaggregate_records(copy.deepcopy(records), *arguments, **more))


def lambda_records(*data: bytes) -> list[dict[str, Any]]:
    rows = [kpl.KinesisRecord("outer", d, str(i), "shardId-000000000000") for i, d in enumerate(data)]
    records = adapters.to_lambda(rows, stream_arn="arn:aws:kinesis:us-east-2:1:stream/s")["Records"]
    for record in records:
        record["kinesis"]["approximateArrivalTimestamp"] = 1545084650.987
    return records  # type: ignore[no-any-return]


def as_text(record: dict[str, Any]) -> dict[str, Any]:
    """``record`` with its data as text: CMP-1 apart, old and new are the same."""
    data = record["kinesis"]["data"]
    if isinstance(data, bytes):
        record = {**record, "kinesis": {**record["kinesis"], "data": data.decode("ascii")}}
    return record


def without(names: set[str], record: dict[str, Any]) -> dict[str, Any]:
    kinesis = {k: v for k, v in record["kinesis"].items() if k not in names}
    return {**record, "kinesis": kinesis}


def boto3_records(*rows: kpl.KinesisRecord) -> list[dict[str, Any]]:
    return adapters.to_get_records([r.replace(shard_id=None) for r in rows])["Records"]  # type: ignore[no-any-return]


# -- deaggregation ------------------------------------------------------------------------------------

keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
#: All user records of one aggregate with an explicit hash key, or none: the rest is CMP-2.
hash_keys = st.integers(0, 2**128 - 1).map(str)
user_records = st.one_of(
    st.lists(st.tuples(keys, st.binary(max_size=20)), min_size=1, max_size=5),
    st.lists(st.tuples(keys, st.binary(max_size=20), hash_keys), min_size=1, max_size=5),
).map(lambda rows: [kpl.UserRecord(*row) for row in rows])
data = strategies.plain_data() | user_records.map(kpl.encode)


@given(st.lists(data, max_size=4))
@pytest.mark.requirement("CMP-1")
def test_same_dicts_for_lambda_records(payloads: list[bytes]) -> None:
    """But that data is always text. What the real package gives out is taken in; a plain record is the very
    object."""
    records = lambda_records(*payloads)
    before = old(records)
    expected = list(map(as_text, before))
    assert new(records) == expected
    assert [list(r["kinesis"]) for r in new(records)] == [list(r["kinesis"]) for r in expected]
    assert list(map(as_text, new(before))) == new(expected)
    assert new(iter(records)) == expected
    for record in records:
        assert new(record) == new([record])
        (first, *more) = new_deaggregator.iter_deaggregate_records(record)
        assert more or first is record or "explicitHashKey" in first["kinesis"]


@given(st.lists(data, max_size=4))
@pytest.mark.requirement("CMP-1", "CMP-2", "CMP-5")
def test_same_for_boto3_records(payloads: list[bytes]) -> None:
    """But for what is data (CMP-1), and explicit hash keys that are none (CMP-2)."""
    times = {"approximate_arrival_timestamp": KINESIS_RECORDS[0].approximate_arrival_timestamp}
    records = boto3_records(*(KINESIS_RECORDS[0].replace(data=one, **times) for one in payloads))
    before, after = old(records, data_format="Boto3"), new(records, "Boto3")
    names = {"data", "explicitHashKey"}
    assert [without(names, record) for record in before] == [without(names, record) for record in after]
    for one, other in zip(before, after, strict=True):
        raw, text = one["kinesis"]["data"], other["kinesis"]["data"]
        assert text in (base64.b64encode(raw).decode(), raw.decode("latin-1"))  # plain, or aggregated
    assert new(records) == new_deaggregator.deaggregate_records(records, data_format="Boto3") == after


@pytest.mark.requirement("CMP-7")
@every("name", ["firehose_kinesis_source.json", "analytics_stream.json"])
def test_same_for_firehose_and_analytics(name: str) -> None:
    """But the shard id of aggregated records (CMP-7), and explicit hash keys that are none (CMP-2)."""
    event = load(name)
    records = event["records"]
    before, after = old(records), new(records)
    assert new(records[:1]) == old(records[:1])
    names = {"shardId", "explicitHashKey"}
    assert [without(names, record) for record in after] == [without(names, as_text(one)) for one in before]
    assert name.startswith("analytics") or after[1]["kinesis"]["shardId"] == "shardId-000000000006"
    assert new(event) == after


@pytest.mark.requirement("CMP-1", "CMP-2")
def test_differs_data_has_one_type_and_a_hash_key_is_of_its_own_user_record() -> None:
    records = lambda_records(
        b"plain", kpl.encode([kpl.UserRecord("a", b"", "123"), kpl.UserRecord("b", b"")])
    )
    json.dumps(new(records))
    assert [r["kinesis"].get("explicitHashKey") for r in new(records)] == [None, "123", None]


@given(strategies.defective_frames())
@settings(max_examples=examples(60))
@pytest.mark.requirement("CMP-3")
def test_differs_no_unsound_aggregate_gets_through(frame: Any) -> None:
    """What stands before it is delivered."""
    records = lambda_records(b"before", frame.data, b"after")
    given_out = []
    try:
        given_out.extend(new_deaggregator.iter_deaggregate_records(records))
    except kpl.DecodeError as error:
        assert error.sequence_number == "1"
        assert given_out == records[:1]
        assert new(records, errors="raw") == records
    else:
        assert not looks_aggregated(frame.data)  # too short for a frame: a plain record
        assert given_out == records
    with pytest.raises(ValueError, match='give "raise" or "raw"'):
        new(records, errors="strict")


@pytest.mark.requirement("CMP-4")
def test_differs_base64_is_strict() -> None:
    records = lambda_records(b"plain")
    records[0]["kinesis"]["data"] = "c!G?xhaW4="
    with pytest.raises(kpl.CaptureError):
        new(records)


@pytest.mark.requirement("CMP-6")
def test_differs_missing_metadata_loses_nothing() -> None:
    records = lambda_records(KINESIS_RECORDS[1].data)
    del records[0]["kinesis"]["approximateArrivalTimestamp"]
    assert [r["kinesis"]["approximateArrivalTimestamp"] for r in new(records)] == [None] * 5
    # Streams that distribute records AUTO give no partition key; Firehose without a stream as its source.
    rows = boto3_records(KINESIS_RECORDS[1].replace(partition_key=None))
    assert len(new(rows)) == 5
    assert len(new(load("firehose_direct_put.json")["records"])) == 8


# -- aggregation --------------------------------------------------------------------------------------


def filled(module: Any, records: list[kpl.UserRecord], max_size: int = 1024 * 1024) -> list[Any]:
    aggregator = module.RecordAggregator(max_size)
    full = [aggregator.add_user_record(r.partition_key, r.data, r.explicit_hash_key) for r in records]
    return [record for record in [*full, aggregator.clear_and_get()] if record is not None]


@given(user_records)
def test_same_bytes_and_keys(records: list[kpl.UserRecord]) -> None:
    (before,), (after,) = filled(old_aggregator, records), filled(new_aggregator, records)
    assert after.get_contents() == before.get_contents()
    assert after.get_num_user_records() == before.get_num_user_records() == len(records)
    assert after.get_partition_key() == before.get_partition_key()
    assert after.get_explicit_hash_key() == before.get_explicit_hash_key()


def test_same_values_texts_and_callbacks() -> None:
    for name in ("MAGIC", "DIGEST_SIZE", "MAX_BYTES_PER_RECORD"):
        assert getattr(new_package, name) == getattr(old_package, name)
    for module in (old_aggregator, new_aggregator):
        aggregator = module.RecordAggregator()
        assert aggregator.clear_and_get() is None
        assert (aggregator.get_num_user_records(), aggregator.get_size_bytes()) == (0, 20)
        assert module.AggRecord().get_partition_key() is module.AggRecord().get_explicit_hash_key() is None
        assert aggregator.max_size == aggregator.current_record.max_size == 1024 * 1024
        aggregator.add_user_record("ü", "data", None)
        assert kpl.decode(aggregator.clear_and_get().get_contents()[2])[0] == kpl.UserRecord("ü", b"data")
        here: list[Any] = []
        elsewhere: queue.Queue[Any] = queue.Queue()
        aggregator = module.RecordAggregator(100)
        aggregator.on_record_complete(here.append, execute_on_new_thread=False)
        aggregator.on_record_complete(elsewhere.put)
        assert aggregator.add_user_record("a", b"x" * 60) is None
        full = aggregator.add_user_record("b", b"y" * 60)
        called = [*here, elsewhere.get(timeout=60)]
        assert [record.get_contents() for record in called] == [full.get_contents()] * 2
        aggregator.clear_callbacks()
        aggregator.clear_record()
        assert aggregator.get_num_user_records() == 0


@given(st.lists(st.integers(0, 260), min_size=1, max_size=12), st.integers(60, 300))
@pytest.mark.requirement("CMP-8", "CMP-9", "CMP-10")
def test_differs_whatever_goes_in_comes_out_or_raises(sizes: list[int], max_size: int) -> None:
    aggregator = new_aggregator.RecordAggregator(max_size)
    out, taken = [], []
    for number, size in enumerate(sizes):
        record = kpl.UserRecord(f"key-{number % 3}", bytes([number]) * size)
        try:
            full = aggregator.add_user_record(record.partition_key, record.data)
        except ValueError:
            assert len(kpl.encode([record])) + len(record.partition_key) > max_size
            continue
        taken.append(record)
        out += [] if full is None else [full]
        assert aggregator.get_size_bytes() == len(aggregator.current_record.get_contents()[2])
    last = aggregator.clear_and_get()
    contents = [record.get_contents() for record in [*out, last] if record is not None]
    assert [user for _, _, data in contents for user in kpl.decode(data)] == taken
    assert all(len(data) + len(partition_key) <= max_size for partition_key, _, data in contents)


@pytest.mark.requirement("CMP-11")
@every(
    ("partition_key", "explicit_hash_key"),
    [("", None), ("k" * 257, None), ("k", "xyz"), ("k", str(2**128)), ("k", "007"), ("k", "")],
)
def test_differs_what_kinesis_refuses_is_refused(partition_key: str, explicit_hash_key: str | None) -> None:
    with pytest.raises(ValueError, match="must"):
        new_aggregator.RecordAggregator().add_user_record(partition_key, b"x", explicit_hash_key)


@pytest.mark.requirement("CMP-12")
def test_differs_every_kind_of_bytes_is_data() -> None:
    for data in (bytearray(b"x"), memoryview(b"x")):
        after = new_aggregator.RecordAggregator()
        after.add_user_record(b"a", data, b"5")
        assert after.clear_and_get().get_contents()[:2] == ("a", "5")  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="data must be bytes"):
        new_aggregator.RecordAggregator().add_user_record("a", 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="UTF-8"):
        new_aggregator.RecordAggregator().add_user_record(b"\xff", b"")


@pytest.mark.requirement("CMP-13")
def test_differs_clear_works_and_a_callback_is_called_once_whatever_another_raises() -> None:
    again = new_aggregator.AggRecord()
    again.add_user_record("a", b"x")
    again.clear()
    assert (again.get_num_user_records(), again.get_partition_key(), again.get_size_bytes()) == (0, None, 20)
    aggregator = new_aggregator.RecordAggregator(200)
    full: list[Any] = []
    aggregator.on_record_complete(lambda _: {}[0], execute_on_new_thread=False)
    for _ in range(2):
        aggregator.on_record_complete(full.append, execute_on_new_thread=False)
    raised = 0
    for _ in range(20):
        try:
            aggregator.add_user_record("k", b"x" * 50)
        except KeyError:
            raised += 1
    assert raised == len(full) == 6


@pytest.mark.requirement("CMP-14", "CMP-16")
def test_differs_an_aggregate_of_nothing_is_not_given_out_and_records_may_be_large() -> None:
    """Streams can be set to 10 MiB a record since 2025."""
    with pytest.raises(kpl.EncodeError):
        new_aggregator.AggRecord().get_contents()
    assert new_aggregator.RecordAggregator(10 * 1024 * 1024).max_size == 10 * 1024 * 1024
    with pytest.raises(ValueError, match="max_size"):
        new_aggregator.RecordAggregator(10 * 1024 * 1024 + 1)


# -- what an import does, and the names ---------------------------------------------------------------

#: A program whose OpenSSL forbids MD5 (FIPS), and which has no other packages.
PROGRAM = """
import hashlib, sys
def md5(*arguments, usedforsecurity=True, real=hashlib.md5):
    if usedforsecurity:
        raise ValueError("[digital envelope routines] unsupported")
    return real(*arguments, usedforsecurity=False)
hashlib.md5 = md5
sys.modules |= {"six": None, "google": None, "aws_kinesis_agg": None}
path = list(sys.path)
from kpl_codec.compat.aws_kinesis_agg import aggregator, deaggregator
packed = aggregator.RecordAggregator()
packed.add_user_record("a", b"x")
data = packed.clear_and_get().get_contents()[2]
assert sys.path == path
record = {"SequenceNumber": "1", "PartitionKey": "a", "Data": data}
assert len(list(deaggregator.iter_deaggregate_records([record], "Boto3"))) == 1
"""


@pytest.mark.requirement("CMP-15")
def test_differs_what_the_import_does() -> None:
    environment = {**os.environ, "KPL_CODEC_PURE": "1"}  # the extension has an MD5 of its own
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, timeout=60)


def public_names(thing: Any) -> set[str]:
    """The names of ``thing`` without an underscore, but for what a module only imports."""
    imported = (types.ModuleType, __future__._Feature)
    return {
        name
        for name in dir(thing)
        if not name.startswith("_") and not isinstance(getattr(thing, name), imported)
    }


def test_every_public_name_is_there_or_listed() -> None:
    missing = {
        module.name
        for module in pkgutil.iter_modules(old_package.__path__)
        if importlib.util.find_spec(f"{new_package.__name__}.{module.name}") is None
    }
    for before, after in (
        (old_package, new_package),
        (old_aggregator, new_aggregator),
        (old_deaggregator, new_deaggregator),
        (old_aggregator.RecordAggregator(), new_aggregator.RecordAggregator()),
        (old_aggregator.AggRecord(), new_aggregator.AggRecord()),
    ):
        missing |= public_names(before) - public_names(after)
    spec = (Path(__file__).parents[2] / "spec" / "06-lambda.md").read_text(encoding="utf-8")
    listed = spec.partition("Public names that are left out:")[2].partition("(CMP-15)")[0]
    assert missing == set(re.findall(r"`(\w+)`", listed))
