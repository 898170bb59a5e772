"""Reads a stream of JSON documents: one a line, over several lines, several on a line, or RS-separated.

    for item in json_documents(iter(lambda: file.read(1 << 20), b"")):
        if isinstance(item, Defect): ...  # item.code, item.offset, item.end, item.line, item.reason
        else: ...                         # item.value, item.offset, item.end, item.line

White space, commas, byte order marks and the record separator 0x1E (RFC 7464) may stand between documents. Of
a list each item is a document; an empty list is one itself. After one that cannot be read, a Defect, reading
goes on at or behind the place where parsing failed: at the first ``{`` or ``[`` that begins a line or follows
0x1E, or at the first ``}{``; the Defect says up to where. Time is linear for every input. Memory is a few
times the largest document, or ``max_size``.
Specification: spec/06-lambda.md, CAP-10 to CAP-12."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

#: A document of more characters is a defect. A GetRecords response has at most 10 MiB of data, 14 MiB
#: in base64.
MAX_SIZE = 32 * 1024 * 1024
#: The fewest characters that are given to the decoder at a time.
_LEAST = 256
#: An error within so many characters of the end may come from text that is not read yet: the longest token,
#: strings aside, is -Infinity.
_NEAR_END = 16
_NO_END = "the list has no end"

_BETWEEN = re.compile("[ \t\r\n,\ufeff\x1e]*")
#: Where reading goes on behind a broken document: where a value begins a line, or between two objects, }{.
_RESTART = re.compile(r"(?<=[\n\x1e])[{\[]|(?<=\})\{")
_NOT_UTF_8 = re.compile("[\udc80-\udcff]")  # what the error handler surrogateescape makes of them
_BEFORE_LONG_NUMBER = re.compile(".*?(?=[0-9]{4300})", re.DOTALL)

Code = Literal["json", "utf-8", "duplicate-member", "too-large"]


class Document(NamedTuple):
    """One JSON value, in the bytes from ``offset`` to ``end``. ``line``: the line that it starts in, from 1.
    ``in_list``: its number in its list, from 0; None outside of a list."""

    value: Any
    offset: int
    end: int
    line: int
    in_list: int | None = None


class Defect(NamedTuple):
    """Text that is no document: the bytes from ``offset`` to ``end``, where reading goes on. ``at``: where
    parsing fails. ``line``, ``in_list``: as in Document. ``code``: json (``reason`` says what is wrong),
    utf-8, duplicate-member (a parser would keep only one), or too-large (more than ``max_size``
    characters)."""

    code: Code
    offset: int
    end: int
    line: int
    reason: str
    at: int
    in_list: int | None = None


def json_documents(
    source: str | Iterable[bytes], *, offset: int = 0, max_size: int = MAX_SIZE
) -> Iterator[Document | Defect]:
    """The documents and defects of ``source`` in order, lazily. ``source``: a text, or UTF-8 in blocks of any
    size. ``offset``: of its first byte. An OSError of ``source`` is raised after everything before it."""
    return _Reading(source, offset, max_size).read()


class _Break(NamedTuple):
    """A document that fails ``size`` characters behind its start."""

    code: Code
    reason: str
    size: int


class _Reading:
    """``text`` is decoded, and not yet read from ``pos`` on; ``offset`` and ``line`` belong to ``pos``."""

    def __init__(self, source: str | Iterable[bytes], offset: int, max_size: int) -> None:
        self.text, self.pos, self.offset, self.line = "", 0, offset, 1
        self.ended = False
        self._texts = iter([source]) if isinstance(source, str) else self._decode_blocks(source)
        self._error: OSError | None = None
        self._max_size = max_size
        self._repeats = False
        self._decoder = json.JSONDecoder(object_pairs_hook=self._members)

    def read(self) -> Iterator[Document | Defect]:
        #: Where the list began that is open, how many items it had, and whether a comma stands behind the
        #: last.
        start, items, comma = None, 0, True
        size = 1  # characters of the document before, as sizes are often similar
        while True:
            self._fill(1)
            between = _end_of(_BETWEEN, self.text, self.pos)
            comma |= "," in self.text[self.pos : between]
            self._advance(between)
            if self.pos == len(self.text):
                if self.ended:
                    break
                continue
            bracket = self.text[self.pos]
            if bracket == "[" and start is None:
                start, items, comma = (self.offset, self.line), 0, True
                self._advance(self.pos + 1)
                continue
            if bracket == "]":
                if start is not None and not items:
                    yield Document([], start[0], self.offset + 1, start[1])
                start = None
                self._advance(self.pos + 1)
                continue
            if start is not None and not comma:
                # What follows may be the first value of a piece of the file.
                yield Defect("json", start[0], self.offset, start[1], _NO_END, self.offset)
                start = None
            index = items if start is not None else None
            result = self._document(size)
            if isinstance(result, _Break):
                broken = self._defect(result, index)
                self._go_on(result.size)
                yield broken._replace(end=self.offset)
                start, size = None, 1
                continue
            value, size = result
            item = self._checked(value, size, index)
            items, comma = items + 1, False
            self._advance(self.pos + size)
            yield item._replace(end=self.offset)
        if start is not None:
            yield Defect("json", start[0], self.offset, start[1], _NO_END, self.offset)
        if self._error is not None:
            raise self._error

    # -- the text ---------------------------------------------------------------------------------

    def _fill(self, size: int) -> None:
        """Decode at least ``size`` characters from ``pos`` on, if there are so many."""
        lacking = size - (len(self.text) - self.pos)
        if lacking <= 0 or self.ended:
            return
        parts = [self.text[max(self.pos - 1, 0) :]]  # `_RESTART` checks the character before
        self.pos = min(self.pos, 1)
        while lacking > 0 and not self.ended:
            part = next(self._texts, "")
            self.ended = not part
            parts.append(part)
            lacking -= len(part)
        self.text = "".join(parts)

    def _decode_blocks(self, blocks: Iterable[bytes]) -> Iterator[str]:
        utf_8 = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        try:
            yield from filter(None, map(utf_8.decode, blocks))
        except OSError as error:
            self._error = error
        yield utf_8.decode(b"", True)

    def _advance(self, pos: int) -> None:
        """Move to ``pos`` of the text."""
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

    def _go_on(self, size: int) -> None:
        """Move from a document that fails ``size`` characters behind its start to where reading goes on, or
        to the end."""
        # CAP-11: "a broken one MUST NOT hide a sound one that begins a line, or follows 0x1E, at or behind
        # the place where reading it fails."
        # CAP-12: "The work of reading JSON documents MUST grow no faster than the input, whatever is in it."
        self._advance(min(self.pos + max(size, 1), len(self.text)))
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

    def _decode(self, text: str) -> tuple[Any, int]:
        """Raises ValueError, RecursionError."""
        self._repeats = False
        return self._decoder.raw_decode(text)

    def _document(self, expected: int) -> tuple[Any, int] | _Break:
        """The value at ``pos``, and how many characters it has."""
        size = min(max(_LEAST, expected + expected // 4), self._max_size)
        read = 0  # so many characters the decoder has read without an error
        while True:
            self._fill(size)
            # Python counts the lines before an error: of a long text that would cost much time.
            text = self.text[self.pos : self.pos + size]
            is_all = self.ended and self.pos + size >= len(self.text)
            try:
                value, end = self._decode(text)
                # A number may continue: if the text so far ends in 1e+, only 1 is read.
                if is_all or end < len(text) - 2 or isinstance(value, (dict, list)):
                    return value, end
            except json.JSONDecodeError as error:
                end = len(text) if error.msg.startswith("Unterminated string") else error.pos
                if is_all or end < len(text) - _NEAR_END:
                    cut = is_all and not text[end:].strip()
                    return _Break("json", "cut short" if cut else error.msg, end)
            except RecursionError:
                # How deep the decoder goes depends on the program around it, and it does not say where it
                # stopped: behind what it reads without this error.
                if not read and len(text) > 1:
                    size = len(text) // 2
                    continue
                return _Break("json", "nested too deeply", read)
            except ValueError:
                return _Break(
                    "json", "a number of thousands of digits", _end_of(_BEFORE_LONG_NUMBER, text, 0)
                )
            if len(text) >= self._max_size:
                return _Break("too-large", f"more than {self._max_size} characters", len(text))
            read = max(len(text) - _NEAR_END, 1)
            size = min(2 * size, self._max_size)

    def _defect(self, broken: _Break, index: int | None) -> Defect:
        """The defect of the document at ``pos``; ``end`` is not known yet."""
        at = self.offset + self._size(self.pos + broken.size)
        not_utf_8 = self._not_utf_8(max(broken.size, 1), index)
        return not_utf_8 or Defect(broken.code, self.offset, at, self.line, broken.reason, at, index)

    def _not_utf_8(self, size: int, index: int | None) -> Defect | None:
        """The defect of the document at ``pos`` if not all bytes of its ``size`` characters are UTF-8."""
        end = self.pos + size
        bad = None if self.text.isascii() else _NOT_UTF_8.search(self.text, self.pos, end)
        if bad is None:
            return None
        at = self.offset + self._size(bad.start())
        return Defect("utf-8", self.offset, at, self.line, "not UTF-8", at, index)

    def _checked(self, value: Any, size: int, index: int | None) -> Document | Defect:
        defect = self._not_utf_8(size, index)
        if defect is not None:
            return defect
        # CAP-10: "A JSON document in which an object has a member twice MUST be an error: only one of the
        # two would be read."
        if self._repeats:
            reason, at = "a member twice in one object", self.offset
            return Defect("duplicate-member", at, at, self.line, reason, at, index)
        return Document(value, self.offset, self.offset, self.line, index)


def _end_of(pattern: re.Pattern[str], text: str, pos: int) -> int:
    match = pattern.match(text, pos)
    return pos if match is None else match.end()
