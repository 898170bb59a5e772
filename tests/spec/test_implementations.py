"""The tables of chapter 12, told again by the frames of the encoders."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

import kpl_codec as kpl
from kpl_codec.format.frame import disguise_of

from .consumers import Row, compared, from_aws_kinesis_agg, from_kcl, from_report, put
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


def test_nobody_opens_erlmld():
    for case in wild()["erlmld"]:
        (output,) = case.outputs
        assert disguise_of(output.data) == "a frame with a foreign magic"
        opened = kpl.decode(b"\xf3" + output.data[1:])
        assert [(user.partition_key, user.data) for user in opened] == [
            (given.partition_key, given.data) for given in case.inputs
        ]
    assert total(wild()["erlmld"], from_report) == {"missing": 80}
