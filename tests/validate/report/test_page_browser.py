"""The page in a real browser: it renders, nothing is loaded or run but itself, filters work, a keyboard
is enough, it fits a phone, and it can be read in light, dark, print, and without a script."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any

import pytest
from selenium.webdriver import Keys

from kpl_codec.validate.report.model import Report

from .browser import Browser, Page
from .conftest import EXAMPLES
from .examples import HOSTILE

pytestmark = pytest.mark.slow

VISIBLE_ROWS = """[...document.querySelectorAll("article.kind")].filter(a => !a.hidden).flatMap(
    a => [...a.querySelectorAll("tbody tr")].filter(r => !r.hidden)
        .map(r => [a.dataset.kind, r.dataset.shard]))"""


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("width", [1280, 360])
def test_every_page_renders_asks_for_nothing_and_never_overflows(
    name: str, width: int, browser: Browser, pages: dict[str, str], reports: dict[str, Report]
) -> None:
    with browser.page(pages[name], width=width) as page:
        assert page.requests == [pages[name]]
        assert page.complaints == []
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width == 360 or name != "hostile":  # whose names are longer than any page is wide
            assert page.evaluate(
                "[...document.querySelectorAll('.scroll')].every(s => s.scrollWidth <= s.clientWidth)"
            )
        assert page.evaluate("document.querySelector('main').getBoundingClientRect().height") > 300
        # Nothing sticks out of the window but what scrolls in a box of its own.
        outside = page.evaluate(
            """[...document.querySelectorAll("body *")]
                .filter(e => !e.closest(".chart, .scroll, nav, .skip, svg") && e.getClientRects().length)
                .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
                .map(e => e.tagName + "." + e.className)"""
        )
        assert outside == []
        # No option of a command, no name of a finding, and no parent of a shard is cut in two at a hyphen.
        cut = page.evaluate(
            """[...document.querySelectorAll("p code, .kind-name, [data-label=State]")].flatMap(e => {
                const found = [], walk = document.createTreeWalker(e, NodeFilter.SHOW_TEXT);
                while (walk.nextNode()) {
                    for (const word of walk.currentNode.data.matchAll(/[^ ]*-[^ ]+/g)) {
                        const range = document.createRange();
                        range.setStart(walk.currentNode, word.index);
                        range.setEnd(walk.currentNode, word.index + word[0].length);
                        const tops = [...range.getClientRects()].map(box => box.top);
                        if (new Set(tops).size > 1) found.push(word[0]);
                    }
                }
                return found;
            })"""
        )
        assert cut == [] or name == "hostile"
        rows = page.evaluate("document.querySelectorAll('article.kind tbody tr').length")
        assert rows == len(reports[name].findings)


# -- filters ---------------------------------------------------------------------------------------


def visible(page: Page) -> list[list[Any]]:
    rows: list[list[Any]] = page.evaluate(VISIBLE_ROWS)
    return rows


def choose(page: Page, name: str, value: str) -> None:
    page.evaluate(
        f"""(() => {{ const s = document.getElementById("filter-{name}"); s.value = {json.dumps(value)};
            s.dispatchEvent(new Event("input", {{bubbles: true}})); }})()"""
    )


def test_filters_by_severity_kind_shard_and_text_show_exactly_what_matches(
    browser: Browser, pages: dict[str, str], reports: dict[str, Report]
) -> None:
    findings = reports["full"].findings
    with browser.page(pages["full"]) as page:
        status = "document.getElementById('shown').textContent"
        everything = visible(page)
        assert page.evaluate(status) == f"All {len(findings)} findings on this page"
        # 87 findings of one kind: the first 50 are shown, the rest on demand
        assert len(everything) == len(findings) - (87 - 50)

        page.click("input[value=critical]")
        expected = [f for f in findings if f.severity != "critical"]
        assert sorted(kind for kind, _ in visible(page)) == sorted(f.kind for f in expected)
        assert page.evaluate(status) == f"{len(expected)} of {len(findings)} findings match"
        page.click("input[value=critical]")

        choose(page, "kind", "missing-field")
        assert {kind for kind, _ in visible(page)} == {"missing-field"}
        assert len(visible(page)) == sum(f.kind == "missing-field" for f in findings)
        choose(page, "kind", "")

        shard = "shardId-000000000003"
        choose(page, "shard", shard)
        expected = [f for f in findings if f.shard_id == shard]
        assert len(expected) > 3
        assert sorted(visible(page)) == sorted([f.kind, f.shard_id] for f in expected)
        # what matches can be seen without unfolding it by hand
        assert page.evaluate(
            "[...document.querySelectorAll('article.kind:not([hidden]) details')].every(d => d.open)"
        )
        choose(page, "shard", "")

        one = next(f for f in findings if f.kind == "truncated")
        page.evaluate("document.getElementById('filter-text').focus()")
        page.press(f"{(one.sequence_number or '').upper()} Truncated")
        assert visible(page) == [["truncated", one.shard_id]]
        page.press(" nothing has this word")
        assert visible(page) == []
        assert not page.evaluate("document.getElementById('no-match').hidden")

        page.click("#filter-reset")
        page.evaluate("new Promise(done => setTimeout(done, 20))")
        assert visible(page) == everything
        assert page.evaluate("document.getElementById('no-match').hidden")
        assert page.complaints == []


def test_thousands_of_findings_are_bounded_and_say_what_is_left_out(
    browser: Browser, pages: dict[str, str], reports: dict[str, Report]
) -> None:
    report = reports["many"]
    total = sum(count.findings for count in report.kinds)
    assert total > 60_000
    assert len(report.findings) <= 3000
    assert len(report.findings) + report.omitted["findings"] == total
    with browser.page(pages["many"]) as page:
        said = page.evaluate("document.querySelector('#findings > p').textContent")
        assert f"{report.omitted['findings']:,} more" in said
        counted = page.evaluate(
            "document.querySelector('article[data-kind=mixed-aggregate] summary').textContent"
        )
        shown = sum(f.kind == "mixed-aggregate" for f in report.findings)
        assert counted == f"2,000 findings, 2,000 user records ({shown} shown)"
        choose(page, "kind", "mixed-aggregate")
        assert len(visible(page)) == 50
        page.evaluate("document.querySelector('article[data-kind=mixed-aggregate] details').open = true")
        page.click("article[data-kind=mixed-aggregate] .more")
        assert len(visible(page)) == min(shown, 200)
        assert page.complaints == []


# -- tables ----------------------------------------------------------------------------------------

SHARDS = """[...document.querySelectorAll("#shards tbody tr")].filter(r => !r.hidden)
    .map(r => r.querySelector("th").textContent)"""


def test_a_table_of_five_hundred_shards_is_sorted_and_searched(
    browser: Browser, pages: dict[str, str], reports: dict[str, Report]
) -> None:
    shards = list(reports["large"].shards)
    with browser.page(pages["large"]) as page:
        worst = sorted(shards, key=lambda s: (-s.dropped, -s.misplaced, -s.user_records))
        assert page.evaluate(SHARDS) == [shard.shard_id for shard in worst[:50]]
        page.click("#shards thead th:nth-child(5) button")  # user records, most first
        most = max(shard.user_records for shard in shards)
        assert page.evaluate(SHARDS)[0] == next(s.shard_id for s in shards if s.user_records == most)
        assert page.evaluate("document.querySelector('#shards [aria-sort=descending]').textContent") == (
            "User records"
        )
        page.click("#shards thead th:nth-child(5) button")
        least = min(shard.user_records for shard in shards)
        assert page.evaluate(SHARDS)[0] in {s.shard_id for s in shards if s.user_records == least}
        page.click("#shards .search")
        page.press("000000000123 open")
        assert page.evaluate(SHARDS) == ["shardId-000000000123"]
        assert page.evaluate("document.querySelector('#shards .count').textContent") == "1 of 500 match"
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate(SHARDS) == ["shardId-000000000123"]
        assert page.complaints == []


def test_a_phone_has_no_headings_to_click_but_a_choice(browser: Browser, pages: dict[str, str]) -> None:
    with browser.page(pages["large"], width=360) as page:
        page.evaluate(
            """(() => { const s = document.querySelector("#shards .sort"); s.value = "0";
                s.dispatchEvent(new Event("input", {bubbles: true})); })()"""
        )
        assert page.evaluate(SHARDS)[:2] == ["shardId-000000000000", "shardId-000000000001"]
        page.click("#shards .more")
        assert len(page.evaluate(SHARDS)) == 200


@pytest.mark.parametrize("width", [1280, 390])
def test_losses_can_be_seen_among_five_hundred_shards(
    width: int, browser: Browser, pages: dict[str, str]
) -> None:
    with browser.page(pages["large"], width=width) as page:
        drawn = page.evaluate(
            """[...document.querySelectorAll("#map rect.lost")].map(r => r.getBoundingClientRect())
                .map(b => [b.width, b.height])"""
        )
        assert len(drawn) > 100
        assert all(wide >= 2 and tall >= 1.5 for wide, tall in drawn)
        assert page.evaluate("document.querySelectorAll('#map .shard-edge').length") == 0


# -- hostile text ----------------------------------------------------------------------------------


def test_hostile_texts_are_shown_as_they_are_and_run_nowhere(browser: Browser, pages: dict[str, str]) -> None:
    with browser.page(pages["hostile"]) as page:
        assert page.evaluate("window.hit === undefined")
        assert page.evaluate("document.querySelectorAll('script').length") == 1
        assert page.evaluate("document.querySelectorAll('img, iframe, object, embed, h1 ~ h1').length") == 0
        assert page.evaluate("document.querySelectorAll('[onload], [onerror], [onclick]').length") == 0
        text = page.evaluate("document.body.textContent")
        for hostile in HOSTILE[:7]:
            assert hostile in text
        for unseen in ("\u202e", "\x1b", "\x00", "\x07"):
            assert unseen not in text
        links = page.evaluate("[...document.querySelectorAll('[href]')].map(e => e.getAttribute('href'))")
        assert all(link.startswith("#") or link == "data:," for link in links)
        # a text of the data can be chosen and looked for without becoming markup
        choose(page, "shard", HOSTILE[0])
        assert {shard for _, shard in visible(page)} == {HOSTILE[0]}
        assert page.evaluate("window.hit === undefined")
        assert page.complaints == []


def test_the_policy_stops_what_escaping_might_have_missed(browser: Browser, pages: dict[str, str]) -> None:
    with browser.page(pages["full"]) as page:
        page.evaluate(
            """new Promise(done => {
                const s = document.createElement("script"); s.textContent = "window.hit = 1";
                const i = document.createElement("img"); i.src = "http://127.0.0.1:9/x";
                document.body.append(s, i); setTimeout(done, 50); })"""
        )
        assert page.evaluate("window.hit === undefined")
        # Chromium tells of an image it was not allowed to ask for, too: it never left.
        blocked = [complaint for complaint in page.complaints if "Content Security Policy" in complaint]
        assert len(blocked) == 2


# -- everybody -------------------------------------------------------------------------------------

CONTRAST = """(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number); const light = ([r, g, b]) => [r, g,
  b].map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ground = (e) => { for (; e; e = e.parentElement) { const c =
  parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c; } return parse(getComputedStyle(document.body).backgroundColor);
    };
  const poor = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement; if (!walk.currentNode.data.trim() || seen.has(e) ||
    e.closest("script, title, .hidden, option, .skip")) continue; seen.add(e); if (!e.getClientRects().length)
    continue; const style = getComputedStyle(e); const svg = e.namespaceURI.endsWith("svg"); const ink =
    light(parse(svg ? style.fill : style.color)), under = light(ground(svg ? e.closest("div") : e)); const
    ratio = (Math.max(ink, under) + .05) / (Math.min(ink, under) + .05); if (ratio < 4.5)
    poor.push([ratio.toFixed(2), e.tagName, e.className.baseVal ?? e.className, e.textContent.slice(0, 40)]);
  }
  return [seen.size, poor];
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["full", "empty", "clean"])
def test_all_text_has_a_contrast_of_at_least_four_and_a_half(
    name: str, dark: bool, browser: Browser, pages: dict[str, str]
) -> None:
    with browser.page(pages[name], dark=dark) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(20, 23, 26)") is dark
        looked_at, poor = page.evaluate(CONTRAST)
        assert looked_at > 30
        assert poor == []


def test_landmarks_headings_and_names_for_those_who_do_not_see_it(
    browser: Browser, pages: dict[str, str]
) -> None:
    with browser.page(pages["full"]) as page:
        nodes = page.accessibility_tree()
        seen = [
            (node["role"]["value"], node.get("name", {}).get("value", ""), node)
            for node in nodes
            if not node.get("ignored") and "role" in node
        ]
        roles = [role for role, _, _ in seen]
        for landmark in ("banner", "navigation", "main", "contentinfo", "search"):
            assert roles.count(landmark) == 1
        for role in (
            "image",
            "combobox",
            "checkbox",
            "searchbox",
            "button",
            "link",
            "region",
            "article",
            "table",
        ):
            names = [name for found, name, _ in seen if found == role]
            assert names, role
            assert all(names), role
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])")
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        assert page.evaluate("document.documentElement.lang") == "en"
        # severity is a word, not only a colour
        assert page.evaluate(
            "[...document.querySelectorAll('article.kind')].every(a => a.querySelector('h3 .badge')"
            ".textContent.toLowerCase() === a.dataset.severity)"
        )


def test_a_keyboard_is_enough(browser: Browser, pages: dict[str, str]) -> None:
    with browser.page(pages["full"]) as page:
        focused = "document.activeElement"

        def tab() -> str:
            page.press(Keys.TAB)
            return page.evaluate(
                f"{focused}.id || {focused}.name || {focused}.className || {focused}.tagName"
            )  # type: ignore[no-any-return]

        assert tab() == "skip"
        assert page.evaluate(f"{focused}.getBoundingClientRect().left") >= 0  # it comes into view
        assert page.evaluate(f"getComputedStyle({focused}).outlineStyle") == "solid"
        walked = [tab() for _ in range(60)]
        for stop in (
            "chart",
            "severity",
            "filter-kind",
            "filter-shard",
            "filter-text",
            "filter-reset",
            "SUMMARY",
        ):
            assert stop in walked, stop
        page.evaluate("document.querySelector('input[value=critical]').focus()")
        page.press(" ")
        assert "critical" not in page.evaluate(
            "[...document.querySelectorAll('article.kind:not([hidden])')].map(a => a.dataset.severity)"
        )
        folded = "document.querySelector('article.error details')"
        assert not page.evaluate(f"{folded}.open")
        page.evaluate(f"{folded}.querySelector('summary').focus()")
        page.press(Keys.ENTER)
        assert page.evaluate(f"{folded}.open")


def test_without_a_script_everything_is_there_but_the_filters(
    browser: Browser, pages: dict[str, str], reports: dict[str, Report]
) -> None:
    with browser.page(pages["full"], script=False) as page:
        # The tree of the page as rendered; scripts are off, so nothing can be asked of it.
        kinds, end = {finding.kind for finding in reports["full"].findings}, time.monotonic() + 60
        while kinds:  # it may still be loading
            assert time.monotonic() < end, kinds
            text = json.dumps(page.send("DOM.getDocument", depth=-1))
            kinds = {kind for kind in kinds if kind not in text}
        nodes = page.accessibility_tree()
        roles = {node["role"]["value"] for node in nodes if not node.get("ignored") and "role" in node}
        assert "main" in roles
        assert not roles & {"search", "checkbox", "searchbox"}


def test_it_prints_whole_and_without_controls(
    browser: Browser, pages: dict[str, str], reports: dict[str, Report]
) -> None:
    with browser.page(pages["full"], dark=True) as page:
        page.media("print")
        assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert page.evaluate("getComputedStyle(document.getElementById('filters')).display") == "none"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("[...document.querySelectorAll('details')].every(d => d.open)")
        assert len(visible(page)) == len(reports["full"].findings) > 100
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert len(visible(page)) == len(reports["full"].findings) - (87 - 50)
        assert not page.evaluate("[...document.querySelectorAll('details')].every(d => d.open)")
        # No table is wider than the paper (A4, with 2 cm of margin).
        page.size(640, 900)
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert page.evaluate("[...document.querySelectorAll('table')].every(t => t.offsetWidth <= 640)")
        page.media("")
        assert len(page.send("Page.printToPDF", printBackground=False)["data"]) > 20_000
