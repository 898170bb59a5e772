"""The frame of AWS Glue Schema Registry: on, off, broken; the same in every way of reading."""

from __future__ import annotations

import base64
import json
import random
import tracemalloc
import uuid
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec import KinesisRecord, UserRecord, adapters, deaggregate
from kpl_codec.deaggregation.policy_rules import POLICIES
from kpl_codec.schema_registry import (
    GlueSchema,
    PayloadError,
    SchemaFrameError,
    SchemaRefused,
    decode_payload,
    frame,
    is_framed,
    unframe,
)
from kpl_codec.testing import strategies as kst

from .deaggregation.every_policy import NOT_RAISING, check_payloads, rules

VERSION = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"
BOMB = frame(bytes(80 * 1024 * 1024), VERSION, compress=True)
#: What user records hold: frames, and data without one.
DATA = kst.schema_frames() | kst.unframed_data().map(lambda data: kst.SchemaFrame("", data, data))


#: Data in which no version of `schema_frames` stands.
OTHER = st.binary(max_size=17).map(lambda data: kst.SchemaFrame("", data, data))


@given(kst.schema_frames())
@pytest.mark.requirement("GSR-1", "GSR-2", "GSR-3")
def test_a_sound_frame_comes_off(example: kst.SchemaFrame) -> None:
    assert is_framed(example.data)
    assert unframe(example.data) == (example.schema_version_id, example.payload)


@given(st.binary(max_size=300), st.uuids(version=4), st.booleans())
@pytest.mark.requirement("GSR-2", "GSR-6")
def test_a_frame_is_as_documented(data: bytes, version: uuid.UUID, compress: bool) -> None:
    made = frame(data, version, compress=compress)
    assert made == frame(data, str(version), compress=compress)
    assert made[:18] == bytes((3, 5 if compress else 0)) + version.bytes
    assert unframe(made) == (str(version), data)
    assert (zlib.decompress(made[18:]) if compress else made[18:]) == data
    with pytest.raises(ValueError, match="UUID"):
        frame(data, "orders")


@given(kst.unframed_data())
@pytest.mark.requirement("GSR-1")
def test_other_data_is_left_as_it_is(data: bytes) -> None:
    assert not is_framed(data)
    assert unframe(data) == (None, data)


@pytest.mark.requirement("GSR-1")
def test_random_data_is_rarely_taken_for_framed() -> None:
    chance = random.Random(3)
    plain = [b"\x03\x00" + chance.randbytes(98) for _ in range(20_000)]
    packed = [b"\x03\x05" + chance.randbytes(98) for _ in range(20_000)]
    assert 200 < sum(map(is_framed, plain)) < 430  # one in 64
    assert sum(map(is_framed, packed)) <= 3
    records = [KinesisRecord("k", data, str(n)) for n, data in enumerate(packed)]
    assert sum(bool(record.defects) for record in deaggregate(records, "report", unframe=True)) <= 3
    # Who knows the versions has none of it.
    for policy in POLICIES:
        known = deaggregate([*records, *stream_of(plain[:50])], policy, unframe={VERSION})
        assert [record.data for record in known] == [*packed, *plain[:50]]


@given(st.lists(kst.schema_frames() | OTHER, max_size=6), st.sampled_from(POLICIES), st.booleans())
@pytest.mark.requirement("GSR-1")
def test_only_known_versions_come_off(items: list[kst.SchemaFrame], policy: Any, as_uuid: bool) -> None:
    ids = sorted({item.schema_version_id for item in items} - {""})[::2]
    known = {uuid.UUID(one) if as_uuid else one for one in ids}
    stream = stream_of([item.data for item in items], [item.data for item in items])
    expected = [
        (item.schema_version_id, item.payload) if item.schema_version_id in ids else (None, item.data)
        for item in items
    ]
    assert told(deaggregate(stream, policy, unframe=known)) == expected * 2


@given(st.uuids(), st.binary(max_size=50), st.booleans())
@pytest.mark.requirement("GSR-1", "GSR-6")
def test_any_version_that_is_known_comes_off(version: uuid.UUID, data: bytes, compress: bool) -> None:
    made = frame(data, version, compress=compress)
    assert told(deaggregate(stream_of([made]), unframe=[version])) == [(str(version), data)]
    assert told(deaggregate(stream_of([made]), unframe=frozenset())) == [(None, made)]
    cut = frame(b"x", version)[:1] + b"\x05" + version.bytes + b"no zlib"
    with pytest.raises(SchemaFrameError):
        list(deaggregate(stream_of([cut]), unframe=[version]))


def test_what_is_no_version_is_refused_at_once() -> None:
    for wrong in ("true", VERSION, {"orders"}):
        with pytest.raises(ValueError, match=r"^unframe .*schema version ids"):
            deaggregate([], unframe=wrong)
        with pytest.raises(ValueError, match=r"^versions .*schema version ids"):
            is_framed(b"", wrong)


def test_versions_are_named_as_for_unframe() -> None:
    """As text, UUID or the bytes of a frame; of another version than the frame's, nothing is taken off."""
    framed, other = frame(b"data", VERSION), "00000000-0000-4000-8000-000000000000"
    for known in ({VERSION}, [uuid.UUID(VERSION)], frozenset({uuid.UUID(VERSION).bytes}), (other, VERSION)):
        assert is_framed(framed, known)
        assert unframe(framed, versions=known) == (VERSION, b"data")
        record = KinesisRecord("a", framed, "1")
        assert [one.data for one in deaggregate([record], unframe=known)] == [b"data"]
    assert unframe(framed, versions={other}) == (None, framed)


@given(kst.broken_schema_frames())
@pytest.mark.requirement("GSR-3")
def test_a_broken_frame_is_an_error(example: kst.SchemaFrame) -> None:
    with pytest.raises(SchemaFrameError) as caught:
        unframe(example.data)
    assert (caught.value.code, caught.value.schema_version_id) == (example.code, example.schema_version_id)
    assert example.schema_version_id in str(caught.value)


@pytest.mark.requirement("GSR-3")
def test_a_bomb_takes_no_more_memory_than_the_limit() -> None:
    tracemalloc.start()
    with pytest.raises(SchemaFrameError, match="more than 1000000 bytes") as caught:
        unframe(BOMB, 1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000
    assert (caught.value.code, caught.value.max_size) == ("schema-frame-too-large", 1_000_000)
    assert unframe(frame(b"ab", VERSION, compress=True), 2).data == b"ab"
    with pytest.raises(SchemaFrameError):
        unframe(frame(b"abc", VERSION, compress=True), 2)
    assert unframe(frame(b"abc", VERSION), 2).data == b"abc"  # nothing is made of it
    with pytest.raises(ValueError, match="at least 1 byte"):
        unframe(b"", 0)


# -- objects --------------------------------------------------------------------------------------


def stream_of(inside: list[bytes], plain: list[bytes] = []) -> list[KinesisRecord]:  # noqa: B006 - not changed
    users = [UserRecord(f"k{n}", data) for n, data in enumerate(inside)]
    found = [KinesisRecord("a", kpl.encode(users), "7", "shardId-000000000000")] if users else []
    return found + [
        KinesisRecord("p", data, str(8 + n), "shardId-000000000001") for n, data in enumerate(plain)
    ]


def told(records: Any) -> list[tuple[str | None, bytes]]:
    return [(record.schema_version_id, record.data) for record in records]


@given(st.lists(DATA, max_size=5), st.lists(DATA, max_size=3), st.sampled_from(POLICIES))
@pytest.mark.requirement("GSR-5", "GSR-7")
def test_frames_come_off_after_deaggregation_if_asked(
    inside: list[kst.SchemaFrame], plain: list[kst.SchemaFrame], policy: Any
) -> None:
    stream = stream_of([item.data for item in inside], [item.data for item in plain])
    every = [*inside, *plain]
    found = list(deaggregate(stream, policy, unframe=True))
    assert told(found) == [(item.schema_version_id or None, item.payload) for item in every]
    assert told(deaggregate(stream, policy)) == [(None, item.data) for item in every]
    # Beside the frame nothing changes.
    same = [record.replace(data=b"", schema_version_id=None) for record in found]
    assert same == [record.replace(data=b"") for record in deaggregate(stream, policy)]


@given(kst.schema_frames(payloads=kst.schema_frames().map(lambda inner: inner.data)))
@pytest.mark.requirement("GSR-7")
def test_one_frame_comes_off_not_two(example: kst.SchemaFrame) -> None:
    assert told(deaggregate(stream_of([example.data]), unframe=True)) == [
        (example.schema_version_id, example.payload)
    ]


@pytest.mark.requirement("GSR-4")
@pytest.mark.usefixtures("drop_policy")
def test_a_broken_frame_under_each_policy() -> None:
    good, cut = frame(b"good" * 50, VERSION, compress=True), frame(b"bad" * 50, VERSION, compress=True)[:-1]
    stream = stream_of([good, cut, BOMB], [cut, b"x"])
    damaged = cut, "schema-frame-damaged"
    defective = [damaged, (BOMB, "schema-frame-too-large"), damaged]
    options: dict[str, Any] = {"unframe": True, "max_decompressed_size": 10_000}
    check_payloads(stream, b"good" * 50, defective, "on_schema_frame", SchemaFrameError, **options)
    for policy in NOT_RAISING:  # the KCL ignores what is behind the zlib stream
        rows: Any = deaggregate(stream_of([good + b"more"]), policy, unframe=True, on_drop=lambda _: None)
        unopened = [] if rules(policy).on_schema_frame == "drop" else [good + b"more"]
        assert [row.data for row in rows] == ([b"good" * 50] if rules(policy).as_kcl else unopened)
    for size in (0, -1):
        with pytest.raises(ValueError, match="at least 1 byte"):
            deaggregate(stream, unframe=True, max_decompressed_size=size)  # type: ignore[arg-type]
    for size in (2**63 - 2, 2**63 - 1, 2**128):  # no limit, for what zlib takes
        (row,) = deaggregate(stream_of([good]), unframe=True, max_decompressed_size=size)
        assert row.data == b"good" * 50


@pytest.mark.requirement("GSR-7")
def test_compression_outside_the_frame_is_undone_first() -> None:
    outside = zlib.compress(frame(b"data" * 9, VERSION))
    assert told(deaggregate(stream_of([outside]), unframe=True, max_decompressed_size=999)) == [
        (VERSION, b"data" * 9)
    ]


# -- the producer ---------------------------------------------------------------------------------


@pytest.mark.requirement("GSR-6", "GSR-8")
@pytest.mark.parametrize("aggregation", [True, False])
@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_a_producer_frames_what_is_put_with_a_schema(aggregation: bool, compression: Any) -> None:
    from .producer.bench import LOW, Bench

    bench = Bench(compression=compression, aggregation_enabled=aggregation)
    other = uuid.UUID("80000000-0000-4000-bfff-000000000003")
    put = {b"one": VERSION, b"two" * 90: other, b"bare": None, b"": VERSION}
    for data, version in put.items():
        bench.put(data, LOW, schema=version)
    bench.core.flush()
    for call in bench.puts():
        bench.serve(call)
    found = list(deaggregate(bench.stream.stored, max_decompressed_size=999))
    assert [record.data[1:2] for record in found if is_framed(record.data)] == [
        b"\x00" if compression == "none" else b"\x05"
    ] * 3
    opened = deaggregate(bench.stream.stored, unframe=True, max_decompressed_size=999)
    assert sorted(told(opened), key=str) == sorted(
        ((version and str(version), data) for data, version in put.items()), key=str
    )


@pytest.mark.requirement("GSR-8", "PRD-5")
def test_a_producer_refuses_what_it_cannot_frame() -> None:
    from .producer.bench import Bench

    with pytest.raises(SchemaRefused, match="no UUID"):
        Bench().put(b"x", schema="orders")
    with pytest.raises(SchemaRefused, match="zlib, not gzip"):
        Bench(compression="gzip").put(b"x", schema=VERSION)
    with pytest.raises(kpl.EncodeError, match="data must be bytes, got str"):
        Bench().put("text", schema=VERSION)  # type: ignore[arg-type]
    Bench(aggregation_enabled=False).put(bytes(2**20 - 1), schema=None)
    with pytest.raises(kpl.EncodeError, match="takes"):
        Bench(aggregation_enabled=False).put(bytes(2**20 - 1), schema=VERSION)


# -- payloads -------------------------------------------------------------------------------------

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order", "type": "int"},
        {"name": "items", "type": {"type": "array", "items": "string"}},
    ],
}
AVRO = GlueSchema(VERSION, "AVRO", json.dumps(ORDER))


@pytest.mark.requirement("GSR-9")
def test_a_payload_is_decoded_by_its_schema() -> None:
    assert decode_payload(AVRO, b"\x22\x04\x02a\x02b\x00") == {"order": 17, "items": ["a", "b"]}
    assert decode_payload(GlueSchema(VERSION, "JSON", "{}"), b'{"order": 17}') == {"order": 17}
    assert decode_payload(GlueSchema(VERSION, "PROTOBUF", ""), b"\x00\x08\x11") == b"\x00\x08\x11"


@pytest.mark.requirement("GSR-9")
@pytest.mark.parametrize(
    ("data_format", "definition", "payload"),
    [
        ("AVRO", json.dumps(ORDER), b"\x22\x04\x02a"),
        ("AVRO", json.dumps(ORDER), b"\x22\x00more"),
        ("AVRO", json.dumps(ORDER), b""),
        ("AVRO", "no schema", b"\x22\x00"),
        ("JSON", "{}", b"\xff secret"),
        ("JSON", "{}", b""),
    ],
)
def test_a_payload_that_its_schema_does_not_describe_is_an_error(
    data_format: str, definition: str, payload: bytes
) -> None:
    with pytest.raises(PayloadError) as caught:
        decode_payload(GlueSchema(VERSION, data_format, definition), payload)
    assert (caught.value.schema_version_id, caught.value.data_format) == (VERSION, data_format)
    assert "secret" not in repr(caught.value) + repr(caught.value.__cause__)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


# -- Lambda ---------------------------------------------------------------------------------------


@pytest.mark.requirement("GSR-4", "GSR-7")
def test_a_broken_frame_is_poison_in_a_lambda_function() -> None:
    from kpl_codec.aws_lambda import process_user_records
    from kpl_codec.aws_lambda.firehose import transform_user_records

    first, second = frame(b"one", VERSION), frame(b"two" * 9, VERSION, compress=True)
    good, bad = stream_of([first, second], [b"bare"]), stream_of([], [second[:-1]])
    seen: list[Any] = []
    broken = adapters.to_lambda(bad, stream_arn="arn:aws:kinesis:us-east-1:123456789012:stream/orders")
    taken: list[Any] = []
    answer = process_user_records(broken, seen.append, unframe=True, on_poison=taken.append)
    assert answer == {"batchItemFailures": []}
    assert [poison.error.code for poison in taken] == ["schema-frame-damaged"]
    assert process_user_records(broken, lambda record: None)["batchItemFailures"] == []
    firehose = {
        "deliveryStreamArn": "arn",
        "records": [
            {"recordId": str(n), "data": base64.b64encode(record.data).decode()}
            for n, record in enumerate([*good, *bad])
        ],
    }
    results = transform_user_records(firehose, lambda record: record.data, delimiter=b";", unframe=True)
    assert [(r["result"], base64.b64decode(r.get("data", ""))) for r in results["records"]] == [
        ("Ok", b"one;" + b"two" * 9 + b";"),
        ("Ok", b"bare;"),
        ("ProcessingFailed", b""),
    ]
