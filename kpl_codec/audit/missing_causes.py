"""Finds why user records are missing, from their Kinesis records if the stream still holds these.

Specification: spec/15-audit.md, AUD-16.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np

from ..deaggregation.deaggregated_record import DeaggregatedRecord
from ..deaggregation.policies import opened
from ..findings import Finding
from ..format.records import KinesisRecord
from ..shards.placement import CAUSES, Causes, time_of_hint
from ..shards.shard_map import ShardMap
from .index import Index, Run, Runs, Tally, runs_of

#: How many Kinesis records one call asks for: it often returns the next missing one, too.
_READ_ON: Final = 200
#: Bytes of Kinesis records that are fetched, at most.
_MOST_BYTES: Final = 1 << 28


class FetchedRecords(NamedTuple):
    """Kinesis records by shard id and sequence number; ``gone``: the names of those that the stream does not
    have any more."""

    records: Mapping[tuple[str, str], KinesisRecord] = {}
    gone: frozenset[tuple[str, str]] = frozenset()


def fetch(
    client: Any, stream: str | None, shard_map: ShardMap | None, places: Iterable[tuple[str, str]]
) -> FetchedRecords:
    """Fetch the Kinesis records with these shard ids and sequence numbers, up to `_MOST_BYTES`; without a
    shard map none. Raises StreamUnavailable."""
    from ..aws.fetch_by_sequence_number import GoneRecord, RecordLocation, fetch_records

    if shard_map is None or stream is None:
        return FetchedRecords()
    locations = {RecordLocation(*place) for place in places}
    listed = [place for place in locations if place.shard_id in shard_map]
    listed.sort(key=lambda place: (place.shard_id, int(place.sequence_number)))
    records: dict[Any, KinesisRecord] = {}
    gone: set[Any] = {place[:2] for place in locations if place.shard_id not in shard_map}
    size = 0
    for item in fetch_records(client, stream, listed, read_on=_READ_ON):
        if isinstance(item, GoneRecord):
            gone.add(item.location[:2])
        elif isinstance(item, KinesisRecord):
            records[item.shard_id, item.sequence_number] = item
            size += len(item.data)
            if size >= _MOST_BYTES:
                break
    return FetchedRecords(records, frozenset(gone))


@dataclass
class MissingCauses:
    """Makes the finding on each run of missing user records."""

    index: Index
    tally: Tally
    shard_map: ShardMap | None
    fetched: FetchedRecords

    @cached_property
    def _causes(self) -> Causes | None:
        return None if self.shard_map is None else Causes(self.shard_map)

    def findings(self, missing: Runs) -> Iterator[Finding]:
        neighbours = _neighbours(self.index, self.tally, missing)
        numbered = zip(runs_of(self.index, missing), neighbours, strict=True)
        for place, runs in groupby(numbered, key=lambda run: run[0][:2]):
            record = self.fetched.records.get(place)
            user_records = () if record is None else opened([record], "report", shard_map=self.shard_map)
            by_sub = {one.sub_sequence_number: one for one in user_records if one.is_user_record}
            for run, near in runs:
                kind, cause, detail = self._cause(run, record, by_sub, near)
                if run.last > run.first:
                    detail = f"user records {run.first} to {run.last}: {detail}"
                yield run.finding(kind, detail, cause)

    def _cause(
        self,
        run: Run,
        record: KinesisRecord | None,
        by_sub: Mapping[Any, DeaggregatedRecord],
        near: tuple[int, int],
    ) -> tuple[str, str | None, str]:
        """Kind, cause and detail of the finding."""
        # AUD-16: "The cause of a missing user record MUST be one of these, by what the stream still holds:
        # dropped by the KCL's rule, broken, past retention, on a shard of which nothing was ever handled, or
        # sound and never handled."
        if run[:2] in self.fetched.gone:
            return "audit-expired", None, "the stream does not have it any more"
        if record is not None:
            user_record = by_sub.get(run.first)
            if user_record is not None and user_record.defects:
                return "audit-broken", None, str(user_record.defects[0])
            if user_record is None or user_record.kcl == "raw":
                return "audit-broken", None, "not an aggregate"
            if user_record.kcl == "dropped":
                return "audit-dropped", *self._drop_cause(record, by_sub)
        if run.shard_id not in self.tally.handled_shards:
            return "audit-unread", None, "no user record of this shard was ever handled"
        return "audit-missing", None, self._between(near)

    def _drop_cause(
        self, record: KinesisRecord, by_sub: Mapping[Any, DeaggregatedRecord]
    ) -> tuple[str | None, str]:
        """Cause and detail of the finding on an aggregate that the KCL drops."""
        placements = {sub: one.placement for sub, one in by_sub.items() if one.placement}
        keys = [one.hash_key for one in placements.values() if one.hash_key is not None]
        if self._causes is None or not keys:
            return None, "the KCL drops its aggregate"
        time = time_of_hint(record.sequence_number)
        cause = self._causes.of(record.shard_id or "", min(keys), max(keys), time).name
        outside = next((sub for sub, one in placements.items() if not one.in_range), None)
        which = "" if outside is None else f"user record {outside} is outside its shard: "
        return cause, f"the KCL drops its aggregate; {which}{CAUSES[cause]}"

    def _between(self, near: tuple[int, int]) -> str:
        """Which user records of the shard were handled just before and after a run."""
        texts = []
        for at, which in zip(near, ("before", "after"), strict=True):
            if at >= 0:
                record = int(self.index.record_of(at))
                number = self.index.place(record)[1]
                texts.append(f"{number}/{at - self.index.starts[record]} {which} it")
        return f"the consumer handled {' and '.join(texts) or 'nothing near it'}"


def _neighbours(index: Index, tally: Tally, runs: Runs) -> list[tuple[int, int]]:
    """Of each run the user records of its shard that were handled just before and just after it; -1: none."""
    before, after = (np.full(len(runs.record), -1) for _ in range(2))
    if not len(runs.record):
        return []
    shard, handled = index.shard[runs.record].astype(np.int64), tally.handled()
    wide = np.int64(len(handled) + 1)
    slices = [*index.slices()]
    for found, ends, ways in ((before, runs.start, slices), (after, runs.stop - 1, slices[::-1])):
        is_before = found is before
        nearest = np.full(len(index.shards), -1)  # of each shard, in the slices so far
        for low, high in ways:
            at = np.flatnonzero(handled[low:high]) + low
            keys = np.sort(index.shard[index.record_of(at)] * wide + at)
            if not len(keys):
                keys = np.array([-1])
            here = np.flatnonzero((ends >= low) & (ends < high))
            wanted = shard[here] * wide + ends[here]
            place = np.searchsorted(keys, wanted) - is_before
            padded = np.append(keys, -1)
            inside = np.where((place >= 0) & (place < len(keys)), padded[place], -1)
            same = (inside >= 0) & (inside // wide == shard[here])
            found[here] = np.where(same, inside % wide, nearest[shard[here]])
            shards, first = np.unique(keys[keys >= 0] // wide, return_index=True)
            last = np.append(first[1:], len(keys)) - 1
            nearest[shards] = keys[last if is_before else first] % wide
    return [*zip(before.tolist(), after.tolist(), strict=True)]
