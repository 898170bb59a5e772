"""The page in a real browser: it renders with its style, nothing is loaded or run, it fits a phone, and it
can be read in light, dark and print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kpl_codec.validate.report.page import report_page

from .browser import Browser
from .examples import EXAMPLES, HOSTILE

pytestmark = pytest.mark.slow
OPEN_ALL = "document.querySelectorAll('details').forEach(d => { d.open = true; })"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


def address(name: str, folder: Path) -> str:
    """Of the page of an example, which is written there."""
    path = folder / f"{name}.html"
    path.write_text(report_page(*EXAMPLES[name]()), encoding="utf-8")
    return path.as_uri()


#: What sticks out of the window, but for what scrolls in a box of its own.
OUTSIDE = """[...document.querySelectorAll("body *")]
    .filter(e => !e.closest(".chart, .scroll, nav, svg") && e.getClientRects().length)
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
    .map(e => e.tagName + "." + e.className)"""
#: Options of commands, names of findings, and parents of shards that are cut in two at a hyphen.
CUT = """[...document.querySelectorAll("p code, .kind-name, [data-label=State]")].flatMap(e => {
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


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_page_renders_asks_for_nothing_and_never_overflows(
    name: str, browser: Browser, tmp_path: Path
) -> None:
    url = address(name, tmp_path)
    browser.show(url)
    assert browser.requests == [url]
    browser.evaluate(OPEN_ALL)
    for width in (1280, 390):
        browser.size(width)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        # (Names that are hostile are longer than any page.)
        if width == 390 or name != "hostile":
            assert browser.evaluate(
                "[...document.querySelectorAll('.scroll')].every(s => s.scrollWidth <= s.clientWidth)"
            )
        assert browser.evaluate("document.querySelector('main').getBoundingClientRect().height") > 300
        assert browser.evaluate(OUTSIDE) == []
        assert browser.evaluate(CUT) == [] or name == "hostile"
    rows = browser.evaluate("document.querySelectorAll('article.kind tbody tr').length")
    assert rows == len(EXAMPLES[name]()[1])
    # What a hostile text asks for runs nowhere; the text is shown.
    assert browser.evaluate("window.hit === undefined")
    text = browser.evaluate("document.body.textContent")
    assert name != "hostile" or [one for one in HOSTILE[:7] if one not in text] == []
    assert (browser.requests, browser.complaints) == ([], [])


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
    e.closest("title, .hidden")) continue; seen.add(e); if (!e.getClientRects().length)
    continue; const style = getComputedStyle(e); const svg = e.namespaceURI.endsWith("svg"); const ink =
    light(parse(svg ? style.fill : style.color)), under = light(ground(svg ? e.closest("div") : e)); const
    ratio = (Math.max(ink, under) + .05) / (Math.min(ink, under) + .05); if (ratio < 4.5)
    poor.push([ratio.toFixed(2), e.tagName, e.className.baseVal ?? e.className, e.textContent.slice(0, 40)]);
  }
  return [seen.size, poor];
})()"""


@pytest.mark.parametrize("name", ["full", "clean"])
def test_all_text_has_a_contrast_of_at_least_four_and_a_half(
    name: str, browser: Browser, tmp_path: Path
) -> None:
    browser.show(address(name, tmp_path))
    browser.evaluate(OPEN_ALL)
    for dark in (False, True):
        browser.media("screen", dark=dark)
        ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(20, 23, 26)") is dark
        looked_at, poor = browser.evaluate(CONTRAST)
        assert looked_at > 30
        assert poor == []


def test_it_prints_whole(browser: Browser, tmp_path: Path) -> None:
    """Also where the screen is dark."""
    browser.show(address("full", tmp_path))
    browser.media("print", dark=True)
    assert browser.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    rows = "[...document.querySelectorAll('details:not([open]) tbody tr')]"
    assert browser.evaluate(f"{rows}.length") > 30
    assert browser.evaluate(f"{rows}.every(r => r.checkVisibility({{contentVisibilityAuto: true}}))")
    # No table is wider than the paper (A4, with 2 cm of margin).
    browser.size(640)
    browser.evaluate(OPEN_ALL)
    assert browser.evaluate("[...document.querySelectorAll('table')].every(t => t.offsetWidth <= 640)")
    browser.media("screen")
    assert len(browser.send("Page.printToPDF", printBackground=False)["data"]) > 20_000
