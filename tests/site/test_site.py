"""The site is built without a warning, has an entry for every public name and code, loads nothing from
elsewhere, and can be read on a screen and on a phone."""

from __future__ import annotations

import argparse
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

import kpl_codec
from kpl_codec.cli.main import COMMANDS, _parser
from kpl_codec.findings import KINDS
from kpl_codec.producer import Delivery

from ..test_surface import OBJECTS, PUBLIC
from ..validate.report.browser import Browser
from . import pages

pytest.importorskip("mkdocs", reason="the site's tools need Python 3.11")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. mkdocs checks every link and anchor in it."""
    output = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", "tests/site/mkdocs.yml", "-d", output]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=pages.ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return output


def anchors(page: Path) -> set[str]:
    return set(re.findall(r'id="([^"]+)"', page.read_text()))


def test_every_public_name_has_an_entry(site: Path) -> None:
    assert set(pages.TITLES) == set(PUBLIC)
    found = {
        name for module in PUBLIC for name in anchors(site / "api" / f"{pages.file_of(module)[:-3]}.html")
    }
    assert {key.replace(":", ".") for key in OBJECTS} - found == set()


def test_every_public_function_has_a_signature(site: Path) -> None:
    """Also one that is made of another function."""
    shown = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    names = {key.partition(":")[2] for key, thing in OBJECTS.items() if inspect.isfunction(thing)}
    assert {name for name in names if f'<span class="nf">{name}</span>' not in shown} == set()


def test_the_options_that_functions_share_have_an_entry(site: Path) -> None:
    """``**options`` in a signature does not say what they are."""
    pages_of_api = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    shown = {name.rpartition(".")[2]: name for names in pages.OPTIONS.values() for name in names}
    for thing in filter(callable, OBJECTS.values()):
        try:
            parameters = inspect.signature(thing).parameters.values()
        except ValueError:  # compiled, or a TypedDict: before Python 3.12 these have none
            continue
        for parameter in parameters:
            for option in re.findall(r"Unpack\[(\w+)\]", str(parameter.annotation)):
                assert f'id="{shown[option]}"' in pages_of_api


def test_a_class_has_its_fields_in_one_table_and_stands_before_what_refers_to_it(site: Path) -> None:
    page = (site / "api/producer.html").read_text()
    first, second = (page.index(f'id="kpl_codec.producer.{name}"') for name in ("Producer", "AsyncProducer"))
    assert first < second
    fields = {f"kpl_codec.producer.results.Delivery.{name}" for name in Delivery.__annotations__}
    assert fields <= anchors(site / "api/producer.html")
    texts = "".join(path.read_text() for path in (site / "api").glob("*.html"))
    assert "instance-attribute" not in texts


def test_the_head_names_the_version_and_links_the_repository_and_the_next_page(site: Path) -> None:
    for path in ("commands.html", "spec/guides/watch.html"):
        page = (site / path).read_text()
        assert 'href="https://github.com/kpl-codec/kpl_codec"' in page
        assert f">{kpl_codec.__version__}<" in page
        assert 'rel="next"' in page
        assert "md-footer__link--prev" in page


def test_every_option_has_an_anchor(site: Path) -> None:
    found = anchors(site / "commands.html")
    for command in COMMANDS:
        (commands,) = (a for a in _parser([command])._actions if isinstance(a, argparse._SubParsersAction))
        inner = [a for a in commands.choices[command]._actions if isinstance(a, argparse._SubParsersAction)]
        parsers = {command: commands.choices[command]}
        parsers |= {f"{command}-{name}": one for group in inner for name, one in group.choices.items()}
        for name, parser in parsers.items():
            wanted = {f"{name}-{a.dest}" for a in parser._actions if a.dest != "help" and a not in inner}
            assert wanted <= found


def test_every_command_error_and_finding_has_an_entry(site: Path) -> None:
    assert set(COMMANDS) <= anchors(site / "commands.html")
    assert set(KINDS) <= anchors(site / "findings.html")
    assert {error.__name__ for error in pages.errors()} <= anchors(site / "errors.html")


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
#: Pictures that are drawn much smaller than made, where texts have 12 pixels, and small texts of charts.
SHRUNK = """
[...document.querySelectorAll(".md-content img")].filter(one => one.clientWidth < one.naturalWidth * .69)
  .map(one => "shrunk: " + one.src)
  .concat([...document.querySelectorAll(".md-content .chart *")]
    .filter(one => parseFloat(getComputedStyle(one).fontSize) < 11).map(one => "small: " + one.textContent))
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

#: Searches for a text; how many results are shown. The theme asks a worker, and says below the field what
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
  return document.querySelectorAll(".md-search-result__item a").length;
})(%s)
"""


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
        for name in ("index", "api/kpl_codec", "benchmarks", "spec/guides/how-records-get-lost"):
            with browser.page(f"{address}/{name}.html", width=width) as page:
                assert page.complaints == []
        with browser.page(f"{address}/index.html", width=width) as page:
            for words in ("idempotency_key", "F3899AC2", "records are missing after a reshard"):
                assert page.evaluate(SEARCH % json.dumps(words)) > 0, words


def test_every_word_can_be_searched(site: Path, address: str) -> None:
    """A search for one character opens every word that begins with it."""
    documents = json.loads((site / "search/search_index.json").read_text())["docs"]
    texts = "".join(f"{document['title']} {document['text']} " for document in documents).lower()
    first = sorted({word[0] for word in texts.split()} & set(string.ascii_lowercase + string.digits))
    assert len(first) == 36
    with Browser() as browser, browser.page(f"{address}/index.html") as page:
        assert [one for one in first if not page.evaluate(SEARCH % json.dumps(one))] == []
        assert page.complaints == []


def test_the_home_page_has_the_doors_of_the_readme(site: Path) -> None:
    home = (site / "index.html").read_text()
    doors = re.findall(r"^## (I .*)$", (Path(__file__).parents[2] / "README.md").read_text(), re.MULTILINE)
    assert len(doors) == 5
    assert all(door in home for door in doors)
