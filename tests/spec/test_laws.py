"""Laws that tie the library to the executable spec: for any bytes, all decoders agree."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from fuzz.invariants import check_frame, check_kcl, check_listing, check_user_records, frame, naive_shards
from kpl_codec import verify_placement
from kpl_codec.format import wire
from kpl_codec.format.wire import LENGTH_DELIMITED, VARINT
from kpl_codec.testing import strategies as kst
from spec.reference import model, shards

from ..every import every
from ..examples import examples
from .vectors import REPOSITORY, Vector, of_kind

#: Fields of a tag, sound and broken ones.
TAG_FIELDS = [
    *((1, LENGTH_DELIMITED, text) for text in (b"a", b"\xff")),
    *((2, LENGTH_DELIMITED, text) for text in (b"b", b"\xff")),
    *((3, LENGTH_DELIMITED, b"\xff"), (2, VARINT, 1)),
]
#: With an explicit hash key that is none, and that no user record uses.
UNUSED_HASH_KEY = kst.non_canonical_records().map(lambda example: frame(example.data[4:-16] + b"\x12\x01 "))
ANY_FRAME = (
    kst.defective_frames().map(lambda example: example.data)
    | kst.non_canonical_records().map(lambda example: example.data)
    | kst.aggregated_records().map(lambda example: example.data)
    | UNUSED_HASH_KEY
)


DAMAGE = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3)


def damaged(data: bytes, damage: list[tuple[int, int]]) -> bytes:
    """A frame whose digest is right around the message of ``data``, in which some bytes are others."""
    message = bytearray(data[4:-16])
    for place, value in damage if message else ():
        message[place % len(message)] = value
    return frame(bytes(message)) if damage else data


@pytest.mark.requirement("MSG-1", "MSG-2", "MSG-3", "MSG-5", "MSG-6", "MSG-7", "MSG-8", "MSG-9", "MSG-10")
@pytest.mark.requirement("MSG-11", "MSG-12")
@settings(max_examples=examples(200))
@given(ANY_FRAME, DAMAGE)
def test_all_decoders_agree_on_sound_and_damaged_messages(data: bytes, damage: list[tuple[int, int]]) -> None:
    check_frame(damaged(data, damage))


@pytest.mark.requirement("MSG-5", "MSG-6", "MSG-8", "MSG-12")
@given(st.lists(st.sampled_from(TAG_FIELDS), max_size=5))
def test_all_decoders_agree_on_tags_with_fields_several_times(fields: list[Any]) -> None:
    build = model.build_fields
    record = build((1, VARINT, 0), (3, LENGTH_DELIMITED, b"data"), (4, LENGTH_DELIMITED, build(*fields)))
    check_frame(model.build_frame(build((1, LENGTH_DELIMITED, b"key"), (3, LENGTH_DELIMITED, record))))


@pytest.mark.requirement("FRM-1", "FRM-2", "FRM-3")
@given(st.binary(max_size=60), st.booleans())
def test_all_decoders_agree_on_any_bytes(data: bytes, framed: bool) -> None:
    check_frame(frame(data) if framed else data)


@pytest.mark.requirement("DAG-4", "DAG-6", "DAG-10", "DAG-11")
@given(ANY_FRAME, DAMAGE, kst.hash_keys(), kst.hash_keys())
def test_report_says_of_the_kcl_what_the_kcl_policy_does(
    data: bytes, damage: list[tuple[int, int]], one: int, other: int
) -> None:
    record = kpl.KinesisRecord("outer", damaged(data, damage), "1")
    check_kcl(record, kpl.HashKeyRange(min(one, other), max(one, other)))


@pytest.mark.requirement("KEY-8")
@given(kst.non_canonical_records())
def test_an_unused_entry_that_is_no_hash_key_changes_nothing(aggregate: kst.Aggregate) -> None:
    data = frame(aggregate.data[4:-16] + b"\x12\x01 ")
    assert tuple(kpl.decode(data)) == aggregate.user_records
    rows = list(kpl.deaggregate([kpl.KinesisRecord("outer", data)], "report"))
    given = [(row.partition_key, row.data, row.explicit_hash_key, row.tags) for row in rows]
    assert [kpl.UserRecord(*fields) for fields in given] == [*aggregate.user_records]
    assert {(row.defects, row.kcl) for row in rows} == {((), "delivered")}
    assert not kpl.explain(data).defects


@pytest.mark.requirement("ENC-1", "ENC-3", "ENC-4", "ENC-6")
@given(st.lists(kst.user_records(), max_size=20))
def test_encoders_agree(records: list[kpl.UserRecord]) -> None:
    check_user_records(records)


@pytest.mark.requirement("SHD-2", "SHD-6", "SHD-8")
@given(kst.shard_maps(), kst.hash_keys())
def test_fast_lookup_is_linear_search(shard_map: kpl.ShardMap, hash_key: int) -> None:
    check_listing([{"Shards": [shard.to_aws() for shard in shard_map.values()]}], [hash_key])


@st.composite
def listings(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Listings with one field of one shard changed, or a shard too few or too many."""
    page = [shard.to_aws() for shard in draw(kst.shard_maps(max_shards=4)).values()]
    shard = draw(st.sampled_from(page))
    change = draw(st.sampled_from(["remove", "repeat", "open", "close", "start", "end", "parent"]))
    if change == "remove":
        page.remove(shard)
    elif change == "repeat":
        page.append(shard)
    elif change == "open":
        shard["SequenceNumberRange"].pop("EndingSequenceNumber", None)
    elif change == "close":
        shard["SequenceNumberRange"]["EndingSequenceNumber"] = "1"
    elif change == "parent":
        shard["ParentShardId"] = draw(st.sampled_from(page))["ShardId"]
    else:
        field = {"start": "StartingHashKey", "end": "EndingHashKey"}[change]
        near = int(shard["HashKeyRange"][field]) + draw(st.sampled_from([-1, 1]))
        shard["HashKeyRange"][field] = str(near)
    return [{"Shards": page}]


@pytest.mark.requirement("SHD-1", "SHD-2", "SHD-3", "SHD-6", "KEY-5", "KEY-7")
@given(listings())
def test_broken_listings_are_refused_for_their_reason(pages: list[dict[str, Any]]) -> None:
    check_listing(pages, [])


@pytest.mark.requirement("PLC-1", "PLC-2", "PLC-3", "PLC-4", "SHD-4")
@given(
    kst.reshard_histories(),
    st.data(),
    kst.partition_keys(),
    st.none() | kst.explicit_hash_keys(),
    st.booleans(),
    st.booleans(),
)
def test_verdicts_are_those_of_the_table(
    history: kst.ReshardHistory, data: st.DataObject, pk: str, ehk: str | None, aggregated: bool, auto: bool
) -> None:
    ids = list(history.now)
    shard_id = data.draw(st.sampled_from([*ids, "shardId-unknown", None]))
    shard_map = kpl.ShardMap(history.now.values(), distribution="AUTO" if auto else "USER_PARTITION_KEY")
    naive = naive_shards(history.now.values())
    hash_key = model.effective_hash_key(pk, ehk)
    record = kpl.DeaggregatedRecord(pk, b"", ehk, (), "1", 0, aggregated, shard_id, None)
    found = verify_placement(record, shard_map)
    known = aggregated or ehk is not None
    assert found.verdict == shards.verdict(naive, shard_id, hash_key, aggregated=known, auto=auto)
    assert found.hash_key == hash_key
    if not auto:
        assert found.expected_shard_id == shards.shard_for(naive, hash_key).shard_id
    for one in ids:
        for other in ids:
            assert history.now.is_descendant(one, other) == shards.descends(naive, one, other)


@pytest.mark.requirement("KEY-2", "KEY-3", "KEY-4")
@given(kst.partition_keys(), st.none() | st.text("0123456789+-٣१ x_.", max_size=6) | kst.explicit_hash_keys())
def test_effective_hash_keys_agree(pk: str, ehk: str | None) -> None:
    if ehk is not None and not model.is_hash_key(ehk):
        with pytest.raises(kpl.HashKeyError):
            kpl.effective_hash_key(pk, ehk)
    else:
        assert kpl.effective_hash_key(pk, ehk) == model.effective_hash_key(pk, ehk)


@every("vector", of_kind("decode"))
def test_the_executable_spec_reads_what_the_vectors_say(vector: Vector) -> None:
    """`check_frame` compares it with the library, `test_vectors` the library with the vectors."""
    check_frame(bytes.fromhex(vector["input"]["data"]))
    if "error" in vector:
        with pytest.raises(model.Refused) as caught:
            model.parse(bytes.fromhex(vector["input"]["data"]))
        assert vector["error"]["requirement"] in caught.value.requirements


@pytest.mark.requirement("MSG-5")
def test_the_schema_is_that_of_kpl_proto() -> None:
    text = (REPOSITORY / "spec" / "kpl.proto").read_text()
    declared: dict[str, dict[int, tuple[str, int]]] = {}
    for message, body in re.findall(r"^message (\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields = declared.setdefault(message, {})
        for kind, name, number in re.findall(r"(?:required|optional|repeated) (\w+) (\w+) = (\d+);", body):
            fields[int(number)] = (name, VARINT if kind == "uint64" else LENGTH_DELIMITED)
    assert declared == {"Tag": wire.TAG, "Record": wire.RECORD, "AggregatedRecord": wire.AGGREGATED_RECORD}
