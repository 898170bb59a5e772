"""What Spark makes of a table of handled names says the same as the table."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.audit.handled import read_handled
from kpl_codec.audit.judge import judge
from kpl_codec.audit.names import Names, Tally, runs_of
from kpl_codec.ledger import Row
from kpl_codec.spark import handled_runs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
SCHEMA = "shardId string, sequenceNumber string, subSequenceNumber long, data string"


@pytest.mark.requirement("AUD-18")
def test_runs_say_the_same_as_rows(spark: Any, tmp_path: Path) -> None:
    chance = random.Random(1)
    rows = [
        Row("delivered", f"shardId-{n % 3:012d}", str(10**55 + n), chance.randint(1, 30), 0)
        for n in range(300)
    ]
    table = [
        (row.shard_id, row.sequence_number, sub, "x")
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
        for sub in range(run["subSequenceNumber"], run["lastSubSequenceNumber"] + 1)
    ) == Counter(name[:3] for name in table)
    assert len(runs) < len(table) / 2
    said = []
    for folder in ("rows", "runs"):
        names = Names(rows)
        tally = Tally(names)
        read_handled([str(tmp_path / folder)], tally)
        audit = judge(names, tally)
        doubles = Counter((double.run, double.times) for double in audit.doubles)
        said.append(
            (runs_of(names, audit.missing), runs_of(names, audit.too_early), doubles, audit.unclaimed)
        )
    assert said[0] == said[1]
    assert said[0][0]
    assert said[0][2]
