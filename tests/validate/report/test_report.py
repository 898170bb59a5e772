"""What the report says: the findings of the whole, the summary, and the page as text."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from datetime import timedelta

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

from .examples import HOSTILE, Page, Report, mixed_stream, report_of, scanned

FOUR = ShardMap(Shard(f"shardId-{i:012d}", held) for i, held in enumerate(ALL_HASH_KEYS.split(4)))


def kinds_of(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(finding.kind, []).append(finding)
    return found


# -- findings that only the whole can show ---------------------------------------------------------


@pytest.mark.requirement("PLC-3", "PLC-5", "KCL-4")
def test_a_naive_aggregator_is_found_by_name_and_reshards_are_not_taken_for_one() -> None:
    stream, batch = mixed_stream()
    tally, found = scanned(batch, stream.map)
    (naive,) = kinds_of(input_findings(tally, stream.map))["naive-aggregator"]
    mixed = [f for f in found if f.kind == "mixed-aggregate"]
    assert naive.aggregates == len(mixed) > 50
    assert naive.user_records == sum(f.user_records or 0 for f in mixed)
    assert naive.severity == "critical"
    assert "Records are lost" in report_page(*report_of(tally, stream.map))

    # The KPL around a split: all of an aggregate was meant for the shard that was just split.
    split = []
    low, high = (stream.shards[i].hash_key_range for i in (4, 5))
    keys = [f"k{i}" for i in range(400)]
    in_low = [k for k in keys if kpl.effective_hash_key(k) in low]
    in_high = [k for k in keys if kpl.effective_hash_key(k) in high]
    for index in range(5):
        data = kpl.encode([kpl.UserRecord(in_low[index], b""), kpl.UserRecord(in_high[index], b"")])
        at = stream.split_at + timedelta(seconds=index)
        split.append(stream.record(data, in_low[index], kpl.effective_hash_key(in_low[index]), at, index))
    tally, found = scanned(batch.from_pylist(split, schema=batch.schema), stream.map)
    assert {f.cause for f in found} == {"reshard"}
    assert len(found) == 5
    report = report_of(tally, stream.map)
    assert report[0]["totals"]["lostAtKcl"] == 10
    assert "All of them were in flight during a split or merge" in " ".join(summary_text(*report).split())
    assert "Records may be lost" in report_page(*report)
    assert "naive-aggregator" not in kinds_of(input_findings(tally, stream.map))


@pytest.mark.requirement("PLC-2", "PLC-4", "SHD-4")
def test_verdicts_on_whole_shards_become_one_finding_each() -> None:
    tally = Tally()
    tally.records["kinesis"] = 20
    tally.add(
        "groups", ("shardId-000000000000", "shardId-000000000001", "on-parent", "delivered"), 7, 70, "12"
    )
    tally.add(
        "groups", ("shardId-000000000000", "shardId-000000000002", "on-parent", "delivered"), 3, 30, "11"
    )
    tally.add("groups", ("shardId-99", None, "unknown-shard", "delivered"), 4, 40, "13")
    tally.add("groups", (None, None, "unknown-shard", "delivered"), 1, 10, "14")
    tally.add("groups", ("shardId-000000000003", None, "unknown-shard", "delivered"), 5, 50, "15")
    found = kinds_of(input_findings(tally, FOUR))
    (parent,) = found["on-parent"]
    assert (parent.user_records, parent.sequence_number, parent.shard_id) == (
        10,
        "11",
        "shardId-000000000000",
    )
    # shard 3 is in the map: there it is the key that is unknown, and a defect says why
    assert [(f.shard_id, f.user_records) for f in found["unknown-shard"]] == [(None, 1), ("shardId-99", 4)]


@pytest.mark.requirement("HKA-8")
def test_skew_is_a_finding_only_when_there_is_enough_to_tell() -> None:
    def found(counts: list[int]) -> tuple[list[str | None], float | None]:
        tally = Tally()
        tally.records["kinesis"] = sum(counts)
        for shard_id, count in zip(FOUR, counts, strict=True):
            tally.add("groups", (shard_id, shard_id, "expected", "delivered"), count, 0, "1")
        skewed = kinds_of(input_findings(tally, FOUR)).get("skewed-shard", [])
        return [f.shard_id for f in skewed], report_of(tally, FOUR)[0]["skew"]

    assert found([1000, 100, 100, 100]) == (["shardId-000000000000"], pytest.approx(1000 / 325))
    assert found([10, 1, 1, 1]) == ([], pytest.approx(10 / 3.25))
    assert found([100, 100, 100, 100]) == ([], 1.0)
    assert found([0, 0, 0, 0]) == ([], None)
    # a capture of one shard says nothing of the others
    assert found([1000, 0, 0, 0]) == ([], None)


@pytest.mark.requirement("HKA-8")
def test_the_fullest_shard_is_the_one_with_most_on_it_not_the_one_that_gets_most_from_now_on() -> None:
    tally = Tally()
    tally.records["kinesis"] = 1000
    first, second = list(FOUR)[:2]
    for lies_on, belongs_to, count in ((first, first, 300), (first, second, 500), (second, second, 200)):
        tally.add("groups", (lies_on, belongs_to, "expected", "delivered"), count, 0, "1")
    assert report_of(tally, FOUR)[0]["skew"] == pytest.approx(800 / 500)


@pytest.mark.requirement("PLC-1", "SHD-5")
def test_an_auto_stream_and_an_expired_parent_are_told() -> None:
    tally = Tally()
    tally.records["kinesis"] = 1
    tally.add("groups", ("a", None, "distribution-auto", "dropped"), 2, 0, "1")
    listed = [Shard("a", ALL_HASH_KEYS, parent_shard_id="gone")]
    found = kinds_of(input_findings(tally, ShardMap(listed, distribution="AUTO")))
    assert found["distribution-auto"][0].dropped == 2
    assert found["unknown-parent"][0].detail == "parent gone is not listed"


@pytest.mark.requirement("SPK-21")
def test_nothing_read_is_not_clean(reports: dict[str, Report]) -> None:
    report = reports["empty"]
    assert not report[0]["clean"]
    assert [kind["name"] for kind in report[0]["kinds"]] == ["no-records"]
    assert "Nothing was read" in report_page(*report)
    assert "nothing is known" in summary_text(*report)


# -- the summary -----------------------------------------------------------------------------------


def test_the_summary_names_numbers_kinds_and_what_to_do(reports: dict[str, Report]) -> None:
    report = reports["full"]
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


def test_what_is_folded_in_the_summary_stays_in_its_column(reports: dict[str, Report]) -> None:
    lines = render(*summary(*reports["full"]), width=70).splitlines()
    first = next(at for at, row in enumerate(lines) if row.startswith("Kinesis records"))
    rows = lines[first : lines.index("", first)]
    assert any(row.startswith(" " * 38) for row in rows)
    assert all(re.match(r"[A-Z ]{1,3}[a-zA-Z ]+ +[\d,]+(  |$)| {38}\S", row) for row in rows)


def test_the_summary_of_a_clean_stream_is_short_and_says_so(reports: dict[str, Report]) -> None:
    text = summary_text(*reports["clean"])
    assert reports["clean"][0]["clean"]
    assert "Clean: every record can be read, lies where it belongs" in text
    assert len(text.splitlines()) < 25


def test_hostile_texts_do_not_reach_the_terminal(reports: dict[str, Report]) -> None:
    text = summary_text(*reports["hostile"])
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", text)
    text.encode()


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [(0, 0, "0 %"), (0, 5, "0 %"), (5, 5, "100 %"), (1, 10**6, "< 0.1 %"), (10**6 - 1, 10**6, "> 99.9 %"),
     (1, 3, "33.3 %")],
)  # fmt: skip
def test_shares_never_round_to_none_or_all(part: int, whole: int, shown: str) -> None:
    assert percent(part, whole) == shown


def test_sizes() -> None:
    assert [size(n) for n in (0, 1023, 1024, 10 * 2**20, 3 * 2**40)] == [
        "0 B", "1,023 B", "1.0 KiB", "10.0 MiB", "3.0 TiB",
    ]  # fmt: skip


# -- the page as text ------------------------------------------------------------------------------


def test_drawings_escape_whatever_is_not_svg() -> None:
    for text in HOSTILE:
        made = element("td", {"title": text}, text)
        assert [(t, a) for t, a, _ in Page(made).attributes] == [("td", "title")]
    assert join("a<b", element("g", {"x": None}), None, ["&"]) == "a&lt;b<g/>&amp;"


def test_the_report_says_when_it_has_no_map() -> None:
    read = Tally()
    read.records["kinesis"] = 1
    assert "there is no shard map" in summary_text(*report_of(read, None))


def test_a_huge_map_and_long_names_stay_within_bounds() -> None:
    shards = [Shard(f"shardId-{i:012d}", held) for i, held in enumerate(ALL_HASH_KEYS.split(3000))]
    tally = Tally()
    tally.records["kinesis"] = 3000
    for index, shard in enumerate(shards):
        tally.add("groups", (shard.shard_id, shard.shard_id, "expected", "delivered"), 1, 1, "1")
        tally.add("cells", (1_700_000_000 + index * 60, shard.shard_id), 1, 1, 0)
        tally.add("shards", shard.shard_id, 0, 0, 1_700_000_000 + index, 1_700_000_000 + index)
    report = report_of(tally, ShardMap(shards), inputs=[f"file-{i}" for i in range(500)])
    assert len(report[0]["shards"]) == 200
    assert report[0]["omitted"] == {"shards": 2800, "inputs": 450}
    page = report_page(*report)
    assert "2,800 more shards left out" in page
    assert len(page) < 4_000_000


def test_the_report_loads_neither_pyarrow_nor_spark() -> None:
    code = (
        "import sys, kpl_codec.validate.report\n"
        "print(sorted({'pyarrow', 'pyspark', 'numpy', 'rich', 'jinja2', 'boto3'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"
