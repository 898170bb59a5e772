"""Laws of every page: its numbers are those of its facts, its policy allows its style, what is lost is drawn,
and no section is empty."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.audit import Ledger
from kpl_codec.audit.audit_run import audit
from kpl_codec.audit.judge import STATES
from kpl_codec.findings import KINDS, camel
from kpl_codec.findings.counters import Tally
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap
from kpl_codec.validate.report.page import report_page
from kpl_codec.validate.report.summary import steps, summary_text

from ...audit.model import table_of
from .examples import START, Page, Report, Stream, report_of


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


@pytest.mark.parametrize("name", ["full", "clean", "many", "empty"])
def test_every_number_on_a_page_is_one_of_its_summary(name: str, reports: dict[str, Report]) -> None:
    """In tiles, legends, tables of causes and shards, and the lines above evidence."""
    page, facts = report_page(*reports[name]), reports[name][0]
    known = {*numbers_of(facts), sum(kind["findings"] for kind in facts["kinds"])}
    known |= {sum(kind["findings"] for kind in facts["kinds"] if kind["name"].startswith("capture-"))}
    known |= {int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", facts["verdict"])}
    page = re.sub(
        r"<table(?=(?:(?!<table).)*?</details>).*?</table>|<svg.*?</svg>", "", page, flags=re.DOTALL
    )
    found = re.findall(r'<b>([\d,]+)[ <]|class="(?:number|share)"[^>]*>([\d,]+)<', page)
    found += re.findall(r"(?<!\.)(\b[\d,]+) (?:user record|finding|Kinesis record|aggregate)()", page)
    numbers = {int("".join(one).replace(",", "")) for one in found}
    assert len(numbers) > (1 if name == "empty" else 3)
    assert numbers <= known


def test_a_rate_of_a_few_seconds_is_not_said() -> None:
    def text(seconds: int) -> str:
        tally, shard_id = Tally(), "shardId-000000000000"
        first = int(START.timestamp())
        tally.records["kinesis"] = 1500
        tally.add("shards", shard_id, 1500, 0, first, first + seconds)
        tally.add("groups", (shard_id, shard_id, "expected", "delivered"), 1500, 15, "1")
        return summary_text(*report_of(tally, Stream().map))

    assert "a second" not in text(2)
    assert "15 a second" in text(99)


@pytest.mark.parametrize("name", ["full", "empty", "clean", "many", "hostile", "audit"])
def test_the_page_is_balanced_loads_nothing_and_who_hears_it_finds_its_parts(
    name: str, reports: dict[str, Report], audit_page: str
) -> None:
    """Also on the page of an audit, and with hostile texts. A style that is escaped has another hash than the
    policy, and the browser drops it without a word."""
    page = audit_page if name == "audit" else report_page(*reports[name])
    parsed = Page(page)
    found = {(tag, attribute) for tag, attribute, _ in parsed.attributes}
    assert not {attribute for _, attribute in found if attribute.startswith("on") or attribute == "style"}
    assert "script" not in parsed.elements
    assert not found & {("img", "src"), ("link", "rel=stylesheet"), ("form", "action")}
    assert {value for _, attribute, value in parsed.attributes if attribute in ("href", "src", "action")} <= {
        "data:,", "#counts", "#kcl", "#map", "#findings", "#shards",
    }  # fmt: skip
    policy = next(
        v for t, a, v in parsed.attributes if t == "meta" and a == "content" and v and "default-src" in v
    )
    digest = b64encode(sha256(parsed.inside["style"].encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "script" not in policy
    assert f"style-src 'sha256-{digest}'" in policy
    ids = [value for _, attribute, value in parsed.attributes if attribute == "id"]
    assert [one for one in ids if ids.count(one) > 1] == []
    assert {f"#{one}" for one in ids} >= {v for t, a, v in parsed.attributes if a == "href" and v != "data:,"}
    assert len(page) < 3_000_000
    for section in re.findall(r"<section.*?</section>", page, re.DOTALL):
        assert re.search(r"<(svg|table|dl|article|p|details)\b", section), section[:200]
    # Header, navigation, main and footer are there once; each section and article has its heading as its
    # name, and the chart, which scrolls, has one; a link of the navigation leads to each part.
    parts = ("header", "nav", "main", "footer", "h1")
    wrong = [tag for tag in parts if len(re.findall(f"<{tag}[ >]", page)) != 1]
    for tag, attributes in re.findall(r"<(section|article|nav|div)\b([^>]*)>", page):
        heading = re.search(r'aria-labelledby="([^"]+)"', attributes)
        named = re.search(r'aria-label="[^"]+"', attributes)
        if heading and not re.search(rf'<h[23] id="{re.escape(heading[1])}">\s*\S', page):
            wrong.append(heading[1])
        if not heading and not named and (tag != "div" or "tabindex" in attributes):
            wrong.append(tag + attributes)
    assert wrong == []
    links = re.findall(r'<a href="#([^"]+)"', page)
    assert sorted(links) == sorted(set(re.findall(r'<section id="([^"]+)"', page)) - {"method"})


def test_what_to_do_is_said_in_steps_that_are_all_of_it() -> None:
    wrong = [
        kind.name
        for kind in KINDS.values()
        if " ".join(steps(kind.todo)) != kind.todo or any(step.count("`") % 2 for step in steps(kind.todo))
    ]
    assert wrong == []
    assert len(steps(KINDS["naive-aggregator"].todo)) > 2


NUMBER = r'="([\d.]+)" '
RECT = re.compile(
    f"<rect x{NUMBER}y{NUMBER}width{NUMBER}height{NUMBER}"
    r'class="([\w-]+)"(?:/>|><title>(.*?)</title>)'
)


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 5400), st.integers(0, 50), st.integers(0, 50)),
        min_size=1,
        max_size=40,
    )
)
def test_every_loss_that_is_counted_can_be_seen_in_its_shard(
    cells: list[tuple[int, int, int, int]],
) -> None:
    """A cell of the picture is as long as its stretch of time, and no longer than its shard lived; losses are
    drawn over all other cells."""
    stream, tally = Stream(), Tally()
    for index, second, user_records, dropped in cells:
        shard_id, born = stream.shards[index].shard_id, stream.created[index]
        end = stream.closed[index] or START + timedelta(minutes=90)
        when = int((born + (end - born) * second / 5401).timestamp())
        tally.records["kinesis"] += 1
        tally.add("cells", (when, shard_id), user_records + dropped, 0, dropped)
        tally.add("shards", shard_id, 1, 1, when, when)
        for kcl, count in (("delivered", user_records), ("dropped", dropped)):
            tally.add("groups", (shard_id, shard_id, "stray", kcl), count, 0, "1")
    facts, shown = report_of(tally, stream.map)
    page = report_page(facts, shown)
    chart = page[page.index('id="map"') :].partition("</svg>")[0]
    rects = [(css, *map(float, box), tip) for *box, css, tip in RECT.findall(chart)]
    boxes = [(x, y, x + wide, y + high) for css, x, y, wide, high, _ in rects if css == "shard"]
    assert len(boxes) == len(stream.shards)
    losses = [one for one in rects if one[0] == "lost"]
    arrivals = facts["arrivals"]
    assert arrivals is not None
    assert len(losses) == sum(bool(cell[3]) for cell in arrivals["cells"])
    told = sum(int(re.findall(r"the KCL loses ([\d,]+)", str(tip))[0].replace(",", "")) for *_, tip in losses)
    assert told == facts["totals"]["lostAtKcl"]
    last_cell = max((at for at, one in enumerate(rects) if re.fullmatch(r"q\d", one[0])), default=0)
    assert all(at > last_cell for at, one in enumerate(rects) if one[0] == "lost")
    names = {str(shard["shardId"]): number for number, shard in enumerate(facts["shards"])}
    for css, x, y, wide, high, tip in rects:
        if re.fullmatch(r"q\d|lost", css):
            box = boxes[names[str(tip).partition(",")[0]]]
            assert wide > 1
            assert high > 1
            # Each of the four numbers is rounded to a hundredth.
            assert box[0] - 0.02 <= x <= x + wide <= box[2] + 0.02
            assert box[1] - 0.02 <= y <= y + high <= box[3] + 0.02


def test_losses_of_many_thin_shards_are_drawn() -> None:
    shards = [Shard(f"shardId-{i:012d}", held) for i, held in enumerate(ALL_HASH_KEYS.split(500))]
    tally = Tally()
    tally.add("cells", (1_700_000_000, shards[300].shard_id), 0, 0, 7)
    tally.add("cells", (1_700_000_060, shards[1].shard_id), 5, 50, 0)
    tally.add("groups", (shards[300].shard_id, None, "stray", "dropped"), 7, 70, "1")
    page = report_page(*report_of(tally, ShardMap(shards)))
    (loss,) = (one for one in RECT.findall(page) if one[4] == "lost" and "KCL loses" in one[5])
    assert float(loss[3]) >= 3
    assert "the KCL loses 7" in page
    assert 'class="q0"' in page
    assert ".q0" in page  # else it is black


@pytest.fixture(scope="module")
def audit_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of an audit of 5,000 user records on two shards, 5 of which are missing."""
    folder = tmp_path_factory.mktemp("audit")
    shards = [shard.shard_id for shard in Stream().shards[:2]]
    users = [kpl.UserRecord("key", b"%d" % n) for n in range(2500)]
    with closing(Ledger(str(folder / "ledger")).writer("orders")) as writer:
        for shard in shards:
            writer.put(shard, str(10**55), partition_key="key", data=kpl.encode(users))
    missing = {(shards[0], 7), (shards[0], 8), *((shards[1], n) for n in (1, 100, 1000))}
    handled = [(shard, str(10**55), n) for shard in shards for n in range(2500) if (shard, n) not in missing]
    (folder / "handled.parquet").write_bytes(table_of(handled))
    result = audit([str(folder / "ledger")], [str(folder / "handled.parquet")])
    assert result.audit.total("missing") == 5
    result.write(str(folder / "out"))
    page = (folder / "out/report.html").read_text()
    for sums in result.facts["shards"]:
        row = re.findall(rf">{sums['shardId']}</span></th>(.*?)</tr>", page, re.DOTALL)[0]
        cells = [int(cell.replace(",", "")) for cell in re.findall(r">([\d,]+)</td>", row)]
        assert cells == [sums[camel(name)] for name in ("delivered", *STATES)]
    return page


def test_the_page_of_an_audit_has_its_own_counts_and_table(audit_page: str) -> None:
    assert "shard map" not in audit_page
    assert "What a KCL consumer would lose" not in audit_page
    assert "User records are missing" in audit_page
    assert re.search(r"<dt>Missing</dt><dd><b>5</b>", audit_page)
