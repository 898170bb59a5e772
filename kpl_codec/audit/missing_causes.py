"""Why user records are missing: their Kinesis records are fetched while retention lasts, and judged.

Specification: spec/15-audit.md, AUD-16.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np

from ..deaggregation.deaggregated_record import DeaggregatedRecord
from ..deaggregation.policies import deaggregate
from ..findings import Finding
from ..format.records import KinesisRecord
from ..shards.placement import CAUSES, Causes, time_of_hint
from ..shards.shard_map import ShardMap
from .user_record_index import HandledCounts, Run, Runs, UserRecordIndex, runs_in, runs_of

#: Kinesis records asked for at a time: the next one that is wanted is often near.
_READ_ON: Final = 200
#: Bytes of Kinesis records that are fetched, at most.
_MOST_BYTES: Final = 1 << 28
#: User records beside a missing one of which a handled one is looked for.
_NEAR: Final = 100_000


class Fetched(NamedTuple):
    """What the stream still holds. ``gone``: those that it does not."""

    records: Mapping[tuple[str, str], KinesisRecord] = {}
    gone: frozenset[tuple[str, str]] = frozenset()


def fetch(
    client: Any, stream: str | None, shard_map: ShardMap | None, places: Iterable[tuple[str, str]]
) -> Fetched:
    """Fetch Kinesis records, as many as `_MOST_BYTES` hold; none without a map. Raises StreamUnavailable."""
    from ..aws.fetch_by_sequence_number import GoneRecord, RecordLocation, fetch_records

    if shard_map is None or stream is None:
        return Fetched()
    ordered = sorted(
        {RecordLocation(*place) for place in places}, key=lambda place: (place[0], int(place[1]))
    )
    locations = [place for place in ordered if place.shard_id in shard_map]
    records: dict[Any, KinesisRecord] = {}
    gone: set[Any] = {place[:2] for place in ordered if place.shard_id not in shard_map}
    size = 0
    for item in fetch_records(client, stream, locations, read_on=_READ_ON):
        if isinstance(item, GoneRecord):
            gone.add(item.location[:2])
        if not isinstance(item, KinesisRecord):
            continue
        records[item.shard_id, item.sequence_number] = item
        size += len(item.data)
        if size >= _MOST_BYTES:
            break
    return Fetched(records, frozenset(gone))


class MissingCauses:
    """The finding of each run of missing user records. Without ``fetched`` only what the tally shows."""

    def __init__(
        self, names: UserRecordIndex, tally: HandledCounts, shard_map: ShardMap | None, fetched: Fetched
    ) -> None:
        self._names, self._tally, self._map, self._fetched = names, tally, shard_map, fetched
        self._causes = Causes(shard_map) if shard_map is not None else None

    def findings(self, missing: Runs) -> Iterator[Finding]:
        """Of missing user records."""
        for place, runs in groupby(runs_of(self._names, missing), key=lambda run: run[:2]):
            record = self._fetched.records.get(place)
            user_records = () if record is None else deaggregate([record], "report", shard_map=self._map)
            users = {user.sub_sequence_number: user for user in user_records}
            for run in runs:
                kind, cause, detail = self._of(run, record, users)
                if run.last > run.first:
                    detail = f"user records {run.first} to {run.last}: {detail}"
                yield run.finding(kind, detail, cause)

    def _of(
        self, run: Run, record: KinesisRecord | None, users: Mapping[int, DeaggregatedRecord]
    ) -> tuple[str, str | None, str]:
        # AUD-16: "The cause of a missing user record MUST be one of these, by what the stream still holds:
        # dropped by the KCL's rule, broken, past retention, on a shard of which nothing was ever handled, or
        # sound and never handled."
        if run[:2] in self._fetched.gone:
            return "audit-expired", None, "the stream does not hold it any more"
        if record is not None:
            user = users.get(run.first)
            if user is None or user.defects or user.kcl == "raw":
                broken = str(user.defects[0]) if user and user.defects else "not an aggregate"
                return "audit-broken", None, broken
            if user.kcl == "dropped":
                return "audit-dropped", *self._drop_cause(record, users.values())
        if run.shard_id not in self._tally.handled_shards:
            return "audit-unread", None, "nothing of this shard was ever handled"
        return "audit-missing", None, self._neighbours(run)

    def _drop_cause(
        self, record: KinesisRecord, users: Iterable[DeaggregatedRecord]
    ) -> tuple[str | None, str]:
        placements = {user.sub_sequence_number: user.placement for user in users if user.placement}
        keys = [one.hash_key for one in placements.values() if one.hash_key is not None]
        if self._causes is None or not keys:
            return None, "the KCL drops its aggregate"
        when = time_of_hint(record.sequence_number)
        cause = self._causes.of(record.shard_id or "", min(keys), max(keys), when).name
        outside = next((sub for sub, one in placements.items() if not one.in_range), None)
        which = "" if outside is None else f"user record {outside} is outside its shard: "
        return cause, f"the KCL drops its aggregate; {which}{CAUSES[cause]}"

    def _neighbours(self, run: Run) -> str:
        names, at = self._names, self._names.user_record(run[:3])
        assert at is not None
        code = names.shard[names.record_of(at)]
        low, high = names.starts[names.bounds[code : code + 2]]
        before = np.flatnonzero(self._tally.times[max(low, at - _NEAR) : at])[-1:] + max(low, at - _NEAR)
        after = np.flatnonzero(self._tally.times[at : min(high, at + _NEAR)])[:1] + at
        neighbours = [
            f"{near.sequence_number}/{near.first} {word} it"
            for word, users in (("before", before), ("after", after))
            for near in runs_of(names, runs_in(names, users, self._tally.times[users]))
        ]
        return f"handled were {' and '.join(neighbours)}" if neighbours else "nothing near it was handled"
