"""Reads a stream of JSON documents: one a line, over several lines, several on a line, or RS-separated.

    for item in json_documents(iter(lambda: file.read(1 << 20), b"")):
        if isinstance(item, Defect): ...  # item.code, item.offset, item.line, item.reason
        else: ...                         # item.value, item.offset, item.line

White space, commas, byte order marks and the record separator 0x1E (RFC 7464) may stand between documents.
After one that cannot be read, a Defect, reading goes on at the next *start*: a ``{`` or ``[`` at the
beginning of a line or after 0x1E, or the next ``}{``. Each complete value at a start within a broken document
becomes a document, and of a list above ``max_size`` characters each item. Time is linear for every input.
Memory is a few times the largest document, or ``max_size``. Specification: spec/06-lambda.md, CAP-10 to
CAP-12.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

#: A document of more characters is a defect. A GetRecords response has at most 10 MiB of data, 14 MiB
#: in base64.
MAX_SIZE = 32 * 1024 * 1024
#: Characters decoded at once. Python counts the lines before an error, so errors in long texts cost much
#: time.
_WINDOW = 16 * 1024
#: An error within so many characters of the end may come from text that is not read yet: the longest token,
#: strings aside, is -Infinity.
_NEAR_END = 16

_WHITE_SPACE = re.compile("[ \t\r\n]*")
_BETWEEN = re.compile("[ \t\r\n,\ufeff\x1e]*")
_START = re.compile(r"(?<=[\n\x1e])[{\[]")
#: Where reading goes on behind a broken document: at a start, or within its line between two objects, }{.
_RESTART = re.compile(r"(?<=[\n\x1e])[{\[]|(?<=\})\{")
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}\[\]]', re.DOTALL)
_NOT_UTF_8 = re.compile("[\udc80-\udcff]")  # what the error handler surrogateescape makes of them
_BEFORE_LONG_NUMBER = re.compile(".*?(?=[0-9]{4300})", re.DOTALL)
_DEPTH = {"{": 1, "[": 1, "}": -1, "]": -1}


Code = Literal["json", "utf-8", "duplicate-member", "too-large"]


class Document(NamedTuple):
    """One JSON value. ``offset``: of its first byte. ``line``: the line that it starts in, from 1. The items
    of a large list have the line of the list."""

    value: Any
    offset: int
    line: int


class Defect(NamedTuple):
    """Text that is not a document. ``offset``, ``line``: as in Document; ``at``: the byte offset where
    parsing fails. ``code``: json (``reason`` says what is wrong), utf-8, duplicate-member (a parser would
    keep only one), or too-large (more than ``max_size`` characters)."""

    code: Code
    offset: int
    line: int
    reason: str
    at: int


def json_documents(
    source: str | Iterable[bytes], *, offset: int = 0, max_size: int = MAX_SIZE
) -> Iterator[Document | Defect]:
    """The documents and defects of ``source`` in order, lazily. ``source``: a text, or UTF-8 in blocks of any
    size. ``offset``: of its first byte. An OSError of ``source`` is raised after everything before it."""
    return _Reading(source, offset, max_size).read()


class _Break(NamedTuple):
    code: Code
    reason: str
    end: int


class _Reading:
    """``text`` is decoded, and not yet read from ``pos`` on; ``offset`` and ``line`` belong to ``pos``;
    ``_later`` holds the following texts that were put back, the next one last."""

    def __init__(self, source: str | Iterable[bytes], offset: int, max_size: int) -> None:
        self.text, self.pos, self.offset, self.line = "", 0, offset, 1
        self.ended = False
        self._texts, self._later = self._windows(source), list[str]()
        self._error: OSError | None = None
        self._max_size = max_size
        self._repeats = False
        self._decoder = json.JSONDecoder(object_pairs_hook=self._members)

    def read(self) -> Iterator[Document | Defect]:
        expected = 1  # characters: the size of the document before, as sizes are often similar
        while True:
            self._fill(expected)
            self._advance(_end_of(_BETWEEN, self.text, self.pos))
            if self.pos == len(self.text):
                if self.ended:
                    break
                continue
            result = self._document()
            if isinstance(result, _Break):
                if result.code == "too-large" and self.text[self.pos] == "[":
                    yield from self._items()
                else:
                    yield from self._skip_broken(result)
                    self._to_start()
                expected = 1
            else:
                document, end = result
                yield document
                expected = max(end - self.pos, 1)
                self._advance(end)
        if self._error is not None:
            raise self._error

    # -- the text ---------------------------------------------------------------------------------

    def _fill(self, size: int) -> None:
        """Decode at least ``size`` characters from ``pos`` on, if there are so many."""
        lacking = size - (len(self.text) - self.pos)
        if lacking <= 0 or self.ended:
            return
        parts = [self.text[max(self.pos - 1, 0) :]]  # `_START` checks the character before
        self.pos = min(self.pos, 1)
        while lacking > 0 and not self.ended:
            part = self._later.pop() if self._later else next(self._texts, "")
            self.ended = not part
            parts.append(part)
            lacking -= len(part)
        self.text = "".join(parts)

    def _windows(self, source: str | Iterable[bytes]) -> Iterator[str]:
        for text in [source] if isinstance(source, str) else self._decode_blocks(source):
            for at in range(0, len(text), _WINDOW):
                yield text[at : at + _WINDOW]

    def _decode_blocks(self, blocks: Iterable[bytes]) -> Iterator[str]:
        utf_8 = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        try:
            yield from map(utf_8.decode, blocks)
        except OSError as error:
            self._error = error
        yield utf_8.decode(b"", True)

    def _advance(self, pos: int) -> None:
        self.offset += self._size(pos)
        self.line += self.text.count("\n", self.pos, pos)
        self.pos = pos

    def _size(self, end: int) -> int:
        """The bytes of the characters from ``pos`` to ``end``."""
        if self.text.isascii():
            return end - self.pos
        part = self.text[self.pos : end]
        # An invalid byte is one surrogate, for which this writes three bytes.
        return len(part.encode("utf-8", "surrogatepass")) - 2 * len(_NOT_UTF_8.findall(part))

    def _to_start(self) -> None:
        """Move to the first restart at or after ``pos``, or to the end. Keeps at most one window of the text,
        and puts the rest back."""
        if len(self.text) > 2 * _WINDOW:
            self.text, self.pos = self.text[max(self.pos - 1, 0) :], min(self.pos, 1)
        if len(self.text) > 2 * _WINDOW:
            later = range(_WINDOW, len(self.text), _WINDOW)
            self._later += [self.text[at : at + _WINDOW] for at in reversed(later)]
            self.text, self.ended = self.text[:_WINDOW], False
        while (start := _RESTART.search(self.text, self.pos)) is None and not self.ended:
            self._advance(len(self.text))
            self._fill(1)
        self._advance(len(self.text) if start is None else start.start())

    # -- documents --------------------------------------------------------------------------------

    def _members(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            self._repeats = True
        return members

    def _decode(self) -> tuple[Any, int]:
        """Raises ValueError, RecursionError."""
        self._repeats = False
        return self._decoder.raw_decode(self.text, self.pos)

    def _document(self) -> tuple[Document | Defect, int] | _Break:
        while True:
            have, ended = len(self.text) - self.pos, self.ended
            end, reason = len(self.text), ""
            try:
                value, end = self._decode()
                # A number may continue: if the text so far ends in 1e+, only 1 is read.
                if ended or end < len(self.text) - 2 or isinstance(value, (dict, list)):
                    return self._check_value(value, end), end
            except json.JSONDecodeError as error:
                reason = error.msg
                if not reason.startswith("Unterminated string"):
                    end = error.pos
                if ended or end < len(self.text) - _NEAR_END:
                    return _Break("json", reason, end)
            except RecursionError:
                return _Break("json", "nested too deeply", self._too_deep())
            except ValueError:
                end = _end_of(_BEFORE_LONG_NUMBER, self.text, self.pos)
                return _Break("json", "a number of thousands of digits", end)
            if have >= self._max_size:
                return _Break("too-large", f"more than {self._max_size} characters", len(self.text))
            self._fill(min(2 * have, self._max_size))

    def _not_utf_8(self, end: int) -> Defect | None:
        """The defect of the document at ``pos`` if not all bytes before ``end`` are UTF-8."""
        bad = None if self.text.isascii() else _NOT_UTF_8.search(self.text, self.pos, end)
        if bad is None:
            return None
        return Defect("utf-8", self.offset, self.line, "not UTF-8", self.offset + self._size(bad.start()))

    def _check_value(self, value: Any, end: int) -> Document | Defect:
        defect = self._not_utf_8(end)
        if defect is not None:
            return defect
        # CAP-10: "A JSON document in which an object has a member twice MUST be an error: only one of the
        # two would be read."
        if self._repeats:
            reason = "a member twice in one object"
            return Defect("duplicate-member", self.offset, self.line, reason, self.offset)
        return Document(value, self.offset, self.line)

    def _too_deep(self) -> int:
        depth, limit = 0, sys.getrecursionlimit() // 2
        for token in _TOKEN.finditer(self.text, self.pos):
            depth += _DEPTH.get(token.group(), 0)
            if depth > limit:
                return token.start()
        return len(self.text)

    def _items(self) -> Iterator[Document | Defect]:
        """The items of the list at ``pos``; moves behind it, or to the first start behind where it breaks."""
        offset, line = self.offset, self.line
        while True:
            self._skip(1)  # [ or a comma
            result = self._document()
            if isinstance(result, _Break):
                defect, *inside = self._skip_broken(result)
                yield defect._replace(offset=offset, line=line)
                yield from inside
                self._to_start()
                return
            document, end = result
            yield document._replace(offset=offset, line=line)
            size = end - self.pos
            self._skip(size)
            if self.text[self.pos : self.pos + 1] == "]":
                self._advance(self.pos + 1)
                return
            if self.text[self.pos : self.pos + 1] != ",":
                yield Defect("json", offset, line, "Expecting ',' delimiter", self.offset)
                self._to_start()
                return
            self._fill(2 * size)  # the next one often has the same size

    def _skip(self, size: int) -> None:
        self._advance(self.pos + size)
        while True:
            self._fill(1)
            self._advance(_end_of(_WHITE_SPACE, self.text, self.pos))
            if self.pos < len(self.text) or self.ended:
                return

    def _skip_broken(self, broken: _Break) -> Iterator[Document | Defect]:
        """The defect of the document at ``pos``, and the documents between its start and where it fails. Up
        to that place the text is sound JSON without an end, so a value that starts in between is complete or
        fails at the same place: no value is parsed twice."""
        first, end = self.pos, max(broken.end, self.pos + 1)
        code, reason, at = broken.code, broken.reason, self.offset + self._size(broken.end)
        yield self._not_utf_8(end) or Defect(code, self.offset, self.line, reason, at)
        # CAP-11: "a broken one MUST NOT hide a sound one that begins a later line or follows 0x1E."
        starts = [match.start() for match in _START.finditer(self.text, first + 1, end)]
        # CAP-12: "The work of reading JSON documents MUST grow no faster than the input, whatever is in it."
        closed = self._match_brackets(end) if starts else set()
        for start in starts:
            if start < self.pos:
                continue  # inside a document that was returned
            self._advance(start)
            try:
                value, after = self._decode() if start in closed else (None, 0)
            except (ValueError, RecursionError):
                after = 0
            if after:
                yield self._check_value(value, after)
                self._advance(after)
            else:
                yield Defect(code, self.offset, self.line, reason, at)
        self._advance(max(end, self.pos))

    def _match_brackets(self, end: int) -> set[int]:
        """Where brackets open, from ``pos`` to ``end``, that are also closed there."""
        open_brackets: list[int] = []
        closed = set()
        for token in _TOKEN.finditer(self.text, self.pos, end):
            depth = _DEPTH.get(token.group(), 0)
            if depth > 0:
                open_brackets.append(token.start())
            elif depth < 0 and open_brackets:
                closed.add(open_brackets.pop())
        return closed


def _end_of(pattern: re.Pattern[str], text: str, pos: int) -> int:
    match = pattern.match(text, pos)
    return pos if match is None else match.end()
