"""What the report says: the findings of the whole, the summary, and the page as text."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa
import pytest

import kpl_codec as kpl
from kpl_codec.findings import KINDS, Finding
from kpl_codec.findings.counters import Tally
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.rendering.labels import percent, size
from kpl_codec.rendering.svg import element, join
from kpl_codec.rendering.terminal import render
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap
from kpl_codec.validate.report.facts import input_findings
from kpl_codec.validate.report.page import report_page
from kpl_codec.validate.report.summary import steps, summary, summary_text

from .examples import (
    EXAMPLES,
    HOSTILE,
    INPUT_SCHEMA,
    SPLIT_AT,
    Page,
    Stream,
    mixed_stream,
    report_of,
    scanned,
)

FOUR = ShardMap(Shard(f"shardId-{i:012d}", held) for i, held in enumerate(ALL_HASH_KEYS.split(4)))


def of_kind(kind: str, findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.kind == kind]


# -- findings that only the whole can show ---------------------------------------------------------


@pytest.mark.requirement("PLC-3", "PLC-5", "KCL-4")
def test_a_naive_aggregator_is_found_by_name_and_reshards_are_not_taken_for_one() -> None:
    shard_map, batch = mixed_stream()
    tally, found = scanned(batch, shard_map)
    (naive,) = of_kind("naive-aggregator", input_findings(tally, shard_map))
    mixed = of_kind("mixed-aggregate", found)
    assert naive.aggregates == len(mixed) > 50
    assert naive.user_records == sum(f.user_records or 0 for f in mixed)
    assert naive.severity == "critical"
    assert "Records are lost" in report_page(*report_of(tally, shard_map))

    # The KPL around a split: all of an aggregate was meant for the shard that was just split.
    stream, split = Stream(until=SPLIT_AT), []
    low, high = (stream.shards[i].hash_key_range for i in (4, 5))
    keys = [f"k{i}" for i in range(400)]
    in_low = [k for k in keys if kpl.effective_hash_key(k) in low]
    in_high = [k for k in keys if kpl.effective_hash_key(k) in high]
    for index in range(5):
        data = kpl.encode([kpl.UserRecord(in_low[index], b""), kpl.UserRecord(in_high[index], b"")])
        split.append(stream.record(data, in_low[index], index))
    tally, found = scanned(pa.RecordBatch.from_pylist(split, schema=INPUT_SCHEMA), shard_map)
    assert [f.cause for f in found] == ["reshard"] * 5
    report = report_of(tally, shard_map)
    assert report[0]["totals"]["lostAtKcl"] == 10
    assert "All of them were in flight during a split or merge" in " ".join(summary_text(*report).split())
    assert "Records may be lost" in report_page(*report)
    assert of_kind("naive-aggregator", input_findings(tally, shard_map)) == []


@pytest.mark.requirement("PLC-2", "PLC-4", "SHD-4")
def test_verdicts_on_whole_shards_become_one_finding_each() -> None:
    tally = Tally()
    tally.records["kinesis"] = 20
    first, second, third, last = FOUR
    for shard, expected, verdict, count, number in (
        (first, second, "on-parent", 7, "12"),
        (first, third, "on-parent", 3, "11"),
        ("shardId-99", None, "unknown-shard", 4, "13"),
        (None, None, "unknown-shard", 1, "14"),
        (last, None, "unknown-shard", 5, "15"),
    ):
        tally.add("groups", (shard, expected, verdict, "delivered"), count, 10 * count, number)
    found = list(input_findings(tally, FOUR))
    (parent,) = of_kind("on-parent", found)
    assert (parent.user_records, parent.sequence_number, parent.shard_id) == (10, "11", first)
    # The last shard is in the map: there it is the key that is unknown, and a defect says why.
    unknown = [(one.shard_id, one.user_records) for one in of_kind("unknown-shard", found)]
    assert unknown == [(None, 1), ("shardId-99", 4)]


@pytest.mark.requirement("HKA-8")
def test_skew_is_a_finding_by_where_keys_belong_and_a_figure_by_where_records_lie() -> None:
    """What is enough for a finding: tests/shards/test_skew.py."""
    first, second, third, last = FOUR

    def found(*loads: tuple[str, str, int]) -> tuple[list[str | None], float | None]:
        tally = Tally()
        for lies_on, belongs_to, count in loads:
            tally.records["kinesis"] += count
            tally.add("groups", (lies_on, belongs_to, "expected", "delivered"), count, 0, "1")
        skewed = of_kind("skewed-shard", input_findings(tally, FOUR))
        return [finding.shard_id for finding in skewed], report_of(tally, FOUR)[0]["skew"]

    others = [(shard, shard, 100) for shard in (second, third, last)]
    assert found((first, first, 1000), *others) == ([first], pytest.approx(1000 / 325))
    assert found((first, first, 100), *others) == ([], 1.0)
    assert found((first, first, 300), (first, second, 500), (second, second, 200))[1] == pytest.approx(1.6)
    assert found((first, second, 1000), *others)[0] == [second]
    # A capture of one shard says nothing of the others.
    assert found((first, first, 1000)) == found((first, first, 0)) == ([], None)


@pytest.mark.requirement("PLC-1", "SHD-5")
def test_an_auto_stream_and_an_expired_parent_are_told() -> None:
    tally = Tally()
    tally.add("groups", ("a", None, "distribution-auto", "dropped"), 2, 0, "1")
    listed = [Shard("a", ALL_HASH_KEYS, parent_shard_id="gone")]
    found = list(input_findings(tally, ShardMap(listed, distribution="AUTO")))
    assert [one.dropped for one in of_kind("distribution-auto", found)] == [2]
    assert [one.detail for one in of_kind("unknown-parent", found)] == ["parent gone is not listed"]


# -- the summary -----------------------------------------------------------------------------------


def test_the_summary_names_numbers_kinds_and_what_to_do() -> None:
    report = EXAMPLES["full"]()
    text = summary_text(*report)
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text
    facts = report[0]
    totals = facts["totals"]
    for label, value in (
        ("Kinesis records", totals["kinesisRecords"]),
        ("User records", totals["userRecords"]),
        ("misplaced", totals["misplaced"]),
        ("Mixed aggregates", totals["mixedAggregates"]),
        ("Lost at the KCL", totals["lostAtKcl"]),
        ("broken frames", totals["brokenFrames"]),
    ):
        assert re.search(rf"^ *{label} +{value:,}\b", text, re.MULTILINE), label
    for kind in facts["kinds"]:
        assert f"{kind['name']}: {kind['title']}" in text
    for shard in facts["shards"]:
        assert shard["shardId"] in text
    flat = " ".join(text.split())
    assert all(f"{n}. {one}" in flat for n, one in enumerate(steps(KINDS["naive-aggregator"].todo), 1))
    for count in facts["causes"]:
        assert f"{count['userRecords']:,} user record" in text
    colored = render(*summary(*report), color=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == text != colored


@pytest.mark.requirement("SPK-21")
def test_the_summary_of_a_clean_stream_and_of_none() -> None:
    facts, shown = EXAMPLES["clean"]()
    text = summary_text(facts, shown)
    assert facts["clean"]
    assert "Clean: every record can be read, lies where it belongs" in text
    assert len(text.splitlines()) < 30
    nothing, shown = EXAMPLES["empty"]()
    assert not nothing["clean"]
    assert [kind["name"] for kind in nothing["kinds"]] == ["no-records"]
    assert "Nothing was read" in report_page(nothing, shown)
    assert "nothing is known" in summary_text(nothing, shown)


def test_hostile_texts_do_not_reach_the_terminal() -> None:
    text = summary_text(*EXAMPLES["hostile"]())
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", text)
    text.encode()


def test_without_a_shard_map_the_summary_says_so_and_a_rate_only_of_many_seconds() -> None:
    for seconds, rates in ((2, []), (99, ["15 a second"])):
        tally = Tally()
        tally.records["kinesis"] = 1500
        tally.add("shards", "shardId-000000000000", 1500, 0, 1_700_000_000, 1_700_000_000 + seconds)
        text = summary_text(*report_of(tally, None))
        assert "there is no shard map" in text
        assert re.findall(r"[\d,.]+ a second", text) == rates


def test_shares_never_round_to_none_or_all() -> None:
    shares = [(0, 0), (0, 5), (5, 5), (1, 10**6), (10**6 - 1, 10**6), (1, 3)]
    assert [percent(*one) for one in shares] == ["0 %", "0 %", "100 %", "< 0.1 %", "> 99.9 %", "33.3 %"]


def test_sizes_have_units() -> None:
    sizes = ["0 B", "1,023 B", "1.0 KiB", "10.0 MiB", "3.0 TiB"]
    assert [size(n) for n in (0, 1023, 1024, 10 * 2**20, 3 * 2**40)] == sizes


# -- the page as text ------------------------------------------------------------------------------


def test_drawings_escape_whatever_is_not_svg() -> None:
    for text in HOSTILE:
        made = element("td", {"title": text}, text)
        assert [(t, a) for t, a, _ in Page(made).attributes] == [("td", "title")]
    assert join("a<b", element("g", {"x": None}), None, ["&"]) == "a&lt;b<g/>&amp;"


def test_what_is_left_out_of_a_page_is_counted() -> None:
    facts, shown = EXAMPLES["many"]()
    assert len(facts["shards"]) == 200
    findings = sum(kind["findings"] for kind in facts["kinds"]) - len(shown)
    assert facts["omitted"] == {"findings": findings, "shards": 800, "inputs": 450}
    assert "800 more shards left out" in report_page(facts, shown)
