"""Captures of user records that somebody had opened: the same counts as of objects, in every form."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kpl_codec as kpl
from kpl_codec.adapters import kinesis_records
from kpl_codec.validate import LocalEngine, validate

from ..arrow.test_arrow import batch_of
from ..deaggregation.test_opened_before import KCL, KEYS, MAPS, NO_KEYS, SHARD, USERS, Opener
from ..every import every

OPENERS = [opener for opener in (*KEYS, *NO_KEYS) if opener.__name__ != "kclpy"]  # objects are no file


@pytest.mark.requirement("PLC-6", "PLC-7", "ACC-1", "SPK-17", "SPK-94")
@every("form", ["as it is", "findings alone", "columns"])
@every("kept", [[0, 1, 2], [1], [0, 2]])
@every("opener", OPENERS)
def test_a_capture_of_what_was_opened_is_judged_as_its_objects(
    opener: Opener, kept: list[int], form: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of columns nobody can tell that the KCL has opened them."""
    folder: Path = tmp_path_factory.mktemp("run")
    document = opener(USERS, kept)
    records = list(kinesis_records(document, shard_id=SHARD))
    path = folder / f"{SHARD}.json"
    if form != "columns":
        path.write_text(document if isinstance(document, str) else json.dumps(document))
    elif opener not in KCL:
        path = path.with_suffix(".parquet")
        pq.write_table(pa.Table.from_batches([batch_of(records).drop_columns(["openedBy"])]), path)
    else:
        return
    result = validate(
        [str(path)],
        MAPS[0],
        output=str(folder / "out"),
        engine=LocalEngine(cores=1),
        user_records=form != "findings alone",
    )
    rows = list(kpl.deaggregate(records, "report", shard_map=MAPS[0]))
    totals = result.summary["totals"]
    assert totals["kcl"] == Counter(row.kcl for row in rows)
    assert totals["verdicts"] == Counter(row.placement.verdict for row in rows if row.placement)
    is_stray = "stray" in totals["verdicts"]
    assert result.clean == (not is_stray and totals["kcl"].keys() == {"delivered"})
    assert (totals["kinesisRecords"], totals["aggregatedRecords"]) == (1, 1)
