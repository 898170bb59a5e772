"""Counters of limited size, one `Tally` per task, which `Tally.merge_all` adds up. Below the limits the sum
does not depend on the order or number of tallies; above `MAX_SHARDS` shard ids, further ones count for
`OTHERS`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import datetime, timezone
from functools import partial, reduce
from hashlib import blake2b
from heapq import nsmallest
from operator import add, attrgetter
from typing import Any, Literal

from . import Finding, camel_keys

#: How many shard ids are counted separately.
MAX_SHARDS = 10_000
#: How many combinations of shard, expected shard and verdict are counted separately.
MAX_GROUPS = 50_000
#: The most cells (a shard in a time bucket); when there are more, the buckets are made longer.
MAX_CELLS = 60_000
#: How many findings of each kind are kept as examples.
MAX_EXAMPLES = 250
#: How many names of streams are kept.
MAX_STREAMS = 8
#: The years 1 to 9000: a time outside counts as missing, and no sum of times leaves the calendar.
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 221_845_392_000
#: The shard id that stands for all shards above `MAX_SHARDS`.
OTHERS = "(other shards)"
#: Seconds that a time bucket may have; each is a multiple of the one before.
_LADDER = (1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400, 172_800, 345_600)

Table = Literal["groups", "shards", "cells", "causes", "kinds"]


def least(*values: Any, of: Callable[..., Any] = min) -> Any:
    """The smallest of the values that are not None; None where all are."""
    return of((value for value in values if value is not None), default=None)


most = partial(least, of=max)
#: Every table, and how each value of its rows is added up.
_SUMS = {
    "groups": (add, add, least),
    "shards": (add, add, least, most),
    "cells": (add, add, add),
    "causes": (add, add, add),
    "kinds": (add, add),
}
_place = attrgetter(
    "shard_id", "sequence_number", "sub_sequence_number", "record_index", "file", "line", "offset"
)


def _sample_key(finding: Finding) -> tuple[bytes, str]:
    place = repr(_place(finding))
    return blake2b(place.encode("utf-8", "surrogatepass"), digest_size=8).digest(), place


def sample(findings: Iterable[Finding], count: int) -> list[Finding]:
    """An even sample of at most ``count`` findings, independent of their order."""
    return nsmallest(count, findings, key=_sample_key)


class Tally:
    """Tables of sums, which `add` adds to. All may be read.

    ``records``: Kinesis records: kinesis (all), plain, broken, aggregated; and of the aggregated ones mixed
    and foreign. ``groups``: (shard, expected shard, verdict, kcl) -> user records, bytes, a sequence number.
    ``shards``: shard -> Kinesis records, aggregated records, first arrival, last arrival (seconds, or None).
    ``cells``: (bucket start in seconds, shard) -> user records, bytes, dropped.
    ``causes``: cause -> aggregates with user records outside their shard's range, user records, dropped.
    ``kinds``: kind -> findings, user records. ``examples``: kind -> findings.
    """

    def __init__(self, bucket_seconds: int = 1) -> None:
        self.records: Counter[str] = Counter()
        self.groups: dict[tuple[str | None, ...], list[Any]] = {}
        self.shards: dict[str | None, list[Any]] = {}
        self.bucket_seconds = bucket_seconds
        self.cells: dict[tuple[int, str | None], list[int]] = {}
        self.causes: dict[str, list[int]] = {}
        self.kinds: dict[str, list[int]] = {}
        self.examples: dict[str, list[Finding]] = {}
        self.streams: set[str] = set()

    def add(self, table: Table, key: Any, *values: Any) -> None:
        """Add ``values`` to the row ``key``. The key of a cell is any second and a shard: the cell is that of
        the second's bucket."""
        if table == "shards":
            key = self._counted_shard(key)
        elif table == "groups":
            key = self._counted_shard(key[0]), *key[1:]
            if key not in self.groups and len(self.groups) >= MAX_GROUPS:
                key = key[0], OTHERS, *key[2:]
        elif table == "cells":
            key = key[0] - key[0] % self.bucket_seconds, self._counted_shard(key[1])
        rows = getattr(self, table)
        if key in rows:
            sums = zip(_SUMS[table], rows[key], values, strict=True)
            values = tuple(how(one, other) for how, one, other in sums)
        rows[key] = list(values)
        if table == "cells" and len(rows) > MAX_CELLS:
            self._coarsen()

    def _counted_shard(self, shard_id: str | None) -> str | None:
        if shard_id not in self.shards and len(self.shards) >= MAX_SHARDS:
            shard_id = OTHERS
        self.shards.setdefault(shard_id, [0, 0, None, None])
        return shard_id

    def _coarsen(self, seconds: int | None = None) -> None:
        while self.bucket_seconds < seconds if seconds else len(self.cells) > MAX_CELLS:
            if seconds is None and len({start for start, _ in self.cells}) <= 1:
                return  # one bucket holds all cells: there are that many shards
            longer = (step for step in _LADDER if step > self.bucket_seconds)
            self.bucket_seconds = next(longer, self.bucket_seconds * 2)
            before, self.cells = self.cells, {}
            for key, cell in before.items():
                self.add("cells", key, *cell)

    def add_finding(self, finding: Finding) -> None:
        """Count a finding, and keep it if it is in the sample."""
        self.add("kinds", finding.kind, 1, finding.user_records or 0)
        examples = self.examples.setdefault(finding.kind, [])
        examples.append(finding)
        if len(examples) >= 4 * MAX_EXAMPLES:
            self.examples[finding.kind] = sample(examples, MAX_EXAMPLES)

    def merge(self, other: Tally) -> Tally:
        self.records += other.records
        self._coarsen(other.bucket_seconds)
        for table in _SUMS:
            for key, values in getattr(other, table).items():
                self.add(table, key, *values)  # type: ignore[arg-type]
        for kind, findings in other.examples.items():
            self.examples[kind] = sample(self.examples.get(kind, []) + findings, MAX_EXAMPLES)
        self.streams = set(sorted(self.streams | other.streams)[:MAX_STREAMS])
        return self

    @classmethod
    def merge_all(cls, tallies: Iterable[Tally]) -> Tally:
        return reduce(cls.merge, tallies, cls())

    def to_bytes(self) -> bytes:
        """As JSON (UTF-8); `from_bytes` reads it back."""
        values = {**vars(self), "streams": sorted(self.streams)}
        values.update((table, list(values[table].items())) for table in _SUMS)
        values["examples"] = {
            kind: [finding_row(finding) for finding in sample(findings, MAX_EXAMPLES)]
            for kind, findings in self.examples.items()
        }
        return json.dumps(values).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Tally:
        """The tally that `to_bytes` wrote. Raises ValueError for anything else."""
        values = json.loads(data)
        tally = cls()
        if not isinstance(values, dict) or values.keys() != vars(tally).keys():
            raise ValueError("not a tally")
        for table in _SUMS:
            values[table] = {tuple(key) if isinstance(key, list) else key: row for key, row in values[table]}
        values["records"], values["streams"] = Counter(values["records"]), set(values["streams"])
        values["examples"] = {
            kind: [_finding_of(row) for row in rows] for kind, rows in values["examples"].items()
        }
        vars(tally).update(values)
        return tally


def finding_row(finding: Finding) -> dict[str, Any]:
    """The fields of a finding that apply, for JSON; the time is a text."""
    row = {name: value for name, value in asdict(finding).items() if value is not None}
    if finding.approximate_arrival_timestamp is not None:
        row["approximate_arrival_timestamp"] = finding.approximate_arrival_timestamp.isoformat()
    return row


def finding_facts(finding: Finding) -> dict[str, Any]:
    """The severity and fields of a finding, those that apply, named as the columns of findings/."""
    return camel_keys({"severity": finding.severity, **finding_row(finding)})


def _finding_of(row: dict[str, Any]) -> Finding:
    text = row.get("approximate_arrival_timestamp")
    time = datetime.fromisoformat(text).astimezone(timezone.utc) if text is not None else None
    return Finding(**{**row, "approximate_arrival_timestamp": time})
