"""Laws of every page: its numbers are those of its facts, its policy allows its style, what is lost is drawn,
and no section is empty."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.audit.audit_run import audit_files
from kpl_codec.audit.judge import STATES
from kpl_codec.findings import KINDS, camel
from kpl_codec.findings.counters import Tally
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap
from kpl_codec.validate.report.page import report_page
from kpl_codec.validate.report.summary import steps

from ...audit.model import account, ledger_of, rows_of, table_of
from ...every import every
from ...shards.model import BEGIN
from .examples import END, EXAMPLES, Page, Stream, report_of


@every("name", ["full", "clean", "many", "empty"])
def test_every_number_on_a_page_is_one_of_its_summary(name: str) -> None:
    """In tiles, legends, tables of causes and shards, and the lines above evidence."""
    facts, shown = EXAMPLES[name]()
    page = report_page(facts, shown)
    of_summary: list[str] = []
    json.loads(json.dumps(facts), parse_int=of_summary.append)
    known = {*map(int, of_summary), sum(kind["findings"] for kind in facts["kinds"])}
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


@every("name", [*EXAMPLES, "audit"])
def test_the_page_is_balanced_loads_nothing_and_who_hears_it_finds_its_parts(
    name: str, audit_page: str
) -> None:
    """Also on the page of an audit, and with hostile texts. A style that is escaped has another hash than the
    policy, and the browser drops it without a word."""
    page = audit_page if name == "audit" else report_page(*EXAMPLES[name]())
    parsed = Page(page)
    found = {(tag, attribute) for tag, attribute, _ in parsed.attributes}
    assert not {attribute for _, attribute in found if attribute.startswith("on") or attribute == "style"}
    assert "<script" not in page
    assert not found & {("img", "src"), ("link", "rel=stylesheet"), ("form", "action")}
    assert {value for _, attribute, value in parsed.attributes if attribute in ("href", "src", "action")} <= {
        "data:,", "#counts", "#kcl", "#map", "#findings", "#shards",
    }  # fmt: skip
    policy = next(
        v for t, a, v in parsed.attributes if t == "meta" and a == "content" and v and "default-src" in v
    )
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = b64encode(sha256(style.encode()).digest()).decode()
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
    shard_map, tally = ShardMap(Stream().shards), Tally()
    for index, second, user_records, dropped in cells:
        shard_id = f"shardId-{index:012d}"
        born = shard_map.created(shard_id) or BEGIN
        end = shard_map.closed_at(shard_id) or BEGIN + timedelta(seconds=END)
        when = int((born + (end - born) * second / 5401).timestamp())
        tally.records["kinesis"] += 1
        tally.add("cells", (when, shard_id), user_records + dropped, 0, dropped)
        tally.add("shards", shard_id, 1, 1, when, when)
        for kcl, count in (("delivered", user_records), ("dropped", dropped)):
            tally.add("groups", (shard_id, shard_id, "stray", kcl), count, 0, "1")
    facts, shown = report_of(tally, shard_map)
    page = report_page(facts, shown)
    chart = page[page.index('id="map"') :].partition("</svg>")[0]
    rects = [(css, *map(float, box), tip) for *box, css, tip in RECT.findall(chart)]
    boxes = [(x, y, x + wide, y + high) for css, x, y, wide, high, _ in rects if css == "shard"]
    assert len(boxes) == len(shard_map)
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
    """The page of an audit of two shards, with a missing user record on each."""
    out: Path = tmp_path_factory.mktemp("audit") / "out"
    shards = [f"shardId-{index:012d}" for index in range(2)]
    put = [row for shard in shards for row in rows_of("delivered", "7", "8", "9", shard_id=shard)]
    handled = table_of([(shard, number, 0) for shard in shards for number in "79"])
    result = audit_files(
        account("produced", {"put": ledger_of("produced", put)}), account("handled", {"handled": handled})
    )
    result.write(str(out))
    page = (out / "report.html").read_text()
    for sums in result.facts["shards"]:
        row = re.findall(rf">{sums['shardId']}</span></th>(.*?)</tr>", page, re.DOTALL)[0]
        cells = [int(cell) for cell in re.findall(r">(\d+)</td>", row)]
        assert cells == [sums[camel(name)] for name in ("delivered", *STATES)]
    return page


def test_the_page_of_an_audit_has_its_own_counts_and_table(audit_page: str) -> None:
    assert "shard map" not in audit_page
    assert "What a KCL consumer would lose" not in audit_page
    assert "User records are missing" in audit_page
    assert re.search(r"<dt>Missing</dt><dd><b>2</b>", audit_page)
