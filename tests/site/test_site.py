"""The site is built without a warning, has an entry for every public name and code, loads nothing from
elsewhere, and can be read on a screen and on a phone."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kpl_codec.cli.main import COMMANDS
from kpl_codec.findings import KINDS

from ..test_surface import OBJECTS, PUBLIC
from ..validate.report.browser import Browser
from . import pages
from .__main__ import build

pytest.importorskip("mkdocs", reason="the site's tools need Python 3.11")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. mkdocs checks every link and anchor in it."""
    output = tmp_path_factory.mktemp("site")
    assert build(output, tmp_path_factory.mktemp("scratch")) == 0
    return output


def anchors(page: Path) -> set[str]:
    return set(re.findall(r'id="([^"]+)"', page.read_text()))


def test_every_public_name_has_an_entry(site: Path) -> None:
    assert set(pages.TITLES) == set(PUBLIC)
    found = {
        name for module in PUBLIC for name in anchors(site / "api" / f"{pages.file_of(module)[:-3]}.html")
    }
    assert {key.replace(":", ".") for key in OBJECTS} - found == set()


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


@pytest.mark.parametrize("width", [1280, 390])
def test_it_can_be_read_and_searched(address: str, width: int) -> None:
    with Browser() as browser:
        for name in ("index", "api/kpl_codec", "commands", "errors", "findings", "spec/guides/lambda"):
            with browser.page(f"{address}/{name}.html", width=width) as page:
                assert page.complaints == []
                assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        with browser.page(f"{address}/index.html?q=idempotency_key", width=width) as page:
            end = time.monotonic() + 60  # a worker reads the index first
            results = "document.querySelectorAll('.md-search-result__item a').length"
            while not page.evaluate(results):
                assert time.monotonic() < end
                time.sleep(0.1)
