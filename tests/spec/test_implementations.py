"""The tables of chapter 12, told again by the frames of the encoders."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import kpl_codec as kpl
from kpl_codec.deaggregation import kcl
from kpl_codec.format import wire
from kpl_codec.format.codec import is_canonical
from kpl_codec.format.frame import disguise_of

from .consumers import Row, compared, from_aws_kinesis_agg, from_kcl, from_report, put, range_of
from .vectors import REPOSITORY, Written, wild

CHAPTER = (REPOSITORY / "spec" / "12-implementations.md").read_text()
Consumer = Callable[[Written], Iterator[Row]]


def total(cases: list[Written], consumer: Consumer) -> Counter[str]:
    """What became of the user records of all cases."""
    return sum((compared(put(case), consumer(case)) for case in cases), Counter())


def test_what_became_of_the_user_records():
    rows = re.findall(
        r"^\| `([\w-]+)` \| (\d+)" + 3 * r" \| ([^|]+)" + r" \| [\d /]+ \|$", CHAPTER, re.MULTILINE
    )
    shown = {name: (int(count), *cells) for name, count, *cells in rows}
    found = {}
    for name, cases in wild().items():
        cells = []
        for consumer in (from_report, from_kcl, from_aws_kinesis_agg):
            became = total(cases, consumer)
            order = ("right", "partition key", "hash key", "missing")
            cells.append(" / ".join(str(became[what]) for what in order))
        found[name] = (sum(len(case.inputs) for case in cases), *cells)
    assert shown == found


def test_the_chapter_names_every_encoder_s_commit():
    lines = (REPOSITORY / "spec" / "vectors" / "wild-encoders.jsonl").read_text().splitlines()
    versions = set(re.findall(r'"version":"(\w+)"', "\n".join(lines)))
    assert len(versions) == 15
    assert {version for version in versions if f", {version}" not in CHAPTER} == set()


def test_fluent_bit_gives_user_records_the_keys_of_others():
    """Its table is a permutation of the keys, the same for each key; all frames are sound."""
    swapped = 0
    for case in wild()["fluent-bit-go"]:
        (output,) = case.outputs
        users = kpl.decode(output.data)
        table = {
            given.partition_key: user.partition_key for given, user in zip(case.inputs, users, strict=True)
        }
        assert sorted(table) == sorted(table.values())
        assert is_canonical(output.data)
        assert output.partition_key == users.partition_key_table[0]
        swapped += sum(given != user for given, user in table.items())
        for given, user in zip(case.inputs, users, strict=True):
            assert (user.partition_key, user.data) == (table[given.partition_key], given.data)
    assert swapped > 50


def test_without_a_key_option_fluent_bit_swaps_nothing():
    for case in wild()["fluent-bit-go-nokey"]:
        (output,) = case.outputs
        assert {user.partition_key for user in kpl.decode(output.data)} == {output.partition_key}


def test_kinesis4cats_loses_explicit_hash_keys_at_the_kcl():
    """The shard is that of the partition key, the KCL looks at the explicit hash keys."""
    with_keys = [case for case in wild()["kinesis4cats"] if "-all-" in case.case]
    without = [case for case in wild()["kinesis4cats"] if "-none-" in case.case]
    assert {key for case in with_keys for key in case.outer_hash_keys} == {None}
    assert total(without, from_kcl)["missing"] == 0
    became = total(with_keys, from_kcl)
    assert became["missing"] > became["right"]
    for case in with_keys:
        for number, output in enumerate(case.outputs):
            outcome = kcl.outcome(output.data, range_of(case, number))
            assert outcome.delivered in (0, outcome.total)
            assert outcome.reason in (None, "out-of-range")


def test_kinesis4cats_swaps_explicit_hash_keys():
    became = total(wild()["kinesis4cats"], from_report)
    assert became["hash key"] == 9
    assert became["partition key"] == became["missing"] == 0


def test_kplnet_reads_an_md5_backwards():
    seen = 0
    for case in wild()["kplnet"]:
        if case.inputs[0].explicit_hash_key is None:
            digest = hashlib.md5(case.inputs[0].partition_key.encode()).digest()
            assert case.outer_hash_keys == [str(int.from_bytes(digest, "little"))]
            seen += 1
    assert seen == 6


@pytest.mark.requirement("KEY-8", "MSG-6")
def test_kplnet_leaves_out_index_0_and_begins_with_blanks():
    for case in wild()["kplnet"]:
        (output,) = case.outputs
        message = wire.Message(output.data)
        assert message.partition_keys[0] == " "
        assert message.explicit_hash_keys[0] is None
        assert "hash-key" not in {defect.code for defect in message.defects}
        assert 0 not in {record.partition_key_index for record in message.records()}
    assert total(wild()["kplnet"], from_kcl)["missing"] == sum(len(c.inputs) for c in wild()["kplnet"])


def test_hawknewton_indexes_another_list():
    outside = 0
    for case in wild()["ruby-hawknewton"]:
        (output,) = case.outputs
        message = wire.Message(output.data)
        for record in message.records():
            index = record.explicit_hash_key_index
            assert index in (None, record.record_index)
            outside += index is not None and index >= len(message.explicit_hash_keys)
    assert outside == 5
    became = Counter(defect.code for case in wild()["ruby-hawknewton"] for defect in defects(case))
    assert became == {"index-out-of-table": outside}


def defects(case: Written) -> Iterator[kpl.DecodeError]:
    for record in kpl.deaggregate(case.outputs, "report"):
        yield from record.defects


def test_zio_kinesis_is_sound_and_aws_kinesis_agg_gives_all_of_it_a_hash_key():
    for case in wild()["zio"]:
        assert {row[2] for row in from_report(case)} == {None}
        assert {row[2] for row in from_aws_kinesis_agg(case)} == {"0"}


def test_nobody_opens_erlmld():
    for case in wild()["erlmld"]:
        (output,) = case.outputs
        assert disguise_of(output.data) == "a frame with a foreign magic"
        opened = kpl.decode(b"\xf3" + output.data[1:])
        assert [(user.partition_key, user.data) for user in opened] == [
            (given.partition_key, given.data) for given in case.inputs
        ]
    assert total(wild()["erlmld"], from_report) == {"missing": 80}


def test_nobody_writes_tags_and_only_kplnet_has_the_kpl_s_outer_key():
    for name, cases in wild().items():
        rows = [row for case in cases for row in kpl.deaggregate(case.outputs, "report")]
        assert not any(row.tags for row in rows)
        always_a = all(output.partition_key == "a" for case in cases for output in case.outputs)
        assert always_a == (name == "kplnet")
