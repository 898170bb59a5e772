"""What became of all that was given to read: an account of each file or shard, kept while it is read, and
closed at the end.

What a source holds is a figure that the code which reads it does not make: the bytes of a file as the listing
has them, the rows of a Parquet file as its footer has them, a shard to its end. What was read of it, or named
in a finding, are spans of the same unit. A source whose spans are not all of it is a finding `not-accounted`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from ..findings import Finding
from ..rendering.labels import number, plural, size

#: Codes of rows about a record that was read.
_READ_ANYWAY = frozenset(("timestamp",))

Unit = Literal["byte", "row", "shard"]


@dataclass(slots=True)
class SourceAccount:
    """One file or shard. It holds ``whole`` of ``unit``, and ``spans`` of that were read or named, in the
    order in which they came. ``size``: its bytes, 0 of a shard. ``records`` were given on, ``named`` rows say
    what could not be read, ``empty`` JSON values are known to hold no record. ``stopped``: a finding says
    that it was not read, or not to its end; ``left_out``: it is hidden, or belongs to results."""

    whole: int
    unit: Unit = "byte"
    size: int = 0
    spans: list[list[int]] = field(default_factory=list)
    records: int = 0
    named: int = 0
    empty: int = 0
    stopped: bool = False
    left_out: bool = False

    def cover(self, begin: int, end: int) -> None:
        """All between ``begin`` and ``end`` was read, or named in a finding."""
        if self.spans and self.spans[-1][1] == begin:
            self.spans[-1][1] = end
        elif end > begin:
            self.spans.append([begin, end])

    def count(self, rows: pa.RecordBatch | list[dict[str, Any]]) -> None:
        """Rows of CAPTURE_SCHEMA are given on."""
        if isinstance(rows, pa.RecordBatch):
            errors = rows["captureError"]
            codes = errors.drop_null().to_pylist() if errors.null_count < len(errors) else []
        else:
            codes = [row["captureError"] for row in rows if row["captureError"] is not None]
        self.records += len(rows) - len(codes)
        self.named += sum(code not in _READ_ANYWAY for code in codes)

    def add(self, other: SourceAccount) -> None:
        """Add what another task, or another piece, says of the same source."""
        if not self.spans:
            self.whole, self.unit = other.whole, other.unit
        elif other.spans and (self.unit, self.whole) != (other.unit, other.whole):
            self.spans.append([-1, -1])  # they disagree on what it holds: it does not close
        self.spans += other.spans
        self.size = max(self.size, other.size)
        self.records += other.records
        self.named += other.named
        self.empty += other.empty
        self.stopped |= other.stopped
        self.left_out |= other.left_out

    def gaps(self) -> Iterator[str]:
        """What was neither read nor named, or was read twice; nothing if the account closes."""
        if self.stopped or self.left_out:
            return
        at, unit = 0, self.unit
        for begin, end in [*sorted(self.spans), [self.whole, self.whole]]:
            if begin < 0:
                yield "two readings of it disagree on what it holds: it changed meanwhile"
            elif begin > at:
                part = f"{unit}s {number(at)} to {number(begin)} of {number(self.whole)}"
                yield "it was not read" if unit == "shard" else f"{part} were neither read nor named"
            elif begin < min(at, self.whole):
                yield f"{unit}s {number(begin)} to {number(min(at, end))} were read twice"
            at = max(at, end)

    @property
    def is_whole(self) -> bool:
        """Whether all of it was read."""
        return not (self.named or self.stopped or self.left_out or any(self.gaps()))


class AccountFacts(NamedTuple):
    """An account added up. ``sources``: files, or shards, that were given; ``whole``: those of which all was
    read; ``left_out``: hidden ones, and results. ``records``: Kinesis records, or user records that were
    captured one by one; ``unread``: places that findings name; ``empty``: JSON values that hold no record."""

    unit: Literal["file", "shard"]
    sources: int
    whole: int
    left_out: int
    bytes: int
    records: int
    unread: int
    empty: int

    def sentence(self) -> str:
        """In one line: "All 34 files were read whole: 163,706 records in 1.2 GB"."""
        given = self.sources - self.left_out
        held = plural(self.records, "record") + (f" in {size(self.bytes)}" if self.unit == "file" else "")
        if self.whole == given:
            each = f"All {plural(given, self.unit)} were" if given != 1 else f"The {self.unit} was"
            text = f"{each} read whole: {held}"
        else:
            were = "was" if given - self.whole == 1 else "were"
            part = f"{number(given - self.whole)} of {plural(given, self.unit)} {were} not read whole"
            text = f"{part}: what was read is {held}"
        left_out = f"; {plural(self.left_out, self.unit)} left out" if self.left_out else ""
        return f"{text}{left_out}."


class Account:
    """The accounts of many sources, by path or shard id. ``checked``: how many of the records that were read
    arrived where they are checked; ``rows``: how many rows of results were written, by their folder."""

    def __init__(self) -> None:
        self.sources: dict[str, SourceAccount] = {}
        self.checked = 0
        self.rows = Counter[str]()

    def of(self, name: str, whole: int, *, unit: Unit = "byte") -> SourceAccount:
        """The account of a source, which may have several pieces."""
        source = SourceAccount(whole, unit, whole if unit == "byte" else 0)
        return self.sources.setdefault(name, source)

    def add(self, other: Account) -> None:
        self.checked += other.checked
        self.rows.update(other.rows)
        for name, source in other.sources.items():
            if name in self.sources:
                self.sources[name].add(source)
            else:
                self.sources[name] = source

    def to_bytes(self) -> bytes:
        """As JSON (UTF-8); `from_bytes` reads it back."""
        sources = {name: asdict(source) for name, source in self.sources.items()}
        return json.dumps({"checked": self.checked, "rows": self.rows, "sources": sources}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Account:
        account, values = cls(), json.loads(data)
        account.checked, account.rows = values["checked"], Counter(values["rows"])
        account.sources = {name: SourceAccount(**source) for name, source in values["sources"].items()}
        return account

    def findings(self, given: Collection[str], *, checked: bool = True) -> Iterator[Finding]:
        """What does not add up. ``given``: the names of all sources that there were. ``checked``: whether the
        records were to be checked."""
        # ACC-1: "All of each file and shard that is given MUST be read, named in a finding, known to be empty
        # or left out. What is not MUST be an error that names it, and nothing is then called clean."
        for name in sorted(given):
            if name in self.sources:
                yield from (_finding(name, gap) for gap in self.sources[name].gaps())
            else:
                yield _finding(name, "no task says what it read of it")
        for name in sorted(self.sources.keys() - given):
            yield _finding(name, "it was read, and was not given")
        read = sum(source.records for source in self.sources.values())
        if checked and read != self.checked:
            detail = f"{plural(read, 'record')} read, {number(self.checked)} checked"
            yield Finding("not-accounted", detail=detail)

    def facts(self, given: Collection[str]) -> AccountFacts:
        sources = [source for source in self.sources.values() if not source.left_out]
        return AccountFacts(
            "shard" if any(source.unit == "shard" for source in sources) else "file",
            len(given),
            sum(source.is_whole for source in sources),
            len(self.sources) - len(sources),
            sum(source.size for source in sources),
            sum(source.records for source in sources),
            sum(source.named for source in sources),
            sum(source.empty for source in sources),
        )


def _finding(name: str, detail: str) -> Finding:
    if "/" in name:
        return Finding("not-accounted", file=name, detail=detail)
    return Finding("not-accounted", shard_id=name or None, detail=detail)
