"""The site is built without a warning, has an entry for every public name, error and finding, loads nothing
from elsewhere, can be searched, and can be read on a screen and on a phone."""

from __future__ import annotations

import inspect
import json
import os
import re
import string
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kpl_codec.cli.explain import error_classes
from kpl_codec.findings import KINDS

from ..test_surface import OBJECTS, PUBLIC
from ..validate.report.browser import Browser

pytest.importorskip("mkdocs", reason="the site's tools need Python 3.11")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. mkdocs checks every link and anchor in it."""
    output = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", "tests/site/mkdocs.yml", "-d", output]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return output


def anchors(page: Path) -> set[str]:
    return set(re.findall(r'id="([^"]+)"', page.read_text()))


def test_every_public_name_error_and_finding_has_an_entry(site: Path) -> None:
    found = {name for module in PUBLIC for name in anchors(site / "api" / f"kpl_codec{module}.html")}
    assert {key.replace(":", ".") for key in OBJECTS} - found == set()
    wanted = {*KINDS, *(error.name for error in error_classes())}
    assert wanted <= anchors(site / "names.html")


def test_the_page_of_each_module_has_its_examples(site: Path) -> None:
    pages = {module: (site / "api" / f"kpl_codec{module}.html").read_text() for module in PUBLIC}
    assert {module for module, page in pages.items() if "&gt;&gt;&gt;" not in page} == set()


def test_every_public_function_has_a_signature(site: Path) -> None:
    """Also one that is made of another function."""
    shown = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    names = {key.partition(":")[2] for key, thing in OBJECTS.items() if inspect.isfunction(thing)}
    assert {name for name in names if f'<span class="nf">{name}</span>' not in shown} == set()


def test_the_options_that_functions_share_have_an_entry(site: Path) -> None:
    """``**options`` in a signature does not say what they are."""
    pages = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    for thing in filter(callable, OBJECTS.values()):
        try:
            parameters = inspect.signature(thing).parameters.values()
        except ValueError:  # compiled, or a TypedDict: before Python 3.12 these have none
            continue
        for parameter in parameters:
            for option in re.findall(r"Unpack\[(\w+)\]", str(parameter.annotation)):
                assert re.search(rf'id="kpl_codec[\w.]*\.{option}"', pages), option


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(
        r"""<(?:script|img|iframe)[^>]*\ssrc="(https?:[^"]+)|<link[^>]*rel="stylesheet"[^>]*"(https?:[^"]+)"""
    )
    elsewhere = {found for page in site.rglob("*.html") for found in loaded.findall(page.read_text())}
    assert elsewhere == set()


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


#: Elements whose text is cut off or makes the page scroll; code blocks, tables and pictures may scroll within
#: themselves. A pixel or two is the browser's rounding.
TOO_WIDE = """
[...document.querySelectorAll(".md-content :is(p, li, h1, h2, h3, h4, svg, dl, .md-typeset__scrollwrap)")]
  .filter(one => one.checkVisibility() && (one.getBoundingClientRect().right > innerWidth
    || one.scrollWidth > one.clientWidth + 8 && one.clientWidth && one.tagName == "P"
      && !one.querySelector("img") && !one.closest("table")))
  .map(one => one.tagName + ": " + one.textContent.trim().slice(0, 60))
"""
#: Words in tables that begin on one line and end on another.
BROKEN = """
[...document.querySelectorAll(".md-content td, .md-content th")].filter(one => one.checkVisibility())
  .flatMap(cell => {
    const found = [], texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    const words = /[\\w.]+/g;
    while (texts.nextNode()) for (const word of texts.currentNode.data.matchAll(words)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) found.push(word[0]);
    }
    return found;
  }).map(word => "broken: " + word)
"""
#: Pictures that are drawn much smaller than made, where texts have 12 pixels.
SHRUNK = """
[...document.querySelectorAll(".md-content img")].filter(one => one.clientWidth < one.naturalWidth * .69)
  .map(one => "shrunk: " + one.src)
"""
#: Copy buttons that lie on a line of their code.
ON_TEXT = """
[...document.querySelectorAll("pre")].filter(pre => {
  const button = pre.parentElement.querySelector(".md-clipboard, .md-code__button");
  if (!button || !button.checkVisibility() || !pre.querySelector("code")) return false;
  const place = button.getBoundingClientRect(), range = document.createRange();
  const shown = pre.querySelector("code").getBoundingClientRect().right;
  range.selectNodeContents(pre.querySelector("code"));
  return [...range.getClientRects()].some(line => line.width && Math.min(line.right, shown) > place.left
    && line.left < place.right && line.bottom > place.top && line.top < place.bottom);
}).map(pre => pre.textContent.slice(0, 60))
"""

#: Searches for a text; the addresses of the results. The theme asks a worker, and says below the field what
#: it found.
SEARCH = """
(async text => {
  const field = document.querySelector("[data-md-component=search-query]");
  const found = document.querySelector(".md-search-result__meta");
  field.focus();
  while (field.disabled) await new Promise(later => setTimeout(later, 20));
  found.textContent = "";
  field.value = text;
  field.dispatchEvent(new Event("keyup"));
  while (!found.textContent) await new Promise(later => setTimeout(later, 20));
  return [...document.querySelectorAll(".md-search-result__item a")].map(one => one.href);
})(%s)
"""


#: What people see in their logs, as it stands there: the page by symptom is found with it.
MESSAGES = (
    "F3899AC2", "Record has reached expiration", "DaemonException", "Reached end of STDIN of child process",
    "Last request was dispatched at", "NextToken and StreamName cannot be provided together",
    "invalid byte sequence in UTF-8", "invalid character", "Expected BEGIN_OBJECT but was STRING",
    "stream did not contain valid UTF-8",
)  # fmt: skip


def test_every_page_fits_a_screen_and_a_phone(site: Path, address: str) -> None:
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    assert len(names) > 60
    wrong = []
    with Browser() as browser, browser.page(f"{address}/{names[0]}") as page:
        # Each page would read the index of all pages, to be searched.
        page.send("Network.enable")
        page.send("Network.setBlockedURLs", urls=["*/search_index.json"])
        for name in names:
            page.size(1280, 900)
            page.load(f"{address}/{name}")
            for width in (1280, 390):
                page.size(width, 900)
                if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                    wrong.append((name, width, "scrolls sideways"))
                found = page.evaluate(f"{TOO_WIDE}.concat({ON_TEXT}).concat({BROKEN}).concat({SHRUNK})")
                wrong += [(name, width, one) for one in found]
    assert not wrong, "\n".join(map(str, wrong))


def test_no_fence_is_shown_as_text(site: Path) -> None:
    """Options of a code block that the site's Markdown does not know make a paragraph of it."""
    assert [page.name for page in site.rglob("*.html") if "```" in page.read_text()] == []


@pytest.mark.parametrize("width", [1280, 390])
def test_it_loads_without_a_complaint_and_can_be_searched(address: str, width: int) -> None:
    with Browser() as browser:
        for name in ("index", "api/kpl_codec", "names", "spec/guides/how-records-get-lost"):
            with browser.page(f"{address}/{name}.html", width=width) as page:
                assert page.complaints == []
        with browser.page(f"{address}/index.html", width=width) as page:
            for words in ("idempotency_key", "records are missing after a reshard", *MESSAGES):
                found = page.evaluate(SEARCH % json.dumps(words))
                assert any("by-symptom" in address or words not in MESSAGES for address in found), words


def test_every_word_can_be_searched(site: Path, address: str) -> None:
    """A search for one character opens every word that begins with it."""
    documents = json.loads((site / "search/search_index.json").read_text())["docs"]
    texts = "".join(f"{document['title']} {document['text']} " for document in documents).lower()
    first = sorted({word[0] for word in texts.split()} & set(string.ascii_lowercase + string.digits))
    assert len(first) == 36
    with Browser() as browser, browser.page(f"{address}/index.html") as page:
        assert [one for one in first if not page.evaluate(SEARCH % json.dumps(one))] == []
        assert page.complaints == []
