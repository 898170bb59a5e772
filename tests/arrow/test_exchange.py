"""What other libraries hand over, and whole tables on several threads: the same user records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import nanoarrow
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec import arrow
from kpl_codec.arrow import Deaggregator, deaggregate_batches, deaggregate_table, output_schema, schema_of
from kpl_codec.deaggregation.deaggregated_record import Counts
from kpl_codec.deaggregation.policy_rules import POLICIES
from kpl_codec.errors import KplError
from tests.examples import examples

from ..every import every
from .test_arrow import MAPS, SIBLINGS, batch_of, kinesis_records, opened_records


def row_by_row() -> Any:
    """Batches are cut as far as can be."""
    rows = lambda batch, _: (batch.slice(i, 1) for i in range(max(1, batch.num_rows)))  # noqa: E731
    return mock.patch.object(arrow, "parts", rows)


def table_of(*batches: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches(batches)


def retyped(table: pa.Table, text: pa.DataType, data: pa.DataType) -> pa.Table:
    """With other types of text and bytes."""
    changed = {pa.string(): text, pa.binary(): data}
    fields = [field.with_type(changed.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def views(table: pa.Table) -> pa.Table:
    """As polars writes text, bytes and categories."""
    table = retyped(table, pa.string_view(), pa.binary_view())
    at = table.schema.get_field_index("shardId")
    coded = table["shardId"].cast(pa.string()).dictionary_encode()
    nested = pa.array([[f"{i}", None] for i in range(table.num_rows)], pa.list_(pa.string_view()))
    return table.set_column(at, "shardId", coded).append_column("nested", nested)


RECORDS = [
    kpl.KinesisRecord(
        "a", kpl.encode([kpl.UserRecord(f"k{n}", b"x" * 40)] * 3), str(n), "shardId-000000000000"
    )
    for n in range(40)
]
BATCH = batch_of(RECORDS)

FORMS: dict[str, Callable[[pa.RecordBatch], Any]] = {
    "table": table_of,
    "reader": lambda batch: table_of(batch).to_reader(),
    "a stream": lambda batch: nanoarrow.ArrayStream(table_of(batch)),
    "an array": nanoarrow.c_array,
    "a list of streams": lambda batch: [
        nanoarrow.ArrayStream(table_of(batch.slice(0, 9))),
        nanoarrow.ArrayStream(table_of(batch.slice(9))),
    ],
    "a list of arrays": lambda batch: [
        nanoarrow.c_array(batch.slice(0, 9)),
        nanoarrow.c_array(batch.slice(9)),
    ],
    "large": lambda batch: nanoarrow.ArrayStream(  # as polars wrote text and bytes before it had views
        retyped(table_of(batch), pa.large_string(), pa.large_binary())
    ),
    "views": lambda batch: nanoarrow.ArrayStream(views(table_of(batch))),
}


@pytest.mark.requirement("SPK-75")
@every("form", FORMS)
@every("run", [deaggregate_table, deaggregate_batches])
def test_arrow_data_of_any_library_goes_in(form: str, run: Any) -> None:
    want = pa.Table.from_batches(deaggregate_batches([BATCH], "report", shard_map=MAPS[1])).to_pylist()
    made = run(FORMS[form](BATCH), "report", shard_map=MAPS[1])
    rows = (made.table if run is deaggregate_table else pa.Table.from_batches(made)).to_pylist()
    nested = [row.pop("nested", None) for row in rows]
    assert rows == want
    assert form != "views" or nested == [[f"{n}", None] for n in range(40) for _ in range(3)]


def test_a_data_frame_of_pandas_goes_in() -> None:
    names = ["data", "shardId", "sequenceNumber"]
    import pandas as pd

    frame = pd.DataFrame({name: BATCH.column(name).to_pylist() for name in names})
    made, _ = deaggregate_table(frame)
    assert made.to_pylist() == deaggregate_table(pa.table(BATCH).select(names)).table.to_pylist()
    assert made.num_rows == 120


def test_a_batch_of_any_library_goes_in_alone() -> None:
    schema, given = nanoarrow.c_schema(BATCH.schema), nanoarrow.c_array(BATCH)
    assert output_schema(schema, "report") == output_schema(BATCH.schema, "report")
    made = list(Deaggregator(schema, "report").process(given))
    assert table_of(*made) == table_of(*Deaggregator(BATCH.schema, "report").process(BATCH))


@every("form", ["table", "reader", "a stream"])
def test_a_table_without_rows_keeps_its_columns(form: str) -> None:
    made, _ = deaggregate_table(FORMS[form](BATCH.slice(0, 0)), "report", shard_map=MAPS[1])
    assert made.num_rows == 0
    assert made.schema == Deaggregator(BATCH.schema, "report", shard_map=MAPS[1]).schema


@every("wrong", [[{"Data": b""}], [RECORDS[0]], {"data": [b""]}, "data", b"data", None, 3])
def test_what_is_no_arrow_data_is_a_type_error(wrong: Any) -> None:
    for run in (deaggregate_table, lambda data: list(deaggregate_batches(data))):
        with pytest.raises(TypeError, match="where Arrow data belongs"):
            run(wrong)


def test_columns_that_cannot_be_made_are_refused_at_the_first_batch() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield BATCH
        raise AssertionError("read on")

    with pytest.raises(ValueError, match="column"):
        deaggregate_table(batches(), columns=["none"])
    with pytest.raises(ValueError, match="no batches"):
        deaggregate_table(iter(()))


@pytest.mark.requirement("SPK-3", "DAG-12")
@pytest.mark.parametrize(
    "error", [OSError("lost"), kpl.CaptureError(code="no-data", field="data"), RuntimeError("lost")]
)
def test_the_user_records_before_an_error_of_the_source_come_first(error: Exception) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield BATCH
        raise error

    users = deaggregate_batches(batches())
    assert next(users).num_rows == users.counts.user_records == 120
    with pytest.raises(type(error)):
        next(users)


def test_dictionaries_that_do_not_fit_together_come_in_batches_of_their_own() -> None:
    words = [f"word {n}" for n in range(300)]
    batches = [
        pa.RecordBatch.from_pydict(
            {
                "data": [b"x"] * 100,
                "words": pa.DictionaryArray.from_arrays(
                    pa.array(range(100), pa.int8()), words[at : at + 100]
                ),
            }
        )
        for at in (0, 100, 200)
    ]
    assert [word for made in deaggregate_batches(batches) for word in made["words"].to_pylist()] == words


def outcome(run: Callable[..., tuple[pa.Table, Counts]]) -> Any:
    """The rows, counts and drops of a run; or its error, and the drops before it."""
    drops: list[kpl.Drop] = []
    try:
        table, counts = run(on_drop=drops.append)
    except KplError as error:
        return type(error), str(error), drops
    return table.schema, table.to_pylist(), counts, drops


@pytest.mark.requirement("SPK-2", "SPK-75")
@settings(max_examples=examples(60))
@given(
    st.lists(kinesis_records, min_size=1, max_size=60) | opened_records,
    st.integers(0, 60),
    st.sampled_from(POLICIES),
    st.sampled_from(MAPS),
    st.booleans(),
    st.integers(1, 4),
)
@example(SIBLINGS, 5, "kcl", MAPS[1], False, 3)
@example(  # all were opened before, and all are of one Kinesis record
    [kpl.KinesisRecord("k", b"", "1", "shardId-000000000000", None, None, n) for n in range(1, 41)],
    0, "report", None, False, 3,
)  # fmt: skip
def test_threads_change_nothing(
    records: list[kpl.KinesisRecord], at: int, policy: Any, shard_map: Any, tags: bool, threads: int
) -> None:
    batch = batch_of(records)
    batches = [batch.slice(0, at), batch.slice(at, 0), batch.slice(at)]
    options: dict[str, Any] = {"policy": policy, "shard_map": shard_map, "tags": tags}
    schema = schema_of(batch.schema, policy, placement=shard_map is not None, tags=tags)

    def one_by_one(**more: Any) -> tuple[pa.Table, Counts]:
        made = deaggregate_batches(batches, **options, **more)
        return pa.Table.from_batches(made, schema), made.counts

    want = outcome(one_by_one)
    with row_by_row():
        got = outcome(partial(deaggregate_table, batches, threads=threads, **options))
    assert got == want


def test_threads_work_at_the_same_time() -> None:
    """Two parts that wait for one another are both done."""
    both = threading.Barrier(2, timeout=60)
    process = Deaggregator.process

    def waiting(self: Deaggregator, part: pa.RecordBatch) -> Any:
        both.wait()
        return process(self, part)

    with row_by_row(), mock.patch.object(Deaggregator, "process", waiting):
        assert deaggregate_table(BATCH.slice(0, 2), threads=2).table.num_rows == 6


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_every_thread_gets_a_part_of_a_large_batch(threads: int) -> None:
    frames = [kpl.encode([kpl.UserRecord("a", bytes([n]) * 40_000)]) for n in range(160)]
    batch = pa.RecordBatch.from_pydict({"data": pa.array(frames, pa.binary())})
    made, _ = deaggregate_table(batch, threads=threads, columns=["data"])
    assert threads <= made["data"].num_chunks <= 2 * threads
    assert made["data"].to_pylist() == [bytes([n]) * 40_000 for n in range(160)]
    few, _ = deaggregate_table(batch.slice(0, 3), threads=threads, columns=["data"])
    assert few["data"].num_chunks == 1
