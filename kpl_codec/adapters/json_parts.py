"""JSON documents of any size: a large one comes in parts, each with some of its records.

    for found in json_parts(blocks):
        ...                                # as json_documents; parts of one document share its offset

A part has the members before the records, and some of the records:
``{"ShardId": "shardId-0", "Records": [... 1 MiB of them ...]}``, ``[...]`` for a list. The members after the
records of a large document are in no part: a stream or shard name there is a Defect.
Memory: a few times WHOLE_SIZE, or the largest record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from .json_stream import MAX_SIZE, Break, Defect, Document, Reading, end_of

#: A document of more characters comes in parts.
WHOLE_SIZE = 16 * 1024 * 1024
#: About so many characters make a part.
_PART_SIZE = 1024 * 1024
#: Members of a document that hold its records.
_RECORDS = ("Records", "records")
_WHITE_SPACE = re.compile("[ \t\r\n]*")
#: Members that say whose records they are.
_NAMES = ("StreamName", "ShardId", "streamName", "shardId")


def json_parts(
    source: Iterable[bytes],
    *,
    offset: int = 0,
    whole_size: int = WHOLE_SIZE,
    max_size: int = MAX_SIZE,
) -> Iterator[Document | Defect]:
    """As `json_documents`, but a document of more than ``whole_size`` characters comes in parts; a record
    in it of more than ``max_size`` characters is a Defect (too-large)."""
    return _Parts(source, offset, whole_size, max_size).read()


class _Lost(Exception):
    """The rest of the document cannot be read: ``broken`` says why."""

    def __init__(self, broken: Break) -> None:
        super().__init__(broken)
        self.broken = broken


class _Parts(Reading):
    """A reading that splits documents that are too large."""

    def __init__(self, source: Iterable[bytes], offset: int, whole_size: int, max_size: int) -> None:
        super().__init__(source, offset, whole_size)
        self._whole_size, self._record_size = whole_size, max_size

    def _lost(self, broken: Break) -> Iterator[Document | Defect]:
        if broken.code != "too-large" or self.text[self.pos] not in "{[":
            yield from super()._lost(broken)
            return
        offset, line = self.offset, self.line
        self._max_size = self._record_size
        try:
            yield from self._inside(offset, line)
        except _Lost as lost:
            at = self.offset + self._size(lost.broken.end)
            yield Defect(lost.broken.code, offset, line, lost.broken.reason, at)
            self._advance(max(lost.broken.end, self.pos))
            self._shorten()
            self._to_start()
        finally:
            self._max_size = self._whole_size

    def _inside(self, offset: int, line: int) -> Iterator[Document | Defect]:
        """The parts of the object or list at ``pos``."""
        if self._next() == "[":
            yield from self._elements(offset, line, lambda records: records)
            return
        self._advance(self.pos + 1)
        members: dict[str, Any] = {}
        seen: set[str] = set()
        given = False
        while self._next() != "}":
            name = self._value()
            if not isinstance(name, str) or self._next() != ":":
                raise self._no_json("a member without a name")
            self._advance(self.pos + 1)
            if name in seen:
                # CAP-10, as in json_stream.py: only one of the two would be read.
                yield Defect("duplicate-member", offset, line, "a member twice in one object", self.offset)
            seen.add(name)
            if name in _RECORDS and self._next() == "[":
                shared = dict(members)
                yield from self._elements(
                    offset, line, lambda records, name=name, shared=shared: {**shared, name: records}
                )
                given = True
            elif given and name in _NAMES:
                yield Defect("json", offset, line, f"{name} stands behind the records", self.offset)
                self._value()
            else:
                members[name] = self._value()
            self._comma("}")
        self._advance(self.pos + 1)
        if not given:
            yield Document(members, offset, line)

    def _elements(self, offset: int, line: int, part: Any) -> Iterator[Document | Defect]:
        """The elements of the list at ``pos``, in groups."""
        self._advance(self.pos + 1)
        held: list[Any] = []
        size = 0
        while self._next() != "]":
            before = self.offset
            found = self._document()
            if isinstance(found, Break):
                if held:
                    yield Document(part(held), offset, line)
                    held, size = [], 0
                if found.code == "too-large" and self.text[self.pos] in "{[":
                    yield from self._inside(offset, line)  # an answer that is large itself
                    self._comma("]")
                    continue
                raise _Lost(found)
            document, end = found
            if isinstance(document, Defect):
                yield document
            else:
                held.append(document.value)
            expected = end - self.pos
            self._advance(end)
            self._comma("]")
            size += self.offset - before
            if size >= _PART_SIZE:
                yield Document(part(held), offset, line)
                held, size = [], 0
            self._fill(2 * expected)  # the next one often has the same size
        self._advance(self.pos + 1)
        if held:
            yield Document(part(held), offset, line)

    def _value(self) -> Any:
        """The value at ``pos``; moves ``pos`` to its end."""
        self._next()
        found = self._document()
        if isinstance(found, Break):
            raise _Lost(found)
        document, end = found
        if isinstance(document, Defect):
            raise _Lost(Break(document.code, document.reason, end))
        self._advance(end)
        return document.value

    def _next(self) -> str:
        """Moves to the next character that is not white space, and returns it. Raises _Lost at the end."""
        while True:
            self._fill(1)
            self._advance(end_of(_WHITE_SPACE, self.text, self.pos))
            if self.pos < len(self.text):
                return self.text[self.pos]
            if self.ended:
                raise self._no_json("the document has no end")

    def _comma(self, closing: str) -> None:
        """Skips a comma; another value must follow it, not ``closing``."""
        if self._next() == closing:
            return
        if self._next() != ",":
            raise self._no_json("a comma is missing")
        self._advance(self.pos + 1)
        if self._next() == closing:
            raise self._no_json("a comma without a value behind it")

    def _no_json(self, reason: str) -> _Lost:
        return _Lost(Break("json", reason, self.pos))
