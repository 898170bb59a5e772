"""What notebooks show of records and maps: harmless HTML of what is there, short, and without data."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec import Lineage
from kpl_codec.captures import Location
from kpl_codec.testing import strategies as kst
from kpl_codec.validate import Validation
from kpl_codec.validate.report.report_page import render_page

from ..validate.report.examples import Page, clean_report

KEY, SECRET = "secret-key-of-a-customer", b"secret data of a customer"


def shown(value: object) -> Page:
    page = Page(value._repr_html_())  # type: ignore[attr-defined]
    assert set(page.elements) <= {"div", "strong", "pre"}
    assert {name for _, name, _ in page.attributes} <= {"style"}
    return page


@given(kst.aggregated_records())
def test_an_aggregated_record_is_a_line_for_each_user_record(aggregate: kst.Aggregate) -> None:
    page = shown(kpl.decode(aggregate.data))
    lines = page.text.splitlines()[1:]
    assert sum(line.split()[0].isdigit() for line in lines) == min(200, len(aggregate.user_records))
    assert f"{len(aggregate.user_records)} user record" in page.text
    missing = sum(record.explicit_hash_key is None for record in aggregate.user_records)
    assert len(re.findall(r" none +\d+ +\d+$", page.text, re.MULTILINE)) == missing


DATA = kst.plain_data() | kst.aggregated_records().map(lambda made: made.data)


@given(DATA | kst.defective_frames().map(lambda frame: frame.data))
def test_an_explanation_tells_kind_defects_and_writer(data: bytes) -> None:
    explanation = kpl.explain(data)
    page = shown(explanation)
    assert explanation.kind in page.text
    assert "at    bytes  field\n" in page.text
    assert repr(explanation).endswith(f"{explanation.kind}, {len(explanation.defects)} defects>")
    assert f"writer: {explanation.writer}" in page.text or explanation.writer == "unknown"
    assert page.text.count("\ndefect: ") == len(explanation.defects)


@given(kst.reshard_histories())
def test_a_shard_map_draws_its_key_space_and_its_history(history: kst.ReshardHistory) -> None:
    page = shown(history.now)
    assert f"{len(history.now.open_shards)} open" in page.text
    assert "2^128-1" in page.text
    assert ("◀" in page.text) == (len(history.now.open_shards) < len(history.now))  # from its parents
    assert "AUTO" in shown(kpl.ShardMap(history.now.values(), "AUTO")).text
    assert "2^128-1" not in shown(Lineage(history.now.values())).text


@pytest.mark.parametrize("shard_id", ["shardId-000000000000", "<b>&"])
def test_a_record_is_a_line_for_each_field_with_something_in_it(shard_id: str) -> None:
    record = kpl.KinesisRecord(KEY, kpl.encode([kpl.UserRecord(KEY, SECRET)]), "7", shard_id)
    (user,) = kpl.deaggregate([record])
    for value in (record, user):
        title, *lines = shown(value).text.split("\n")
        title, lines = type(value).__name__, [title.removeprefix(type(value).__name__), *lines]
        assert {line.split()[0] for line in lines} >= {"partition_key", "data", "sequence_number", "shard_id"}
        assert shard_id in shown(value).text
        assert KEY not in shown(value).text


def test_hostile_keys_stay_text() -> None:
    key = "<script>alert(1)</script>\x1b[31m\u202e&"
    aggregate = kpl.decode(kpl.encode([kpl.UserRecord("<b>&", b"<i>"), kpl.UserRecord(key, b"<i>")]))
    assert "'<b>&'" in shown(aggregate).text
    assert "\u202e" not in shown(kpl.explain(kpl.encode(aggregate))).text


def test_a_validation_shows_the_page() -> None:
    report = clean_report()
    page = Page(Validation(report, Location("checked"))._repr_html_())
    assert page.elements == ["iframe"]
    attributes = {name: value for _, name, value in page.attributes}
    assert attributes["srcdoc"] == render_page(report)
    assert attributes["sandbox"] == "allow-scripts"  # of no origin: it reaches nothing of the notebook


@pytest.mark.parametrize(
    "record",
    [
        kpl.UserRecord(KEY, SECRET, 2**127, (kpl.Tag(KEY, "v" * 99),)),
        kpl.KinesisRecord(KEY, SECRET, "49" * 28, "shardId-1"),
        kpl.DeaggregatedRecord(KEY, SECRET, None, (), "1", 0, False, None, None),
    ],
    ids=lambda record: type(record).__name__,
)
def test_the_repr_of_a_record_is_short(record: tuple[object, ...]) -> None:
    text = repr(record)
    name = type(record).__name__
    assert text.startswith(f"{name}(partition_key='secret-k'... of 24, data=b'secret d'... of 25")
    assert len(text) < 260
    assert "secret-key" not in text
    assert "None" not in text


@given(st.text(max_size=12), st.binary(max_size=12))
def test_what_is_short_is_shown_whole(key: str, data: bytes) -> None:
    assert repr(kpl.UserRecord(key, data)) == f"UserRecord(partition_key={key!r}, data={data!r})"
