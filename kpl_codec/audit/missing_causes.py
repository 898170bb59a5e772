"""Finds why user records are missing, from their Kinesis records if the stream still holds these.

Specification: spec/15-audit.md, AUD-16.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple

from ..deaggregation.deaggregated_record import DeaggregatedRecord
from ..deaggregation.policies import opened
from ..findings import Finding
from ..format.records import KinesisRecord
from ..shards.placement import CAUSES, Causes, time_of_hint
from ..shards.shard_map import ShardMap
from .index import Index, Runs, runs_of

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
    gone: set[Any] = {
        (place.shard_id, place.sequence_number) for place in locations if place.shard_id not in shard_map
    }
    size = 0
    for item in fetch_records(client, stream, listed, read_on=_READ_ON):
        if isinstance(item, GoneRecord):
            gone.add((item.location.shard_id, item.location.sequence_number))
        elif isinstance(item, KinesisRecord):
            records[item.shard_id, item.sequence_number] = item
            size += len(item.data)
            if size >= _MOST_BYTES:
                break
    return FetchedRecords(records, frozenset(gone))


def findings_on_missing(
    index: Index,
    missing: Runs,
    handled_shards: Container[str],
    shard_map: ShardMap | None,
    fetched: FetchedRecords,
) -> Iterator[Finding]:
    """A finding on each run of missing user records. ``handled_shards``: of which something was handled."""
    causes = None if shard_map is None else Causes(shard_map)
    for place, runs in groupby(runs_of(index, missing), key=lambda run: run[:2]):
        record = fetched.records.get(place)
        user_records = () if record is None else opened([record], "report", shard_map=shard_map)
        by_sub = {one.sub_sequence_number: one for one in user_records if one.is_user_record}
        for run in runs:
            # AUD-16: "The cause of a missing user record MUST be one of these, by what the stream still
            # holds: dropped by the KCL's rule, broken, past retention, on a shard of which nothing was ever
            # handled, or sound and never handled."
            cause, user_record = None, by_sub.get(run.first)
            if place in fetched.gone:
                kind, detail = "audit-expired", "no longer on the stream"
            elif user_record is not None and user_record.defects:
                kind, detail = "audit-broken", str(user_record.defects[0])
            elif record is not None and (user_record is None or user_record.kcl == "raw"):
                kind, detail = "audit-broken", "no aggregated record"
            elif record is not None and user_record is not None and user_record.kcl == "dropped":
                kind, (cause, detail) = "audit-dropped", _drop_cause(record, by_sub, causes)
            elif run.shard_id not in handled_shards:
                kind, detail = "audit-unread", "nothing of this shard was ever handled"
            else:
                kind, detail = "audit-missing", "never handled"
            if run.last > run.first:
                detail = f"user records {run.first} to {run.last}: {detail}"
            yield run.finding(kind, detail, cause)


def _drop_cause(
    record: KinesisRecord, by_sub: Mapping[Any, DeaggregatedRecord], causes: Causes | None
) -> tuple[str | None, str]:
    """Cause and detail of the finding on an aggregate that the KCL drops."""
    placements = {sub: one.placement for sub, one in by_sub.items() if one.placement}
    keys = [one.hash_key for one in placements.values() if one.hash_key is not None]
    if causes is None or not keys:
        return None, "the KCL drops the aggregated record"
    time = time_of_hint(record.sequence_number)
    cause = causes.of(record.shard_id or "", min(keys), max(keys), time).name
    outside = next((sub for sub, one in placements.items() if not one.in_range), None)
    which = "" if outside is None else f"user record {outside} is outside its shard: "
    return cause, f"the KCL drops the aggregated record; {which}{CAUSES[cause]}"
