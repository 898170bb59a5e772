"""Captured Kinesis records one by one, for the commands that print them."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..captures import CAPTURE_SCHEMA, plan, read_piece
from ..captures.account import Account
from ..captures.capture_rows import CaptureRows, shard_of
from ..format.records import KinesisRecord, opened_before
from ..shards.stream_name import stream_name
from .command_inputs import CapturedRecord, Unreadable
from .progress import waiting


@contextmanager
def with_standard_input(paths: Sequence[str]) -> Iterator[list[str]]:
    """``paths``, with a copy of standard input in place of ``-``."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "standard-input"
        if "-" in paths:
            with waiting("reading standard input"), copy.open("wb") as out:
                shutil.copyfileobj(sys.stdin.buffer, out)
        yield [str(copy) if path == "-" else path for path in paths]


def read_captures(paths: Sequence[str]) -> Iterator[CapturedRecord | Unreadable]:
    """The records in the files under ``paths``, in order; ``-`` is standard input. Raises InputError."""
    with with_standard_input(paths) as names:
        account, given = Account(), set[str]()
        labels = {name: "standard input" for name, path in zip(names, paths, strict=True) if path == "-"}
        for piece in plan(names):
            given.add(piece.path)
            for batch in read_piece(piece, _Plain(piece.path), account):
                for row in batch.to_pylist() if isinstance(batch, pa.RecordBatch) else batch:
                    yield _item({**row, "file": labels.get(row["file"], row["file"])} if labels else row)
        for finding in account.findings(given, checked=False):
            yield Unreadable(
                finding.kind, labels.get(finding.file or "", finding.file or ""), finding.detail or ""
            )


class _Plain(CaptureRows):
    """Collects rows as dicts instead of Arrow batches, because commands print them one by one."""

    def take(self) -> Iterator[Any]:
        rows, self._rows, self._bytes = self._rows, [], 0
        yield [dict(zip(CAPTURE_SCHEMA.names, row, strict=True)) for row in rows]


def _item(row: dict[str, Any]) -> CapturedRecord | Unreadable:
    if row["captureError"] is not None:
        place = f"line {row['line']}" if row["line"] is not None else f"byte {row['position']}"
        return Unreadable(row["captureError"], f"{row['file']}, {place}", row["captureText"])
    if row["data"] is None:
        return Unreadable("no-data", f"{row['file']}, row {row['position']}", "")
    record = KinesisRecord(
        row["partitionKey"],
        row["data"],
        row["sequenceNumber"],
        row["shardId"] or shard_of(row["file"], row["sequenceNumber"])[0],
        row["approximateArrivalTimestamp"],
        row["explicitHashKey"],
        row["subSequenceNumber"],
        opened_before=opened_before(
            row["openedBy"] or "other",
            bool(row["aggregated"]),
            row["subSequenceNumber"],
            row["partitionKey"],
            row["explicitHashKey"],
        ),
    )
    return CapturedRecord(
        stream_name(row["streamName"]), record, row["file"], row["line"], row["position"], row["recordIndex"]
    )
