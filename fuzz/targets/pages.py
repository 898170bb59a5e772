"""The report page, the summary and the progress lines: keys, file names, stream names of any text.

An input is JSON: a list of texts, each of which stands in every place where text from outside can stand.
tests/validate/report/test_page_browser.py shows some of them in a real browser.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser

from kpl_codec.validate.report.report_page import render_page
from kpl_codec.validate.report.summary import summary_text
from tests.validate.report import examples

from .commands import _CONTROL
from .target import Target, dumped, loaded, repeated

HOSTILE = (
    *(text for text in examples.HOSTILE if len(text) < 300),
    "' onmouseover='window.hit=1",
    "]]>",
    "<!--",
    "-->",
    "</script><script>window.hit=1</script>",
    "\x9b",
    "\\u003cscript\\u003e",
    "\n\r\t",
    "x" * 300,
    "",
)


def plain(texts: Sequence[str]) -> list[str]:
    """As many texts, equal where these are equal, with nothing in them that means anything."""
    return [text and f"text {texts.index(text):04}" for text in texts]


class _Outline(HTMLParser):
    """The tags of a page, with the names of their attributes, and what scripts and styles hold."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.code: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attributes)))
        self._inside = tag
        for name, value in attributes:
            assert not name.startswith("on"), name
            if name in ("href", "src", "action"):
                assert value is not None
                assert value.startswith(("#", "data:")), value

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style"):
            self.code.append(data)


def outline(page: str) -> _Outline:
    found = _Outline()
    found.feed(page)
    found.close()
    return found


def pages(given: bytes) -> None:
    """The page has the tags and the code that it has for harmless texts; no terminal obeys the summary."""
    value = loaded(given)
    texts = (
        [str(text) for text in value][:20] if isinstance(value, list) else [given.decode("utf-8", "replace")]
    )
    found = examples.hostile_report(texts)
    page = render_page(found)
    page.encode()
    shown, harmless = outline(page), outline(render_page(examples.hostile_report(plain(texts))))
    assert not Counter(shown.tags) - Counter(harmless.tags), Counter(shown.tags) - Counter(harmless.tags)
    assert shown.code == harmless.code
    assert not set(summary_text(found)) & _CONTROL


def work(given: bytes) -> None:
    texts = [given[at : at + 100].decode("utf-8", "replace") for at in range(0, len(given), 100)]
    found = examples.hostile_report(texts)
    render_page(found)
    summary_text(found)


TARGETS = {
    "pages": Target(
        pages,
        lambda: dumped(list(HOSTILE), *([text] for text in HOSTILE)),
        {"texts": repeated(b"<&"), "one key, again and again": repeated(b"a" * 100)},
        json=True,
        work=work,
    )
}
