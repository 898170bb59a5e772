"""Captures of user records that somebody had opened: the same verdicts as unopened, and all of it adds up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kpl_codec as kpl
from kpl_codec.adapters import kinesis_records, to_lambda

from ..arrow.test_arrow import batch_of
from ..deaggregation.test_opened_before import KCL, KEYS, MAPS, NO_KEYS, NUMBER, SHARD, USERS
from .test_job import validate_files

OPENERS = [opener for opener in (*KEYS, *NO_KEYS) if opener.__name__ != "kclpy"]  # objects are no file
WHOLE = [USERS[0], USERS[2]]


def validated(document: Any, folder: Path, *more: str) -> tuple[int, dict[str, Any], dict[str, int]]:
    """The exit status, the totals, and how many findings there are of each kind."""
    folder.mkdir()
    path = folder / f"{SHARD}.json"
    if isinstance(document, pa.RecordBatch):
        path = folder / f"{SHARD}.parquet"
        pq.write_table(pa.Table.from_batches([document]), path)
    else:
        path.write_text(document if isinstance(document, str) else json.dumps(document))
    status = validate_files(path, MAPS[0], folder / "out", *more)
    summary = json.loads((folder / "out/summary.json").read_text())
    return status, summary["totals"], {kind["name"]: kind["findings"] for kind in summary["kinds"]}


def unopened(users: list[kpl.UserRecord]) -> dict[str, Any]:
    record = kpl.KinesisRecord("a", kpl.encode(users), NUMBER, SHARD)
    return to_lambda([record], stream_arn="arn:aws:kinesis:eu-west-1:123456789012:stream/orders")


#: Kinds of findings about a capture of what was opened.
ABOUT = {
    "mixed-aggregate", "foreign-aggregate", "naive-aggregator", "siblings-missing", "stray",
    "not-accounted", "explicit-hash-key-implied", "duplicate", "duplicate-name",
}  # fmt: skip
#: Of what was put, what was captured: the exit status, what the KCL does, findings; as the KCL's own readers
#: opened it, and as others did.
CAPTURED: list[tuple[list[kpl.UserRecord], list[int], tuple[Any, ...], tuple[Any, ...]]] = [
    (
        USERS,
        [0, 1, 2],
        (1, {"delivered": 3}, {"stray": 1}),
        (1, {"dropped": 3}, {"mixed-aggregate": 1, "naive-aggregator": 1}),
    ),
    (WHOLE, [0, 1], (0, {"delivered": 2}, {}), (0, {"delivered": 2}, {})),
    (WHOLE, [1], (0, {"delivered": 1}, {}), (1, {"unknown": 1}, {"siblings-missing": 1})),
    (USERS, [1], (1, {"delivered": 1}, {"stray": 1}), (1, {"dropped": 1}, {"foreign-aggregate": 1})),
]


@pytest.mark.requirement("PLC-6", "PLC-7", "ACC-1", "SPK-17", "SPK-94")
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(
    "more",
    [
        pytest.param((), id="whole"),
        pytest.param(("--no-user-records",), id="findings alone", marks=pytest.mark.slow),
    ],
)
def test_a_capture_of_what_was_opened_is_judged_as_unopened(
    more: tuple[str, ...], columns: bool, tmp_path: Path
) -> None:
    status, totals, kinds = validated(unopened(USERS), tmp_path / "unopened", *more)
    assert (status, totals["kcl"], kinds["mixed-aggregate"]) == (1, {"dropped": 3}, 1)
    wrong = []
    for opener in OPENERS:
        if columns and opener in KCL:  # nobody has called the KCL's records so in columns
            continue
        for number, (users, kept, of_kcl, of_others) in enumerate(CAPTURED):
            document = opener(users, kept)
            if columns:
                records = list(kinesis_records(document, shard_id=SHARD))
                document = batch_of(records).drop_columns(["openedBy"])
            status, totals, kinds = validated(document, tmp_path / f"{opener.__name__} {number}", *more)
            about = {name: count for name, count in kinds.items() if name in ABOUT}
            seen = status, totals["kcl"], about
            if seen != (of_kcl if opener in KCL else of_others) or totals["aggregatedRecords"] != 1:
                wrong.append((opener.__name__, number, seen))
    assert wrong == []
