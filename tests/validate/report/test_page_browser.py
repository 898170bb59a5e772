"""The page in a real browser: it renders with its style, nothing is loaded or run, it fits a phone, and it
can be read in light, dark and print."""

from __future__ import annotations

import pytest

from .browser import Browser
from .conftest import EXAMPLES
from .examples import HOSTILE, Report

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_renders_asks_for_nothing_and_never_overflows(
    name: str, width: int, browser: Browser, pages: dict[str, str], reports: dict[str, Report]
) -> None:
    with browser.page(pages[name], width=width) as page:
        assert page.requests == [pages[name]]
        assert page.complaints == []
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # (Names that are hostile are longer than any page.)
        if width == 390 or name != "hostile":
            assert page.evaluate(
                "[...document.querySelectorAll('.scroll')].every(s => s.scrollWidth <= s.clientWidth)"
            )
        assert page.evaluate("document.querySelector('main').getBoundingClientRect().height") > 300
        # Nothing sticks out of the window but what scrolls in a box of its own.
        outside = page.evaluate(
            """[...document.querySelectorAll("body *")]
                .filter(e => !e.closest(".chart, .scroll, nav, svg") && e.getClientRects().length)
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
        assert rows == len(reports[name][1])
        # What a hostile text asks for runs nowhere; the text is shown.
        assert page.evaluate("window.hit === undefined")
        text = page.evaluate("document.body.textContent")
        assert name != "hostile" or [one for one in HOSTILE[:7] if one not in text] == []


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


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["full", "clean"])
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


def test_it_prints_whole(browser: Browser, pages: dict[str, str]) -> None:
    with browser.page(pages["full"], dark=True) as page:
        page.media("print")
        assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        rows = "[...document.querySelectorAll('details:not([open]) tbody tr')]"
        assert page.evaluate(f"{rows}.length") > 30
        assert page.evaluate(f"{rows}.every(r => r.checkVisibility({{contentVisibilityAuto: true}}))")
        # No table is wider than the paper (A4, with 2 cm of margin).
        page.size(640, 900)
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert page.evaluate("[...document.querySelectorAll('table')].every(t => t.offsetWidth <= 640)")
        page.media("")
        assert len(page.send("Page.printToPDF", printBackground=False)["data"]) > 20_000
