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
from contextlib import suppress
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
    """The built site. mkdocs checks every link and anchor in it. (With -q it would count no warning.)"""
    output = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-f", "tests/site/mkdocs.yml", "-d", output]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def test_every_public_name_error_and_finding_has_an_entry(site: Path) -> None:
    """A function has its signature, also if it is made of another; an entry, too, has what ``**options`` in
    it stands for."""
    pages = {path.stem: path.read_text() for path in (site / "api").glob("*.html")}
    shown = "".join(pages[f"kpl_codec{module}"] for module in PUBLIC)
    entries = {key.replace(":", ".") for key in OBJECTS} | {
        *KINDS,
        *(error.name for error in error_classes()),
    }
    found = re.findall(r'id="([^"]+)"', shown + (site / "names.html").read_text())
    assert entries <= {*found}
    functions = {key.partition(":")[2] for key, thing in OBJECTS.items() if inspect.isfunction(thing)}
    assert {name for name in functions if f'<span class="nf">{name}</span>' not in shown} == set()
    options = set[str]()
    for thing in filter(callable, OBJECTS.values()):
        with suppress(ValueError):  # compiled, or a TypedDict: before Python 3.12 these have no signature
            options.update(re.findall(r"Unpack\[(\w+)\]", str(inspect.signature(thing))))
    assert len(options) >= 3
    assert {name for name in options if not re.search(rf'id="kpl_codec[\w.]*\.{name}"', shown)} == set()


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
    with Browser() as browser:
        # Each page would read the index of all pages, to be searched.
        browser.send("Network.enable")
        browser.send("Network.setBlockedURLs", urls=["*/search_index.json"])
        for name in names:
            browser.show(f"{address}/{name}")
            for width in (1280, 390):
                browser.size(width)
                if browser.evaluate("document.documentElement.scrollWidth > innerWidth"):
                    wrong.append((name, width, "scrolls sideways"))
                wrong += [(name, width, one) for one in browser.evaluate(f"{TOO_WIDE}.concat({BROKEN})")]
    assert not wrong, "\n".join(map(str, wrong))


def test_no_fence_is_shown_as_text(site: Path) -> None:
    """Options of a code block that the site's Markdown does not know make a paragraph of it."""
    assert [page.name for page in site.rglob("*.html") if "```" in page.read_text()] == []


def test_it_loads_without_a_complaint_and_can_be_searched(site: Path, address: str) -> None:
    documents = json.loads((site / "search/search_index.json").read_text())["docs"]
    texts = "".join(f"{document['title']} {document['text']} " for document in documents).lower()
    # A search for one character opens every word that begins with it.
    first = sorted({word[0] for word in texts.split()} & set(string.ascii_lowercase + string.digits))
    with Browser() as browser:
        for name in ("index", "api/kpl_codec", "names", "spec/guides/how-records-get-lost"):
            browser.show(f"{address}/{name}.html")
            assert browser.complaints == []
        browser.show(f"{address}/index.html", width=390)
        for words in (*first, "idempotency_key", "records are missing after a reshard", *MESSAGES):
            found = browser.evaluate(SEARCH % json.dumps(words))
            assert any("by-symptom" in address or words not in MESSAGES for address in found), words
        assert browser.complaints == []
