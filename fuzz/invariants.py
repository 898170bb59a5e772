"""What must hold for every input, whoever made it: used by the harnesses, the property suite and tests.

Each function raises AssertionError, or lets through an exception that no function may raise, when
something does not hold. Invariant: user records, or exactly one typed error.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

import kpl_codec as kpl
from kpl_codec.base.compiled import speedups
from kpl_codec.deaggregation import kcl
from kpl_codec.deaggregation.explanation import ExplanationNode
from kpl_codec.format import codec, wire
from kpl_codec.format.codec import is_canonical
from kpl_codec.format.message import AggregatedRecord, quick_parse, serialize
from kpl_codec.format.records import check
from spec.reference import kcl as reference_kcl
from spec.reference import model, shards

Rows = list[tuple[Any, ...]]
MAGIC = bytes.fromhex("f3899ac2")


def frame(message: bytes) -> bytes:
    """A frame whose digest is right, around any message."""
    return MAGIC + message + hashlib.md5(message, usedforsecurity=False).digest()


def varint(value: int, length: int = 1) -> bytes:
    """``value`` in seven bits a byte, padded to ``length`` bytes at least."""
    out = bytearray()
    while value >= 0x80 or len(out) + 1 < length:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(tag: int, value: bytes | int, length: int = 1) -> bytes:
    """A field; its numbers have at least so many bytes."""
    if isinstance(value, int):
        return varint(tag, length) + varint(value, length)
    return varint(tag, length) + varint(len(value), length) + value


def rows(records: Iterable[Any]) -> Rows:
    """User records of any decoder as plain tuples."""
    return [(r.partition_key, r.data, r.explicit_hash_key, tags_of(r)) for r in records]


def tags_of(record: Any) -> tuple[tuple[str, str | None], ...]:
    return tuple((tag.key, tag.value) for tag in record.tags)


def decode(data: bytes) -> Rows | kpl.DecodeError:
    """What the library says: at least one user record, or one typed error that says where."""
    try:
        found = rows(kpl.decode(data))
    except kpl.DecodeError as error:
        assert error.requirement is not None, error
        assert error.offset is not None, error
        assert 0 <= error.offset <= len(data), error
        str(error)
        return error
    assert found
    assert kpl.is_aggregated(data)
    return found


def check_frame(data: bytes, *, reference: bool = True) -> Rows | kpl.DecodeError:
    """Every decoder, the explanation, the policies and the executable spec agree on ``data``."""
    found = decode(data)
    check_quick_decoders(data, found)
    check_explanation(data, found)
    check_policies(data, found)
    if isinstance(found, list):
        check_again(data, found)
    if reference:
        check_reference(data, found)
    return found


def check_quick_decoders(data: bytes, found: Rows | kpl.DecodeError) -> None:
    """A quick decoder reads what is sound, and nothing else; the byte walker is always right."""
    if not kpl.is_aggregated(data):
        assert isinstance(found, kpl.NotAggregated | kpl.ChecksumMismatch)
        return
    try:
        walked = wire.Message(data)
        defect = walked.first_defect()
    except kpl.MalformedMessage as error:
        defect = error
    whole = None
    if isinstance(found, list):
        assert defect is None, defect
        whole = codec.aggregated_record(walked)
        assert rows(whole) == found
    else:
        assert defect == found
    expected = None if whole is None else whole.columns()
    for parse in (quick_parse, *([] if speedups is None else [speedups.parse])):
        parts = parse(data[4:-16])
        assert (None if parts is None else AggregatedRecord(*parts).columns()) == expected, parse


def check_explanation(data: bytes, found: Rows | kpl.DecodeError) -> None:
    """An explanation never fails, leads with the error, and accounts for every byte once."""
    explanation = kpl.explain(data)
    str(explanation)
    if isinstance(found, list):
        assert explanation.sound
        assert explanation.user_records == len(found)
        assert explanation.canonical == is_canonical(data)
    else:
        assert explanation.defects[0] == found
        assert not explanation.canonical
    if not explanation.omitted:
        leaves = list(_leaves(explanation.root))
        for before, after in itertools.pairwise(leaves):
            assert before.end == after.start, (before, after)
        if data:
            assert (leaves[0].start, leaves[-1].end) == (0, len(data))


def _leaves(node: ExplanationNode) -> Iterator[ExplanationNode]:
    if not node.children and node.end > node.start:
        yield node
    for child in node.children:
        yield from _leaves(child)


def check_policies(data: bytes, found: Rows | kpl.DecodeError) -> None:
    """strict is decode, report delivers at least what is sound, kcl drops nothing uncounted."""
    record = kpl.KinesisRecord("outer", data, "1", "shardId-000000000000")
    report = kpl.deaggregate([record], "report")
    reported = list(report)
    assert report.counts.user_records == sum(row.is_user_record for row in reported)
    assert reported
    assert [row.sub_sequence_number for row in reported if row.sub_sequence_number >= 0] == list(
        range(sum(row.sub_sequence_number >= 0 for row in reported))
    )
    if isinstance(found, list):
        assert rows(reported) == found == rows(kpl.deaggregate([record]))
        assert not any(row.defects for row in reported)
    elif isinstance(found, kpl.NotAggregated):
        assert [row.data for row in reported] == [data] == [row.data for row in kpl.deaggregate([record])]
    else:
        assert any(row.defects for row in reported)
        try:
            list(kpl.deaggregate([record]))
        except kpl.DecodeError as error:
            assert error.code == found.code
            assert error.sequence_number == "1"
        else:
            raise AssertionError("strict delivered what decode refuses")
    for hash_key_range in (None, kpl.HashKeyRange(0, 2**127), kpl.HashKeyRange(2**127, 2**128 - 1)):
        check_kcl(record, hash_key_range)


def check_kcl(record: kpl.KinesisRecord, hash_key_range: kpl.HashKeyRange | None) -> None:
    """report says of the KCL what the kcl policy does, and that counts what it drops."""
    drops: list[kpl.Drop] = []
    lenient = kpl.deaggregate([record], "kcl", hash_key_range=hash_key_range, on_drop=drops.append)
    delivered = list(lenient)
    dropped = dict(lenient.counts.dropped)
    outcome = kcl.outcome(record.data, hash_key_range)
    assert outcome.delivered == len(delivered)
    assert sum(dropped.values()) == (0 if outcome.raw else outcome.total - len(delivered))
    assert {drop.reason: drop.user_records for drop in drops} == dropped
    assert {drop.record_index for drop in drops} <= {outcome.record_index}
    assert all(dropped.values())
    reported = [
        row
        for row in kpl.deaggregate([record], "report", hash_key_range=hash_key_range)
        if row.sub_sequence_number >= 0
    ]
    fates = [row.kcl for row in reported]
    if "raw" in fates:
        assert set(fates) == {"raw"}
        assert [row.data for row in delivered] == [record.data]
        return
    given = [row for row in reported if row.kcl in ("delivered", "altered")]
    assert [row.data for row in given] == [row.data for row in delivered]
    pairs = zip(given, delivered, strict=True)
    read = attrgetter("partition_key", "data", "explicit_hash_key")
    assert all(read(row) == read(other) for row, other in pairs if row.kcl == "delivered")
    lost = [row for row in reported if row.kcl == "dropped" and row.aggregated]
    assert len(lost) == sum(dropped.values())
    # A frame in which the KCL finds nothing has no user records under the report policy either.
    assert lenient.counts.empty_records == (not given and not lost)
    raw = [row for row in reported if not row.aggregated and row.kcl == "dropped"]
    assert [row.data for row in raw] in ([], [record.data])


def check_again(data: bytes, found: Rows) -> None:
    """What was decoded, encoded again, decodes to the same; or is refused for a reason."""
    records = [kpl.UserRecord(pk, d, ehk, tuple(kpl.Tag(*tag) for tag in tags)) for pk, d, ehk, tags in found]
    try:
        again = kpl.encode(records)
    except kpl.EncodeError as error:
        assert error.code in ("partition-key-empty", "explicit-hash-key"), error
        return
    assert rows(kpl.decode(again)) == found
    assert len(again) <= len(data) or not is_canonical(data)
    assert (again == data) == is_canonical(data)


def check_reference(data: bytes, found: Rows | kpl.DecodeError) -> None:
    """The executable spec says the same, and so does protobuf's own runtime read as the KCL reads it."""
    try:
        expected: Rows | model.Refused = rows(model.parse(data))
    except model.Refused as refused:
        expected = refused
    if isinstance(expected, list):
        assert found == expected, f"spec/reference/model.py takes it; decode: {found}"
    else:
        assert isinstance(found, kpl.DecodeError), (
            f"decode takes what spec/reference/model.py does not: {expected}"
        )
        plain = isinstance(found, kpl.NotAggregated)
        assert expected.plain == plain
        wire_format = {"MSG-1", "MSG-2", "MSG-3", "MSG-4"}
        if wire_format & expected.requirements:  # the model stops at the first it meets, outermost first
            assert found.requirement in wire_format, (found, expected)
        else:
            assert plain or found.requirement in expected.requirements, (found, expected)
    theirs = reference_kcl.deliver(data)
    outcome = kcl.outcome(data)
    assert theirs.raw == outcome.raw
    if not theirs.raw:
        assert list(kcl.user_records(data, outcome.delivered)) == theirs.user_records
        assert (outcome.total - outcome.delivered, outcome.reason) == (theirs.dropped, theirs.reason)


def check_user_records(records: list[kpl.UserRecord], *, reference: bool = True) -> None:
    """All encoders write the same bytes, of the size that was claimed; all decoders read them back."""
    if not records:
        try:
            kpl.encode(records)
        except kpl.EncodeError as error:
            assert error.code == "no-user-records"
            return
        raise AssertionError("an aggregate of nothing was written")
    data = kpl.encode(records)
    for index, record in enumerate(records):
        check(record, index)
    assert frame(serialize(records)) == data
    builder = kpl.AggregatedRecordBuilder()
    plain = codec.PythonBuilder()
    for record in records:
        claimed = builder.size_with(record)
        assert plain.size_with(record) == claimed
        builder.add(record)
        plain.add(record)
        assert builder.size == plain.size == claimed
    assert builder.build() == plain.build() == data
    assert codec.build_many([builder] * 20) == [data] * 20  # several are hashed side by side
    assert len(data) == builder.size
    if not reference:
        return
    as_model = [
        model.UserRecord(
            r.partition_key, r.data, r.explicit_hash_key, tuple(model.Tag(*tag) for tag in tags_of(r))
        )
        for r in records
    ]
    assert model.build(as_model) == data
    assert check_frame(data) == rows(records)


def naive_shards(listed: Iterable[kpl.Shard]) -> list[shards.Shard]:
    """The same shards to the executable spec."""
    return [
        shards.Shard(
            shard.shard_id,
            shard.hash_key_range.starting_hash_key,
            shard.hash_key_range.ending_hash_key,
            shard.parent_shard_ids,
            shard.open,
        )
        for shard in listed
    ]


def check_listing(pages: Any, probes: Iterable[int]) -> None:
    """A listing is a map that finds what linear search finds, or one typed error, the right one."""
    try:
        found = kpl.ShardMap.from_list_shards(pages)
    except kpl.ShardMapError as error:
        str(error)
        naive = _naive(pages)
        if naive is not None and error.code in ("empty", "gap", "overlap", "cycle"):
            assert error.code == shards.problem(naive) or error.code in ("gap", "overlap"), error
            assert shards.problem(naive) is not None
        return
    naive = naive_shards(found.values())
    assert shards.problem(naive) is None
    edges = [
        edge
        for shard in naive
        for edge in (shard.start - 1, shard.start, shard.end, shard.end + 1)
        if 0 <= edge < 2**128
    ]
    for hash_key in [*probes, *edges]:
        assert found.shard_for(hash_key).shard_id == shards.shard_for(naive, hash_key).shard_id
    assert kpl.ShardMap.from_json(found.to_json()) == found
    ids = {shard.shard_id for shard in naive}
    missing = {s.shard_id: tuple(p for p in s.parents if p not in ids) for s in naive}
    assert dict(found.unknown_parents) == {shard: lost for shard, lost in missing.items() if lost}


def _naive(pages: Any) -> list[shards.Shard] | None:
    """The listing as the model wants it; None if it is not even one."""
    try:
        listed = [
            shards.Shard(
                shard["ShardId"],
                int(shard["HashKeyRange"]["StartingHashKey"]),
                int(shard["HashKeyRange"]["EndingHashKey"]),
                tuple(shard[k] for k in ("ParentShardId", "AdjacentParentShardId") if k in shard),
                "EndingSequenceNumber" not in shard["SequenceNumberRange"],
            )
            for page in pages
            for shard in page["Shards"]
        ]
        return list(dict.fromkeys(listed))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def check_json_listing(text: bytes) -> None:
    """`ShardMap.from_json` takes any bytes: a map or ShardMapError."""
    try:
        found = kpl.ShardMap.from_json(text)
    except kpl.ShardMapError as error:
        str(error)
        return
    check_listing([json.loads(found.to_json())], [0, 2**128 - 1])
