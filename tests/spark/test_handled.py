"""What Spark makes of a table of handled names says the same as the table."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.audit.index import Tally, runs_of
from kpl_codec.audit.inputs import Side
from kpl_codec.audit.judge import judge
from kpl_codec.audit.sources import Holes, ReadProgress
from kpl_codec.audit.tables import Streams, count_batch
from kpl_codec.ledger.ledger_rows import Row
from kpl_codec.shards.stream_name import Stream
from kpl_codec.spark import handled_runs

from ..audit.model import index_of
from .test_functions import configured

pytestmark = pytest.mark.spark
NAMES = "shardId string, sequenceNumber string, subSequenceNumber long"
Runs = Counter[tuple[Any, ...]]


def runs_in(df: Any) -> Runs:
    return Counter(tuple(row) for row in df.collect())


def names_in(runs: Runs) -> Runs:
    """The user records of runs."""
    return Counter(
        (shard, number, sub)
        for (shard, number, first, last), times in runs.items()
        for sub in ([None] if first is None else range(first, last + 1))
        for _ in range(times)
    )


def audit_of(rows: list[Row], folder: Path) -> list[Any]:
    index = index_of(rows)
    tally, side = Tally(index), Side(Holes(), ReadProgress(), index.is_put)
    side.take = lambda file, batch: count_batch(tally, side.holes, Streams(Stream("orders")), file, batch)
    assert not [*side.read([str(folder)])]
    # (A row that names nothing may mean any user record: what they are without it is compared, too.)
    side.holes.reach.pop(("", ""), None)
    audit = judge(index, tally, handled_holes=side.holes)
    duplicates = Counter(audit.duplicates)
    parts = [runs_of(index, part) for part in map(audit.of, ("missing", "unknown", "too_early"))]
    return [*parts, duplicates, audit.unclaimed]


@pytest.mark.slow
@pytest.mark.requirement("AUD-18", "SPK-113")
def test_runs_say_the_same_as_rows(spark: Any, tmp_path: Path) -> None:
    """Also runs of runs, and of tables put together: what three days handled is what was handled in all."""
    chance = random.Random(1)
    rows = [
        Row(
            "delivered",
            f"shardId-{n % 3:012d}",
            sequence_number=str(10**55 + n),
            user_records=chance.randint(1, 30),
            at=0,
        )
        for n in range(150)
    ]
    # (Some do not tell the user record: that is known only of a Kinesis record that has one.)
    lacking = {row.sequence_number for row in rows if chance.random() < 0.1}
    table = [
        (row.shard_id, row.sequence_number, None if row.sequence_number in lacking else sub)
        for row in rows
        for sub in range(row.user_records)
        for _ in range(chance.choice([1] * 50 + [0, 2]) if chance.random() < 0.5 else 1)
    ]
    # What names no user record is never part of a run.
    table += [(None, None, 0), (None, None, 1), ("shardId-000000000000", None, 0), (*table[0][:2], -1)]
    chance.shuffle(table)
    df = spark.createDataFrame(table, NAMES).repartition(4)
    handled_runs(df).write.parquet(str(tmp_path / "runs"))
    df.write.parquet(str(tmp_path / "rows"))
    whole = spark.read.parquet(str(tmp_path / "runs"))
    runs = runs_in(whole)
    assert names_in(runs) == Counter(table)
    assert sum(runs.values()) < len(table) / 2
    assert runs_in(handled_runs(whole)) == runs
    by_rows, by_runs = (audit_of(rows, tmp_path / folder) for folder in ("rows", "runs"))
    assert by_rows == by_runs
    assert by_rows[0]
    assert by_rows[1]
    assert by_rows[3]
    days = [handled_runs(spark.createDataFrame(table[at::3], NAMES)) for at in range(3)]
    together = runs_in(handled_runs(days[0].unionByName(days[1]).unionByName(days[2])))
    assert names_in(together) == Counter(table)
    assert all(first == last for _, number, first, last in together if number is None or (first or 0) < 0)


@pytest.mark.slow
@pytest.mark.requirement("SPK-113")
def test_records_of_two_streams_are_not_one(spark: Any) -> None:
    rows = [(stream, "s", "7", sub) for stream, sub in (("a", 0), ("b", 1), ("b", 2))]
    made = handled_runs(spark.createDataFrame(rows, f"streamName string, {NAMES}"))
    assert runs_in(made) == Counter([("a", "s", "7", 0, 0), ("b", "s", "7", 1, 2)])
    assert runs_in(handled_runs(made)) == runs_in(made)


@pytest.mark.slow
@pytest.mark.requirement("SPK-114")
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_text_that_is_no_number_is_refused_with_its_column(spark: Any, ansi: str) -> None:
    """Whatever the session makes of a cast that fails. Null stays null, and is part of no run."""
    schema = "shardId string, sequenceNumber string, subSequenceNumber string, lastSubSequenceNumber string"

    def runs(*subs: tuple[str | None, str | None]) -> Runs:
        rows = [("s", "1", *sub) for sub in subs]
        return runs_in(handled_runs(spark.createDataFrame(rows, schema).coalesce(1)))

    wrong = [
        ("null", None),
        ("", None),
        ("1.0", "2"),
        ("0", "x"),
        ("9" * 30, None),
        ("3", "1"),
        ("5\n", None),
    ]
    with configured(spark, **{"spark.sql.ansi.enabled": ansi}):
        result = Counter([("s", "1", None, None)] * 3 + [("s", "1", 0, 4)])
        assert runs((None, None), (None, None), (None, "3"), ("0", None), ("1", "4")) == result
        for sub in wrong[:1] if ansi == "true" else wrong:
            with pytest.raises(Exception, match="ubSequenceNumber"):
                runs(("0", "1"), sub)


@pytest.mark.slow
@pytest.mark.requirement("SPK-114")
@pytest.mark.parametrize(
    ("schema", "column"),
    [
        # As inferred of a CSV: the digits are lost.
        ("shardId string, sequenceNumber double, subSequenceNumber int", "sequenceNumber"),
        ("shardId string, sequenceNumber string, subSequenceNumber double", "subSequenceNumber"),
        ("shardId int, sequenceNumber string, subSequenceNumber int", "shardId"),
        (f"{NAMES}, LASTsubSequenceNumber boolean", "lastSubSequenceNumber"),
        ("streamName binary, " + NAMES, "streamName"),
    ],
)
def test_a_type_that_cannot_hold_the_values_is_refused(spark: Any, schema: str, column: str) -> None:
    with pytest.raises(TypeError, match=column):
        handled_runs(spark.createDataFrame([], schema))
