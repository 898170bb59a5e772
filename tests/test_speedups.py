"""The compiled twin against the Python beside it: same records, bytes, sizes, digests.

What each answers alone is tested where it lives; here both are asked the same. KPL_CODEC_PURE=1 runs
the whole suite on the Python alone.
"""

from __future__ import annotations

import inspect
import os
import random
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from fuzz import corpus
from fuzz.invariants import check_quick_decoders, decode, rows
from fuzz.invariants import frame as framed
from kpl_codec.deaggregation import policies
from kpl_codec.deaggregation.policy_rules import POLICIES
from kpl_codec.format import codec, message
from kpl_codec.format.hash_keys import effective_hash_key
from kpl_codec.format.records import with_siblings
from kpl_codec.testing import strategies as kst
from tests.examples import examples
from tests.spec.vectors import load
from tests.test_cost import keyed

from .every import every

if os.environ.get("KPL_CODEC_REQUIRE_SPEEDUPS") == "1":  # the test of a wheel
    from kpl_codec import _speedups as speedups
else:
    speedups = pytest.importorskip(
        "kpl_codec._speedups",
        reason="built without a C compiler, or KPL_CODEC_PURE=1",
        exc_type=ImportError,
    )

OBSERVED = [bytes.fromhex(vector["input"]["data"]) for vector in load() if vector["kind"] == "decode"]


def hold_equal(body: bytes) -> None:
    """Compiled code reads what is sound, and nothing else; also where it reads many."""
    frame = framed(body)
    found = decode(frame)
    check_quick_decoders(frame, found)
    frames = read([kpl.KinesisRecord("outer", frame, "7")])
    (status,) = frames.status
    assert status == (1 if len(frame) <= 20 else 3)
    ((what, first, last, user_records),) = frames
    certain = isinstance(found, list)
    assert (what, first, last, frames.status == b"\2") == (0 if certain or status == 1 else 2, 0, 1, certain)
    if certain:
        assert rows(user_records) == found
        assert [row.sub_sequence_number for row in user_records] == list(range(len(found)))
        assert all(isinstance(row, kpl.DeaggregatedRecord) for row in user_records)
        assert all(hash(user) == hash(user.replace()) for user in kpl.decode(frame))


def read(records: list[kpl.KinesisRecord]) -> Any:
    types = (kpl.KinesisRecord, kpl.DeaggregatedRecord, kpl.Placement)
    return speedups.FrameRows(records, types, (None,) * 4)


messages = st.one_of(
    kst.aggregated_records(max_records=6).map(lambda made: made.data[4:-16]),
    kst.non_canonical_records(max_records=4).map(lambda made: made.data[4:-16]),
    kst.defective_frames(max_records=4).map(lambda made: made.data[4:-16]),
    st.sampled_from([frame[4:-16] for frame in OBSERVED if len(frame) > 20]),
)


#: A message with places changed, cut, repeated or filled in; often with bytes that mean something.
damaged = st.builds(
    corpus.damaged, st.lists(messages, min_size=1, max_size=2), st.randoms(use_true_random=False)
)


def placed(keys: list[str]) -> list[int | None]:
    """The hash keys by which user records with these explicit hash keys are placed."""
    record = kpl.KinesisRecord("outer", framed(keyed(len(keys), *map(str.encode, keys))), "1", "shardId-0")
    shard_map = kpl.ShardMap([kpl.Shard("shardId-0", kpl.ALL_HASH_KEYS)])
    rows = kpl.deaggregate([record], shard_map=shard_map)
    return [row.placement.hash_key for row in rows if row.placement]


def test_digits_of_every_script_are_explicit_hash_keys() -> None:
    # KEY-3: those below U+10000; every character is tried, and every digit has its number.
    characters = [chr(point) for point in range(0x10000) if not 0xD800 <= point < 0xE000]
    characters += ["\U0001d7d9", "\U000104a0"]
    digits = []
    for character in characters:
        body = keyed(1, b"1" + character.encode())
        read = speedups.parse(body)
        assert read == message.quick_parse(body), hex(ord(character))
        digits += [character] if read is not None else []
    assert len(digits) >= 370
    keys = [f"{'+' * (n % 2)}{digit}000{digits[-1 - n]}" for n, digit in enumerate(digits)]
    assert placed(keys) == [effective_hash_key("", key) for key in keys] == [int(key) for key in keys]


def test_explicit_hash_keys_of_every_length_are_read_as_python_reads_them() -> None:
    # KEY-3: 1 to 39 digits, the first of them zeros or not; and with a sign.
    chance = random.Random(7)
    keys = ["0", "9" * 38, str(2**128 - 1)]
    for digits in range(1, 39):
        for zeros in range(digits):
            keys.append("0" * zeros + "".join(chance.choices("0123456789", k=digits - zeros)))
    keys = list(dict.fromkeys([*keys, *(f"+{key}" for key in keys if len(key) < 39), "-0", "-000"]))
    assert placed(keys) == [int(key) for key in keys]


@pytest.mark.parametrize("bad", [b"\xd9", b"\xd9\x23", b"\xe0\x99\xa3", b"\xef\xbc", b"\xf0\x9d\x9f\x99"])
def test_broken_text_in_an_arrow_column_is_no_hash_key(bad: bytes) -> None:
    column = speedups.Column(None, array("i", [0, 1]), b"x", 0, 1, False)
    key = speedups.Column(None, array("i", [0, len(bad)]), bad, 0, 1, False)
    frames = speedups.FrameColumns(column, column, key, bytearray, hash_keys=True)
    assert list(frames.status) == [0]


@settings(deadline=None, max_examples=examples(300))
@given(damaged)
def test_a_message_is_read_the_same_if_and_only_if_it_is_sound(body: bytes) -> None:
    hold_equal(body)


@every("data", OBSERVED, ids=range(len(OBSERVED)))
def test_every_vector_is_read_the_same_if_and_only_if_it_is_sound(data: bytes) -> None:
    hold_equal(data[4:-16])


def test_digests_around_every_block_boundary_are_those_of_hashlib() -> None:
    """Of messages of many sizes, which are hashed side by side, and of one that is off by a bit."""
    sizes = [*range(1, 200), 65_535, 65_536, 100_000]
    frames = [framed(random.Random(size).randbytes(size)) for size in sizes]
    frames += [frame[:-1] + bytes([frame[-1] ^ 1]) for frame in frames]
    right = [status == 3 for status in read([kpl.KinesisRecord("outer", frame) for frame in frames]).status]
    assert right == [True] * len(sizes) + [False] * len(sizes)


user_records = st.one_of(
    kst.user_records(),
    st.builds(
        kpl.UserRecord,
        st.sampled_from(["", "a", "é" * 256, "x" * 257, "\ud800", "\U0001f600"]),
        st.binary(max_size=200),
        st.none() | st.sampled_from(["0", "00", "", "-1", "٣", str(2**128), str(2**128 - 1), "9" * 38]),
        st.sampled_from([(), (kpl.Tag("k"),), (kpl.Tag("k", "v"), kpl.Tag("é", ""))]),
    ),
)


def test_the_compiled_builder_shows_what_the_python_one_shows() -> None:
    """In help() and in Jupyter: its module, its signature, its methods and what they take."""

    def takes(function: Any) -> list[Any]:
        found = inspect.signature(function).parameters.values()
        return [(one.name, one.kind, one.default) for one in found]

    compiled, python = speedups.AggregatedRecordBuilder, codec.PythonBuilder
    methods = {name for name in dir(python) if not name.startswith("_")} - {"size"}
    assert {name for name in dir(compiled) if not name.startswith("_")} == methods | {"size", "max_size"}
    assert compiled.__module__ == python.__module__
    assert takes(compiled) == takes(python)
    for name in methods:
        assert takes(getattr(compiled, name)) == takes(getattr(python, name)), name
    assert inspect.getdoc(compiled).startswith("Collects user records")


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(user_records, max_size=12), st.none() | st.integers(0, 600))
def test_builders_and_encoders_say_and_write_the_same(
    records: list[kpl.UserRecord], max_size: int | None
) -> None:
    compiled, python = speedups.AggregatedRecordBuilder(max_size), codec.PythonBuilder(max_size)

    def same(*ways: Any) -> None:
        answers = []
        for way in ways:
            try:
                answers.append(way())
            except kpl.KplError as error:
                answers.append((type(error), vars(error)))
        assert answers[0] == answers[1]

    for record in records:
        same(lambda: compiled.add(record), lambda: python.add(record))  # noqa: B023 - called at once
        assert (compiled.size, len(compiled)) == (python.size, len(python))
    same(compiled.build, python.build)
    same(lambda: speedups.encode(records), lambda: codec.encode_in_python(records))
    assert compiled.clear() == python.clear()
    assert (compiled.size, len(compiled)) == (python.size, len(python))


@settings(deadline=None, max_examples=examples(80))
@given(
    st.lists(
        st.one_of(kst.aggregated_records(max_records=5).map(lambda made: made.data), damaged.map(framed)),
        max_size=6,
    ),
    st.sampled_from(POLICIES),
    st.none() | kst.shard_maps(),
    st.none() | st.integers(0, 2**128 - 1).map(lambda end: kpl.HashKeyRange(0, end)),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_deaggregate_gives_the_same_with_and_without(
    frames: list[bytes],
    policy: Any,
    shard_map: kpl.ShardMap | None,
    hash_key_range: kpl.HashKeyRange | None,
    as_list: bool,
    rng: random.Random,
) -> None:
    shard_ids = [None, "shardId-unknown", *(shard_map or ())]
    records = [
        kpl.KinesisRecord(
            rng.choice([None, "", "pk", "é", "\ud800"]),
            frame if rng.random() < 0.8 else b"plain",
            str(i // 2),
            rng.choice(shard_ids),
            None,
            rng.choice([None, None, "0", "007", "x", str(2**128)]),
            rng.choice([None, None, 0, 3]),
        )
        for i, frame in enumerate(frames)
    ]
    records = list(with_siblings(records))  # as a reader gives what somebody opened before

    def outcome() -> Any:
        rows: list[Any] = []
        drops: list[kpl.Drop] = []
        found = kpl.deaggregate(
            records if as_list else iter(records),
            policy,
            shard_map=shard_map,
            hash_key_range=hash_key_range,
            on_drop=drops.append,
        )
        try:
            rows.extend(map(_comparable, found))
        except kpl.KplError as error:  # also a HashKeyError: a partition key without UTF-8 form
            rows.append((type(error), vars(error)))
        return rows, found.counts, drops

    compiled = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message, "_user_records", None)
        patch.setattr(policies, "_FrameRows", lambda *_, **__: None)
        assert outcome() == compiled


def _comparable(row: kpl.DeaggregatedRecord) -> Any:
    # A tuple of Python 3.14 keeps its hash: one that compiled code makes must not have one yet.
    for value in (row, row.placement):
        assert value is None or hash(value) == hash(value.replace())
    return row.replace(defects=tuple((type(d), vars(d)) for d in row.defects))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("offsets", "data"),
    [
        (b"\0" * 4, b""),  # an offset short
        (bytes(4) + (9).to_bytes(4, "little"), b"12345678"),  # beyond the bytes
        ((5).to_bytes(4, "little") + (2).to_bytes(4, "little"), b"12345678"),  # backwards
        (b"\xff" * 4 + (2).to_bytes(4, "little"), b"12345678"),  # negative
    ],
)
def test_an_arrow_column_that_lies_is_refused(offsets: bytes, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"offset|short"):
        speedups.Column(None, offsets, data, 0, 1, False)
