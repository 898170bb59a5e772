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
from .user_record_index import HandledCounts, Run, UserRecordIndex

#: How many Kinesis records one call asks for: it often returns the next missing one, too.
_READ_ON: Final = 200
#: Bytes of Kinesis records that are fetched, at most.
_MOST_BYTES: Final = 1 << 28
#: User records before and after a missing one, among which the next handled one is looked for.
_NEAR: Final = 100_000


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

    names: UserRecordIndex
    tally: HandledCounts
    shard_map: ShardMap | None
    fetched: FetchedRecords

    @cached_property
    def _causes(self) -> Causes | None:
        return None if self.shard_map is None else Causes(self.shard_map)

    def findings(self, missing: Iterable[Run]) -> Iterator[Finding]:
        for place, runs in groupby(missing, key=lambda run: run[:2]):
            record = self.fetched.records.get(place)
            user_records = () if record is None else opened([record], "report", shard_map=self.shard_map)
            by_sub = {user_record.sub_sequence_number: user_record for user_record in user_records}
            for run in runs:
                kind, cause, detail = self._cause(run, record, by_sub)
                if run.last > run.first:
                    detail = f"user records {run.first} to {run.last}: {detail}"
                yield run.finding(kind, detail, cause)

    def _cause(
        self, run: Run, record: KinesisRecord | None, by_sub: Mapping[Any, DeaggregatedRecord]
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
        return "audit-missing", None, self._neighbours(run)

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

    def _neighbours(self, run: Run) -> str:
        """Which user records of the shard were handled just before and after a run."""
        names, times, at = self.names, self.tally.times, self.names.user_record(run[:3])
        assert at is not None
        code = names.shard[names.record_of(at)]
        low, high = names.starts[names.bounds[code : code + 2]]
        low, high = max(low, at - _NEAR), min(high, at + _NEAR)
        handled = np.append(np.flatnonzero(times[low:at])[-1:] + low, np.flatnonzero(times[at:high])[:1] + at)
        neighbours = []
        for near, record in zip(handled.tolist(), names.record_of(handled).tolist(), strict=True):
            name = f"{names.rows[record].sequence_number}/{near - names.starts[record]}"
            neighbours.append(f"{name} {'before' if near < at else 'after'} it")
        return f"the consumer handled {' and '.join(neighbours) or 'nothing near it'}"
