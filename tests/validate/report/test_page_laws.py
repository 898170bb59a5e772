"""Laws of every page: its numbers are those of its summary, the words that it explains are on it, and no
section is empty."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.audit import Ledger
from kpl_codec.audit.audit_run import audit
from kpl_codec.findings import camel
from kpl_codec.findings.counters import Tally
from kpl_codec.validate.report.model import AuditShard, Report
from kpl_codec.validate.report.report_page import render_page
from kpl_codec.validate.report.summary import report_facts, summary_text

from .examples import START, Stream, report_of


def numbers_of(value: Any) -> Iterator[float]:
    """Every number of a summary."""
    if isinstance(value, dict):
        for one in value.values():
            yield from numbers_of(one)
    elif isinstance(value, list):
        for one in value:
            yield from numbers_of(one)
    elif isinstance(value, (int, float)):
        yield value


@pytest.mark.parametrize("name", ["full", "clean", "large", "empty"])
def test_every_number_on_a_page_is_one_of_its_summary(name: str, reports: dict[str, Report]) -> None:
    """In tiles, legends, tables of causes and shards, and the lines above evidence."""
    page, facts = render_page(reports[name]), report_facts(reports[name])
    known = {*numbers_of(facts), sum(kind["findings"] for kind in facts["kinds"])}
    known |= {sum(kind["findings"] for kind in facts["kinds"] if kind["name"].startswith("capture-"))}
    known |= {int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", facts["verdict"])}
    page = re.sub(r'<table class="cards evidence.*?</table>|<svg.*?</svg>', "", page, flags=re.DOTALL)
    found = re.findall(r'<b>([\d,]+)[ <]|class="(?:number|share)"[^>]*>([\d,]+)<', page)
    found += re.findall(r"(?<!\.)(\b[\d,]+) (?:user record|finding|Kinesis record|aggregate)()", page)
    numbers = {int("".join(one).replace(",", "")) for one in found}
    assert len(numbers) > (1 if name == "empty" else 3)
    assert numbers <= known


def test_a_rate_of_a_few_seconds_is_not_said_and_has_no_section() -> None:
    tally, shard_map = Tally(), Stream().map
    first = int(START.timestamp())
    for second in range(3):
        tally.add("cells", (first + second, "shardId-000000000000"), 500, 5, 0)
        tally.records["kinesis"] += 500
    tally.add("shards", "shardId-000000000000", 1500, 0, first, first + 2)
    tally.add("groups", ("shardId-000000000000",) * 2 + ("expected", "delivered"), 1500, 15, "1")
    short = report_of(tally, shard_map)
    assert "a second" not in render_page(short)
    assert "a second" not in summary_text(short)
    long = replace(short, last_arrival=START + timedelta(seconds=99))
    assert "15 a second" in summary_text(long)


@pytest.mark.parametrize("name", ["full", "clean", "empty", "many", "audit"])
def test_words_that_a_page_explains_are_on_it_and_its_sections_are_full(
    name: str, reports: dict[str, Report], tmp_path: Path
) -> None:
    page = audited(tmp_path) if name == "audit" else render_page(reports[name])
    about = page.index('<section id="method"')
    words = re.findall(r"<dt>([^<]*)</dt>", page[about:])
    assert words
    for word in words:
        if word not in ("Times of shards", "Examples"):
            assert word.lower() in page[:about].lower(), word
    for section in re.findall(r"<section.*?</section>", page, re.DOTALL):
        assert re.search(r"<(svg|table|dl|article|p)\b", section), section[:200]


def audited(folder: Path) -> str:
    """The page of an audit of 5,000 user records on two shards, 5 of which are missing."""
    shards = [shard.shard_id for shard in Stream().shards[:2]]
    users = [kpl.UserRecord("key", b"%d" % n) for n in range(2500)]
    with closing(Ledger(str(folder / "ledger")).writer("orders")) as writer:
        for shard in shards:
            writer.put(shard, str(10**55), "key", kpl.encode(users))
    handled = ["shardId,sequenceNumber,subSequenceNumber"]
    missing = {(shards[0], 7), (shards[0], 8), *((shards[1], n) for n in (1, 100, 1000))}
    handled += [f"{shard},{10**55},{n}" for shard in shards for n in range(2500) if (shard, n) not in missing]
    (folder / "handled.csv").write_text("\n".join(handled) + "\n")
    result = audit([str(folder / "ledger")], [str(folder / "handled.csv")])
    assert result.audit.total("missing") == 5
    result.write(str(folder / "out"))
    page = (folder / "out/report.html").read_text()
    for sums in result.facts["shards"]:
        row = re.findall(rf">{sums['shardId']}</th>(.*?)</tr>", page, re.DOTALL)[0]
        cells = [int(cell.replace(",", "")) for cell in re.findall(r">([\d,]+)</td>", row)]
        assert cells == [sums[camel(name)] for name in AuditShard._fields[1:]]
    return page


def test_the_page_of_an_audit_has_the_table_and_says_what_is_drawn_larger(tmp_path: Path) -> None:
    page = audited(tmp_path)
    assert "shard map" not in page
    assert "drawn as a tenth of the row" in " ".join(page.split())
    drawn = re.findall(r"<rect[^>]*lost[^>]*>", page[page.index('<section id="audit') :])
    highs = [float(re.findall(r'height="([\d.]+)"', one)[0]) for one in drawn if "16 16" not in one]
    assert min(highs) > 0
    assert sorted(highs)[-2] <= 2, "the largest is that of the legend"
