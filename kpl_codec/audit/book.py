"""The ledgers of one side, read: their rows, and where rows may be lacking.

    files, log lines ──▶ chunks ──▶ Book.add ──▶ segments of writers ──▶ rows, holes

Specification: spec/15-audit.md, AUD-3 to AUD-8.
"""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

from ..ledger import Ranges, Row, chunks, rows_of

#: How the name of a segment's file ends; before it its writer, a dash and its number.
SUFFIX: Final = ".kpl-ledger"
_NAME: Final = re.compile(r"(?:.*[/\\])?(.+)-(\d+)" + re.escape(SUFFIX) + r"\Z")
#: The member of a log line that is a chunk.
LINE: Final = "kpl_ledger"


class Hole(NamedTuple):
    """Rows that a ledger may lack; ``why`` in words. ``ranges``: between which Kinesis records they lie, None
    if that is not known."""

    writer: str
    why: str
    ranges: Ranges | None = None


class _Segment:
    def __init__(self) -> None:
        self.blocks: dict[int, bytes] = {}
        self.header: dict[str, Any] | None = None
        self.end: dict[str, Any] | None = None
        self.last = 0  # the index of the end mark


def _facts(payload: bytes, wanted: Collection[str]) -> dict[str, Any] | None:
    """What a header or an end mark says; None if that is something else."""
    try:
        facts = json.loads(payload)
    except ValueError:
        return None
    return facts if isinstance(facts, dict) and facts.keys() >= set(wanted) else None


class Book:
    """All segments of the ledgers of one side. The same chunk twice counts once."""

    def __init__(self) -> None:
        self._writers = defaultdict[str, dict[int, _Segment]](dict)
        self._damaged: list[Hole] = []

    def __bool__(self) -> bool:
        return bool(self._writers or self._damaged)

    def add_file(self, name: str, data: bytes) -> None:
        """A segment's file, by whose name its writer is known."""
        match = _NAME.match(name)
        if match is None:
            self._damaged.append(Hole(name, f"{name}: a ledger of an unknown writer"))
        else:
            self._add(match[1], int(match[2]), data)

    def add_lines(self, name: str, data: bytes) -> bool:
        """Log lines, some of which are chunks. Gives whether one is."""
        ours = False
        for line in data.split(b"\n"):
            at = line.find(b'{"%s"' % LINE.encode())
            if at < 0:
                continue
            ours = True
            try:
                told, _ = json.JSONDecoder().raw_decode(line[at:].decode())
                chunk = base64.b64decode(told["chunk"], validate=True)
                self._add(str(told[LINE]), int(told["segment"]), chunk)
            except (ValueError, KeyError, TypeError):
                self._damaged.append(Hole(name, f"{name}: a line of a ledger that cannot be read"))
        return ours

    def _add(self, writer: str, number: int, data: bytes) -> None:
        segment = self._writers[writer].setdefault(number, _Segment())
        for kind, index, payload in chunks(data):
            if kind == b"H":
                segment.header = _facts(payload, ("stream", "side", "before"))
            elif kind == b"E":
                segment.end, segment.last = _facts(payload, ("last", "next", "lost", "ranges")), index
            else:
                segment.blocks[index] = payload

    @property
    def streams(self) -> set[str]:
        return {
            segment.header["stream"]
            for segments in self._writers.values()
            for segment in segments.values()
            if segment.header is not None
        }

    def _of_side(self, side: str) -> Iterator[tuple[str, dict[int, _Segment]]]:
        for writer, segments in sorted(self._writers.items()):
            if side in {segment.header["side"] if segment.header else side for segment in segments.values()}:
                yield writer, dict(sorted(segments.items()))

    def rows(self, side: str) -> Iterator[tuple[str, list[Row]]]:
        """Each writer of ``side`` and its rows, block by block. Blocks that cannot be read are holes."""
        for writer, segments in self._of_side(side):
            for segment in segments.values():
                for index, payload in sorted(segment.blocks.items()):
                    rows = rows_of(payload)
                    if rows is None:
                        del segment.blocks[index]
                    else:
                        yield writer, rows

    def holes(self, side: str) -> list[Hole]:
        """Where rows may be lacking. To be asked for when all rows were read."""
        found = (self._holes_of(writer, segments, side) for writer, segments in self._of_side(side))
        return [*self._damaged, *chain.from_iterable(found)]

    def _holes_of(self, writer: str, segments: dict[int, _Segment], side: str) -> Iterator[Hole]:
        last, before = max(segments), -1
        for number, segment in segments.items():
            if number > before + 1:
                known = number == before + 2 and segment.header
                gap = f"{before + 1}" if number == before + 2 else f"{before + 1} to {number - 1}"
                yield Hole(writer, f"segment {gap} is not there", known["before"] if known else None)
            before, after, end = number, segments.get(number + 1), segment.end
            # AUD-5: "A segment without its end mark, a number that is left out, and a last segment whose end
            # mark does not say that it is the last MUST make the ledger incomplete."
            have = (segment.header is not None) + sum(index < segment.last for index in segment.blocks)
            if end is None or have != segment.last:
                ranges = end["ranges"] if end else after.header["before"] if after and after.header else None
                why = "has no end mark" if end is None else "lacks blocks"
                if number < last or end is not None or side == "produced":
                    yield Hole(writer, f"segment {number} {why}", ranges)
            # AUD-7: "A consumer's rows MUST be stored before the records count as handled": a consumer that
            # ends without an end mark has named all that will not come again.
            if number == last and end is not None and not end["last"] and (side == "produced" or end["next"]):
                yield Hole(writer, f"it was not closed, or segment {number + 1} is not there")
            if end is not None and end["lost"]:
                yield Hole(writer, f"{end['lost']} rows of segment {number} could not be written")
