"""Old and new side by side: aws_kinesis_agg 1.2.3 as published, and ours by the same names.

`same` tests hold wherever the real package is right; each `differs` test shows one row of the table in
spec/06-lambda.md: what the real package does, and what ours does instead.
"""

from __future__ import annotations
import __future__

import base64
import contextlib
import copy
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import pkgutil
import queue
import re
import subprocess
import sys
import types
from collections.abc import Iterator
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
from kpl_codec.testing import strategies
from tests.examples import examples

from ..aws_lambda.conftest import KINESIS_RECORDS, load, vector


def old(records: Any, **arguments: Any) -> list[Any]:
    return list(old_deaggregator.iter_deaggregate_records(copy.deepcopy(records), **arguments))


def new(records: Any, *arguments: Any, **more: Any) -> list[Any]:
    return list(new_deaggregator.iter_deaggregate_records(copy.deepcopy(records), *arguments, **more))


def framed(message: bytes) -> bytes:
    return b"\xf3\x89\x9a\xc2" + message + hashlib.md5(message, usedforsecurity=False).digest()


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


def test_the_real_package_is_the_one_the_table_is_about() -> None:
    assert importlib.metadata.version("aws_kinesis_agg") == "1.2.3"


# -- deaggregation: the same --------------------------------------------------------------------------

keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
#: All user records of one aggregate with an explicit hash key, or none: the rest is CMP-2.
hash_keys = st.integers(0, 2**128 - 1).map(str)
user_records = st.one_of(
    st.lists(st.tuples(keys, st.binary(max_size=20)), min_size=1, max_size=5),
    st.lists(st.tuples(keys, st.binary(max_size=20), hash_keys), min_size=1, max_size=5),
).map(lambda rows: [kpl.UserRecord(*row) for row in rows])
data = strategies.plain_data() | user_records.map(kpl.encode)


@given(st.lists(data, max_size=4))
def test_same_dicts_for_lambda_records(payloads: list[bytes]) -> None:
    records = lambda_records(*payloads)
    expected = list(map(as_text, old(records)))
    assert new(records) == expected
    assert [list(r["kinesis"]) for r in new(records)] == [list(r["kinesis"]) for r in expected]


@pytest.mark.parametrize("name", ["firehose_kinesis_source.json", "analytics_stream.json"])
def test_same_for_firehose_and_analytics(name: str) -> None:
    """But the shard id of aggregated records (CMP-7), and explicit hash keys that are none (CMP-2)."""
    records = load(name)["records"]
    names = {"shardId", "explicitHashKey"}
    expected = [without(names, as_text(record)) for record in old(records)]
    assert [without(names, record) for record in new(records)] == expected
    assert new(records[:1]) == old(records[:1])


def test_same_for_one_record_and_for_an_iterator() -> None:
    record = lambda_records(KINESIS_RECORDS[2].data)[0]
    both = vector("story-kpl-ehk-second")["input"]["user_records"]
    assert [r["kinesis"]["partitionKey"] for r in new(record)] == [u["partition_key"] for u in both]
    assert new(iter([record])) == new(record) == new([record])


def test_a_plain_lambda_record_is_the_very_object() -> None:
    record = lambda_records(b"plain")[0]
    assert next(new_deaggregator.iter_deaggregate_records([record])) is record
    assert next(old_deaggregator.iter_deaggregate_records([record])) is record


# -- deaggregation: what differs ----------------------------------------------------------------------


@pytest.mark.requirement("CMP-1")
def test_differs_data_has_one_type() -> None:
    records = lambda_records(b"plain", KINESIS_RECORDS[1].data)
    assert [type(r["kinesis"]["data"]) for r in old(records)] == [str] + [bytes] * 5
    assert [type(r["kinesis"]["data"]) for r in new(records)] == [str] * 6
    with pytest.raises(TypeError):
        json.dumps(old(records))
    json.dumps(new(records))


def boto3_records(*rows: kpl.KinesisRecord) -> list[dict[str, Any]]:
    return adapters.to_get_records([r.replace(shard_id=None) for r in rows])["Records"]  # type: ignore[no-any-return]


@pytest.mark.requirement("CMP-1")
def test_differs_data_of_boto3_records() -> None:
    records = boto3_records(*KINESIS_RECORDS[:2])
    before = old(records, data_format="Boto3")
    assert before[0]["kinesis"]["data"] == KINESIS_RECORDS[0].data  # raw bytes, if plain
    assert base64.b64decode(before[2]["kinesis"]["data"]) == b"\xc8"  # base64 bytes, if aggregated
    after = new(records, "Boto3")
    decoded = [base64.b64decode(r["kinesis"]["data"]) for r in after]
    assert decoded[:3] == [KINESIS_RECORDS[0].data, b"", b"\xc8"]
    assert all(type(r["kinesis"]["data"]) is str for r in after)
    names = {"data", "explicitHashKey"}  # CMP-2; all else is the same
    assert [without(names, record) for record in before] == [without(names, record) for record in after]


@pytest.mark.requirement("CMP-2")
def test_differs_a_user_record_without_an_explicit_hash_key_has_none() -> None:
    records = lambda_records(kpl.encode([kpl.UserRecord("a", b"", "123"), kpl.UserRecord("b", b"")]))
    assert [r["kinesis"]["explicitHashKey"] for r in old(records)] == ["123", "123"]
    assert [r["kinesis"]["explicitHashKey"] for r in new(records)] == ["123", None]


GOOD = b"\x1a\x05\x08\x00\x1a\x01x"
TABLE = b"\x0a\x01a"
CASES = {
    # case: (message, how many user records the real package gives; -1: IndexError, our error)
    "index out of table": (TABLE + GOOD + b"\x1a\x05\x08\x09\x1a\x01y" + GOOD, 1, kpl.IndexOutOfTable),
    "partition key index missing": (TABLE + b"\x1a\x03\x1a\x01x", 1, kpl.MissingField),
    "data missing": (TABLE + b"\x1a\x02\x08\x00", 1, kpl.MissingField),
    "data as a varint": (TABLE + b"\x1a\x04\x08\x00\x18\x05", 1, kpl.WrongWireType),
    "key that is not UTF-8": (b"\x0a\x01\xff" + GOOD, 1, kpl.InvalidKey),
    "no user records": (TABLE, 0, kpl.NoUserRecords),
    "no hash key": (TABLE + b"\x12\x01z\x1a\x07\x08\x00\x10\x00\x1a\x01x", 1, kpl.InvalidHashKey),
    "explicit hash key index out of table, raised inside its own error report": (
        TABLE + b"\x12\x015" + GOOD + b"\x1a\x07\x08\x00\x10\x07\x1a\x01y", -1, kpl.IndexOutOfTable,
    ),
    "no protobuf, taken for plain data": (b"\x1a\xff", 1, kpl.DecodeError),
}  # fmt: skip


@pytest.mark.requirement("CMP-3")
@pytest.mark.parametrize("case", CASES)
def test_differs_an_unsound_aggregate_raises_or_comes_out_whole(case: str) -> None:
    message, count, error = CASES[case]
    records = lambda_records(b"before", framed(message), b"after")
    expected = pytest.raises(IndexError) if count < 0 else contextlib.nullcontext()
    with contextlib.redirect_stderr(io.StringIO()), expected:
        assert len(old(records)) == count + 2  # and says nothing, or prints
    with pytest.raises(error) as raised:
        new(records)
    assert raised.value.sequence_number == "1"
    assert new(records, errors="raw") == records
    user_dicts = []
    with contextlib.suppress(error):
        user_dicts.extend(new_deaggregator.iter_deaggregate_records(records))
    assert user_dicts == records[:1]  # what stands before it is delivered


@pytest.mark.requirement("CMP-3")
def test_differs_a_broken_frame_is_not_taken_for_plain_data() -> None:
    data = KINESIS_RECORDS[1].data
    records = lambda_records(data[:-1] + bytes([data[-1] ^ 1]))
    assert old(records) == records
    with pytest.raises(kpl.DecodeError):
        new(records)
    with pytest.raises(ValueError, match='give "raise" or "raw"'):
        new(records, errors="strict")  # type: ignore[arg-type]


@given(strategies.defective_frames())
@settings(max_examples=examples(60))
@pytest.mark.requirement("CMP-3")
def test_no_unsound_aggregate_gets_through(frame: Any) -> None:
    records = lambda_records(frame.data)
    try:
        user_dicts = new(records)
    except kpl.DecodeError:
        assert new(records, errors="raw") == records
    else:
        assert user_dicts == records  # too short for a frame: a plain record


@pytest.mark.requirement("CMP-4")
def test_differs_base64_is_strict() -> None:
    records = lambda_records(b"plain")
    records[0]["kinesis"]["data"] = "c!G?xhaW4="
    assert old(records) == records  # decoded without a word, junk skipped
    with pytest.raises(kpl.CaptureError):
        new(records)


@pytest.mark.requirement("CMP-5")
def test_differs_boto3_records_are_recognised() -> None:
    records = boto3_records(*KINESIS_RECORDS[:2])
    with pytest.raises(KeyError, match="kinesis"):
        old(records)
    with pytest.raises(TypeError):
        old_deaggregator.deaggregate_records(records, data_format="Boto3")
    assert new(records) == new_deaggregator.deaggregate_records(records, data_format="Boto3")
    assert len(new(records)) == 6


@pytest.mark.requirement("CMP-6")
def test_differs_missing_metadata_loses_nothing() -> None:
    records = lambda_records(KINESIS_RECORDS[1].data)
    del records[0]["kinesis"]["approximateArrivalTimestamp"]
    with contextlib.redirect_stderr(io.StringIO()):
        assert old(records) == []  # all five are gone
    assert len(new(records)) == 5
    assert {r["kinesis"]["approximateArrivalTimestamp"] for r in new(records)} == {None}
    # streams that distribute records AUTO give no partition key
    rows = boto3_records(KINESIS_RECORDS[1].replace(partition_key=None))
    with pytest.raises(KeyError):
        old(rows, data_format="Boto3")
    assert len(new(rows)) == 5
    # Firehose without a stream as its source
    rows = load("firehose_direct_put.json")["records"]
    with pytest.raises(KeyError):
        old(rows)
    assert len(new(rows)) == 8


@pytest.mark.requirement("CMP-7")
def test_differs_the_shard_id_is_kept_and_events_are_taken_whole() -> None:
    event = load("firehose_kinesis_source.json")
    assert "shardId" not in old(event["records"])[1]["kinesis"]
    assert new(event["records"])[1]["kinesis"]["shardId"] == "shardId-000000000006"
    with pytest.raises(KeyError):
        old(event)
    assert new(event) == new(event["records"])


def test_what_the_real_package_gives_out_is_taken_in() -> None:
    first = lambda_records(kpl.encode([kpl.UserRecord("a", b"x"), kpl.UserRecord("b", b"y")]))
    assert list(map(as_text, new(old(first)))) == new(first)


# -- aggregation: the same ----------------------------------------------------------------------------


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


def test_same_values() -> None:
    for name in ("MAGIC", "DIGEST_SIZE", "MAX_BYTES_PER_RECORD"):
        assert getattr(new_package, name) == getattr(old_package, name)
    for module in (old_aggregator, new_aggregator):
        empty = module.RecordAggregator()
        assert empty.clear_and_get() is None
        assert empty.get_num_user_records() == 0
        assert empty.get_size_bytes() == 20
        assert module.AggRecord().get_partition_key() is None
        assert module.AggRecord().get_explicit_hash_key() is None
        assert empty.max_size == empty.current_record.max_size == 1024 * 1024


def test_same_text_and_bytes_as_arguments() -> None:
    for module in (old_aggregator, new_aggregator):
        aggregator = module.RecordAggregator()
        aggregator.add_user_record("ü", "data", None)
        assert kpl.decode(aggregator.clear_and_get().get_contents()[2])[0] == kpl.UserRecord("ü", b"data")


def test_same_callbacks() -> None:
    for module in (old_aggregator, new_aggregator):
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


# -- aggregation: what differs ------------------------------------------------------------------------


def user_records_of(aggregated: list[Any]) -> Iterator[kpl.UserRecord]:
    for record in aggregated:
        if record.get_num_user_records():
            yield from kpl.decode(record.get_contents()[2])


@given(st.lists(st.integers(0, 260), min_size=1, max_size=12), st.integers(60, 300))
@pytest.mark.requirement("CMP-8", "CMP-9", "CMP-10")
def test_whatever_goes_in_comes_out_or_raises(sizes: list[int], max_size: int) -> None:
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
    out += [] if last is None else [last]
    assert list(user_records_of(out)) == taken
    for record in out:
        partition_key, _, data = record.get_contents()
        assert len(data) + len(partition_key) <= max_size


def test_what_the_original_does_instead() -> None:
    """It claims a wrong size, loses a user record near the largest size, and does not count the key."""
    (record,) = filled(old_aggregator, [kpl.UserRecord("key", b"x" * 10)] * 1000)
    assert record.get_size_bytes() > 1.25 * len(record.get_contents()[2])
    aggregator = old_aggregator.RecordAggregator()
    lost = aggregator.add_user_record("a", b"x" * (1024 * 1024 - 20))
    assert (lost.get_num_user_records(), aggregator.get_num_user_records()) == (0, 0)
    long_keys = [kpl.UserRecord(f"{number:0200}", b"x" * 100) for number in range(20)]
    contents = [record.get_contents() for record in filled(old_aggregator, long_keys, 1330)]
    assert max(len(data) + len(partition_key) for partition_key, _, data in contents) > 1330


@pytest.mark.requirement("CMP-11")
@pytest.mark.parametrize(
    ("partition_key", "explicit_hash_key"),
    [("", None), ("k" * 257, None), ("k", "xyz"), ("k", str(2**128)), ("k", "007"), ("k", "")],
)
def test_differs_what_kinesis_refuses_is_refused(partition_key: str, explicit_hash_key: str | None) -> None:
    assert old_aggregator.RecordAggregator().add_user_record(partition_key, b"x", explicit_hash_key) is None
    after = new_aggregator.RecordAggregator()
    with pytest.raises(ValueError, match="must"):
        after.add_user_record(partition_key, b"x", explicit_hash_key)


@pytest.mark.requirement("CMP-12")
def test_differs_every_kind_of_bytes_is_data() -> None:
    for data in (bytearray(b"x"), memoryview(b"x")):
        with pytest.raises(TypeError):
            old_aggregator.RecordAggregator().add_user_record("a", data)
        after = new_aggregator.RecordAggregator()
        after.add_user_record(b"a", data, b"5")
        assert after.clear_and_get().get_contents()[:2] == ("a", "5")  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="data must be bytes"):
        new_aggregator.RecordAggregator().add_user_record("a", 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="UTF-8"):
        new_aggregator.RecordAggregator().add_user_record(b"\xff", b"")


@pytest.mark.requirement("CMP-13")
def test_differs_clear_works_and_a_callback_registers_once() -> None:
    record = old_aggregator.AggRecord()
    with pytest.raises(AttributeError):
        record.clear()
    again = new_aggregator.AggRecord()
    again.add_user_record("a", b"x")
    again.clear()
    assert (again.get_num_user_records(), again.get_partition_key(), again.get_size_bytes()) == (0, None, 20)
    for module, count in ((old_aggregator, 2), (new_aggregator, 1)):
        aggregator = module.RecordAggregator()
        for _ in range(2):
            aggregator.on_record_complete(print)
        assert len(aggregator.callbacks) == count


@pytest.mark.requirement("CMP-13")
def test_differs_what_one_callback_raises_costs_no_other_a_record() -> None:
    for module, expected in ((old_aggregator, (17, 0)), (new_aggregator, (6, 6))):
        full: list[Any] = []
        aggregator = module.RecordAggregator(200)
        aggregator.on_record_complete(lambda _: {}[0], execute_on_new_thread=False)
        aggregator.on_record_complete(full.append, execute_on_new_thread=False)
        raised = 0
        for _ in range(20):
            try:
                aggregator.add_user_record("k", b"x" * 50)
            except KeyError:
                raised += 1
        assert (raised, len(full)) == expected


@pytest.mark.requirement("CMP-14")
def test_differs_an_aggregate_of_nothing_is_not_given_out() -> None:
    assert len(old_aggregator.AggRecord().get_contents()[2]) == 20  # decoders make zero user records of it
    with pytest.raises(kpl.EncodeError):
        new_aggregator.AggRecord().get_contents()


@pytest.mark.requirement("CMP-16")
def test_differs_large_records() -> None:
    """Streams can be set to 10 MiB a record since 2025."""
    with pytest.raises(ValueError, match="max_size"):
        old_aggregator.RecordAggregator(10 * 1024 * 1024)
    assert new_aggregator.RecordAggregator(10 * 1024 * 1024).max_size == 10 * 1024 * 1024
    with pytest.raises(ValueError, match="max_size"):
        new_aggregator.RecordAggregator(10 * 1024 * 1024 + 1)


def loaded_by(statement: str) -> tuple[set[str], int]:
    """Modules that ``statement`` loads in a new interpreter, and by how much it makes sys.path longer."""
    code = f"import sys; before, path = set(sys.modules), len(sys.path)\n{statement}\n"
    code += "print(*(set(sys.modules) - before)); print(len(sys.path) - path)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    names, longer = run.stdout.splitlines()
    return set(names.split()), int(longer)


@pytest.mark.requirement("CMP-15")
def test_differs_what_the_import_does() -> None:
    names, longer = loaded_by("from aws_kinesis_agg import deaggregator, aggregator")
    assert {"six", "aws_kinesis_agg.messages_pb2", "google.protobuf"} <= names
    assert longer > 0
    names, longer = loaded_by("from kpl_codec.compat.aws_kinesis_agg import deaggregator, aggregator")
    assert not {"six", "messages_pb2", "config_pb2"} & names
    assert longer == 0
    # An application that has a config.proto of its own:
    own = (
        "from google.protobuf import descriptor_pb2, descriptor_pool\n"
        "file = descriptor_pb2.FileDescriptorProto(name='config.proto', package='own')\n"
        "file.message_type.add(name='Own')\n"
        "descriptor_pool.Default().Add(file)\n"
    )
    with pytest.raises(subprocess.CalledProcessError) as failed:
        loaded_by(own + "from aws_kinesis_agg import deaggregator")
    assert "duplicate file name" in failed.value.stderr
    loaded_by(own + "from kpl_codec.compat.aws_kinesis_agg import deaggregator")


#: What a FIPS build of OpenSSL does, and then the same program with either package.
FIPS = """
import hashlib
def md5(*arguments, usedforsecurity=True, real=hashlib.md5):
    if usedforsecurity:
        raise ValueError("[digital envelope routines] unsupported")
    return real(*arguments, usedforsecurity=False)
hashlib.md5 = md5
from {package} import aggregator, deaggregator
packed = aggregator.RecordAggregator()
packed.add_user_record("a", b"x")
data = packed.clear_and_get().get_contents()[2]
record = {{"SequenceNumber": "1", "PartitionKey": "a", "Data": data}}
assert len(list(deaggregator.iter_deaggregate_records([record], "Boto3"))) == 1
"""


@pytest.mark.requirement("CMP-15")
def test_differs_md5_under_fips() -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        loaded_by(FIPS.format(package="aws_kinesis_agg"))
    assert "unsupported" in failed.value.stderr
    loaded_by(FIPS.format(package="kpl_codec.compat.aws_kinesis_agg"))


# -- the public names -----------------------------------------------------------------------------


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
