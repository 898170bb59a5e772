"""What Spark makes of a table of handled names says the same as the table."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.audit.audit_inputs import read_handled
from kpl_codec.audit.judge import judge
from kpl_codec.audit.user_record_index import HandledCounts, UserRecordIndex, runs_of
from kpl_codec.ledger.ledger_rows import Row
from kpl_codec.spark import handled_runs

from .test_functions import configured

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
SCHEMA = "shardId string, sequenceNumber string, subSequenceNumber long, data string"


@pytest.mark.requirement("AUD-18")
def test_runs_say_the_same_as_rows(spark: Any, tmp_path: Path) -> None:
    chance = random.Random(1)
    rows = [
        Row("delivered", f"shardId-{n % 3:012d}", str(10**55 + n), chance.randint(1, 30), 0)
        for n in range(300)
    ]
    # (Some do not tell the user record: that is known only of a Kinesis record that has one.)
    lacking = {row.sequence_number for row in rows if chance.random() < 0.1}
    table = [
        (row.shard_id, row.sequence_number, None if row.sequence_number in lacking else sub, "x")
        for row in rows
        for sub in range(row.user_records)
        for _ in range(chance.choice([1] * 50 + [0, 2]) if chance.random() < 0.5 else 1)
    ]
    chance.shuffle(table)
    df = spark.createDataFrame(table, SCHEMA).repartition(4)
    handled_runs(df).write.parquet(str(tmp_path / "runs"))
    df.write.parquet(str(tmp_path / "rows"))
    runs = [row.asDict() for row in spark.read.parquet(str(tmp_path / "runs")).collect()]
    assert Counter(
        (run["shardId"], run["sequenceNumber"], sub)
        for run in runs
        for sub in (
            [None]
            if run["subSequenceNumber"] is None
            else range(run["subSequenceNumber"], run["lastSubSequenceNumber"] + 1)
        )
    ) == Counter(name[:3] for name in table)
    assert len(runs) < len(table) / 2
    said = []
    for folder in ("rows", "runs"):
        names = UserRecordIndex(rows)
        tally = HandledCounts(names)
        read_handled([str(tmp_path / folder)], tally)
        audit = judge(names, tally)
        duplicates = Counter((duplicate.run, duplicate.times) for duplicate in audit.duplicates)
        said.append(
            [runs_of(names, part) for part in (audit.missing, audit.unknown, audit.too_early)]
            + [duplicates, audit.unclaimed]
        )
    assert said[0] == said[1]
    assert said[0][0]
    assert said[0][1]
    assert said[0][3]


COLUMNS = ("shardId", "sequenceNumber", "subSequenceNumber", "lastSubSequenceNumber")
NAMES = "shardId string, sequenceNumber string, subSequenceNumber long"


def runs_in(df: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in df.collect())


@pytest.mark.slow
@pytest.mark.requirement("AUD-18", "SPK-113")
def test_runs_of_runs_are_the_same_runs(spark: Any) -> None:
    """Also of tables put together: what two days handled is what was handled in both."""
    chance = random.Random(2)
    names = [
        (f"shardId-{n % 2:012d}", str(10**55 + n), sub)
        for n in range(60)
        for sub in range(-chance.randint(0, 1), chance.randint(1, 12))
        for _ in range(chance.choice([1, 1, 1, 1, 2, 3]))
        if chance.random() < 0.9
    ]
    names += [(None, None, 0), (None, None, 1), ("shardId-000000000000", None, 0)]
    chance.shuffle(names)
    whole = handled_runs(spark.createDataFrame(names, NAMES)).cache()
    once = runs_in(whole)
    assert runs_in(handled_runs(whole)) == once

    def handled(runs: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
        return Counter(
            (shard, number, sub)
            for (shard, number, first, last), times in runs.items()
            for sub in range(first, last + 1)
            for _ in range(times)
        )

    assert handled(once) == Counter(names)
    days = [handled_runs(spark.createDataFrame(names[at::3], NAMES)) for at in range(3)]
    together = days[0].unionByName(days[1]).unionByName(days[2])
    assert handled(runs_in(together)) == Counter(names)
    again = runs_in(handled_runs(together))
    assert handled(again) == Counter(names)
    # What names no user record is never part of a run.
    assert all(first == last for shard, number, first, last in again if number is None or first < 0)


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

    def runs(*subs: tuple[str | None, str | None]) -> Counter[tuple[Any, ...]]:
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
