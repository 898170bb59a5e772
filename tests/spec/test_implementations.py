"""The tables of chapter 12, told again by the frames of the encoders: what we and the KCL make of them, on
four even shards. What aws_kinesis_agg 1.2.3 makes of them was observed once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import kpl_codec as kpl
from kpl_codec.deaggregation import kcl
from kpl_codec.format.hash_keys import partition_key_hash

from .vectors import REPOSITORY, Written, wild

CHAPTER = (REPOSITORY / "spec" / "12-implementations.md").read_text()
#: The hash key ranges of four shards.
SHARDS = [kpl.HashKeyRange(n << 126, ((n + 1) << 126) - 1) for n in range(4)]

#: One user record as a consumer gives it: partition key, data, explicit hash key.
Row = tuple[str, bytes, str | None]


def from_report(case: Written) -> Iterator[Row]:
    """What the bytes hold, by the report policy."""
    for record in kpl.deaggregate(case.outputs, "report"):
        if record.aggregated and record.partition_key is not None:
            yield record.partition_key, record.data, record.explicit_hash_key


def from_kcl(case: Written) -> Iterator[Row]:
    """The user records that the KCL delivers out of aggregates."""
    for output, explicit in zip(case.outputs, case.outer_hash_keys, strict=True):
        hash_key = kpl.effective_hash_key(output.partition_key or "", explicit)
        hash_key_range = next(shard for shard in SHARDS if hash_key in shard)
        outcome = kcl.outcome(output.data, hash_key_range)
        if not outcome.raw:
            yield from kcl.user_records(output.data, outcome.delivered)


def hashed(row: Row) -> tuple[str, bytes, str]:
    """With the effective hash key, for an explicit one that is the partition key's own is none; the explicit
    one where it is no number."""
    key, data, explicit = row
    return key, data, str(partition_key_hash(key)) if explicit is None else explicit


def became(case: Written, rows: Iterator[Row]) -> Counter[str]:
    """What became of the user records that were put, matched by data: right, with another partition key, with
    another hash key, or missing."""
    left = [hashed((put.partition_key, put.data, put.explicit_hash_key)) for put in case.inputs]
    counts: Counter[str] = Counter()
    for row in map(hashed, rows):
        same = [other for other in left if other[1] == row[1]]
        assert same, "data that nobody put"
        nearest = min(same, key=lambda other: (other[0] != row[0], other[2] != row[2]))
        left.remove(nearest)
        if nearest == row:
            counts["right"] += 1
        else:
            counts["partition key" if nearest[0] != row[0] else "hash key"] += 1
    counts["missing"] = len(left)
    return counts


def test_what_became_of_the_user_records() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)` \| (\d+)" + 3 * r" \| ([^|]+)" + r" \| [\d /]+ \|$", CHAPTER, re.MULTILINE
    )
    shown = {name: (int(count), ours, kcls) for name, count, ours, kcls, _ in rows}
    found = {}
    for name, cases in wild().items():
        cells = []
        for consumer in (from_report, from_kcl):
            total = sum((became(case, consumer(case)) for case in cases), Counter())
            order = ("right", "partition key", "hash key", "missing")
            cells.append(" / ".join(str(total[what]) for what in order))
        found[name] = (sum(len(case.inputs) for case in cases), *cells)
    assert shown == found


def test_the_chapter_names_every_encoder_s_commit() -> None:
    lines = (REPOSITORY / "spec" / "vectors" / "wild-encoders.jsonl").read_text()
    versions = set(re.findall(r'"version":"(\w+)"', lines))
    assert len(versions) == 15
    assert {version for version in versions if f", {version}" not in CHAPTER} == set()
