"""The report page, the summary and the progress lines: keys, file names, stream names of any text.

An input is JSON: a list of texts, each of which stands in every place where text from outside can stand.
`fuzz.page` does the same in a real browser.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from html.parser import HTMLParser

from kpl_codec.report import Finding, Report, Tally, build_report, render_page, summary_text

from .commands import _CONTROL
from .target import Target, dumped, loaded, repeated

NOW = datetime(2026, 11, 21, tzinfo=timezone.utc)
HOSTILE = (
    "<script>window.hit=1</script>",
    '"><svg onload=window.hit=1>',
    "' onmouseover='window.hit=1",
    "]]>",
    "<!--",
    "-->",
    "</title></style></script><h1>hit</h1>",
    "</script><script>window.hit=1</script>",
    "javascript:window.hit=1",
    "&lt;b&gt; &amp;",
    "\u202e\x00\x1b[31m\x07\x9b \ud800",
    "{{7*7}}",
    "\\u003cscript\\u003e",
    "\n\r\t",
    "x" * 300,
    "",
)


def report(texts: Sequence[str]) -> Report:
    """A report that shows every text wherever one from outside can stand."""
    tally = Tally()
    findings = []
    for number, text in enumerate(texts):
        other = texts[-1 - number]
        tally.add_group(text, other, "stray", "dropped", 3, 30, text)
        tally.add_kinesis_records(text, 1, 1)
        tally.add_cell(1_700_000_000 + number, text, 3, 30, 1)
        tally.add_arrivals(text, 1_700_000_000, 1_700_000_100)
        tally.add_loss(text, 3)
        tally.kinesis_records += 1
        findings += [
            Finding(
                kind, shard_id=text, sequence_number=text, file=text, line=1, cause=text, kcl=text,
                expected_shard_id=other, requirement=text, detail=text,
            )
            for kind in ("mixed-aggregate", text)
        ]  # fmt: skip
    for finding in findings:
        tally.add_finding(finding)
    tally.slots[3] = [30, 30]
    name = texts[0] if texts else ""
    return build_report(
        tally, None, generated=NOW, version="1", title=name, stream_name=name, source=name, inputs=list(texts)
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
    found = report(texts)
    page = render_page(found)
    page.encode()
    shown, harmless = outline(page), outline(render_page(report(plain(texts))))
    assert not Counter(shown.tags) - Counter(harmless.tags), Counter(shown.tags) - Counter(harmless.tags)
    assert shown.code == harmless.code
    assert not set(summary_text(found)) & _CONTROL


def work(given: bytes) -> None:
    found = report([given[at : at + 100].decode("utf-8", "replace") for at in range(0, len(given), 100)])
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
