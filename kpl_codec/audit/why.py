"""Why user records are missing: their Kinesis records are fetched while retention lasts, and judged.

Specification: spec/15-audit.md, AUD-16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from ..deaggregation.policies import deaggregate
from ..deaggregation.records import DeaggregatedRecord
from ..findings import Finding
from ..format.records import KinesisRecord, answered_record
from ..shards.live_shard_map import StreamUnavailable
from ..shards.misplacement_causes import CAUSES, Causes, hinted_time
from ..shards.shard_map import ShardMap
from .names import Names, Run, runs_of
from .tally import Tally

Place = tuple[str, str]
#: Kinesis records asked for at a time: the next one that is wanted is often near.
_READ_ON = 200


class Fetched(NamedTuple):
    """What the stream still holds. ``gone``: those that it does not."""

    records: Mapping[Place, KinesisRecord]
    gone: frozenset[Place]


def fetch(
    client: Any, stream: str, shard_map: ShardMap, places: Sequence[Place], *, most_bytes: int = 1 << 28
) -> Fetched:
    """Fetch Kinesis records, as many as ``most_bytes`` hold. Raises StreamUnavailable."""
    from ..aws.cursor import ShardCursor
    from ..aws.reading import PATIENCE
    from ..shards.place import at_record

    records: dict[Place, KinesisRecord] = {}
    gone: set[Place] = set()
    size = 0
    for shard_id, of_shard in groupby(
        sorted(places, key=lambda one: (one[0], int(one[1]))), key=lambda one: one[0]
    ):
        wanted = [number for _, number in of_shard]
        if shard_map.get(shard_id) is None:
            gone.update((shard_id, number) for number in wanted)
            continue
        while wanted and size < most_bytes:
            cursor = ShardCursor(client, stream, shard_id, at_record(wanted[0]), patience=PATIENCE)
            try:
                answer = cursor.fetch(limit=_READ_ON)
            except StreamUnavailable as error:
                if error.code not in ("InvalidArgumentException", "ResourceNotFoundException"):
                    raise
                gone.add((shard_id, wanted.pop(0)))  # the service refuses numbers that it no longer has
                continue
            found = {record["SequenceNumber"]: record for record in answer.records}
            if wanted[0] not in found:
                gone.add((shard_id, wanted.pop(0)))
                continue
            last = int(answer.records[-1]["SequenceNumber"])
            while wanted and int(wanted[0]) <= last:
                number = wanted.pop(0)
                if number in found:
                    records[shard_id, number] = answered_record(found[number], shard_id)
                    size += len(records[shard_id, number].data)
                else:
                    gone.add((shard_id, number))
    return Fetched(records, frozenset(gone))


class Why:
    """The finding of each run of missing user records. Without ``fetched`` only what the tally shows."""

    def __init__(
        self, names: Names, tally: Tally, shard_map: ShardMap | None, fetched: Fetched | None
    ) -> None:
        self._names, self._tally, self._map = names, tally, shard_map
        self._fetched = fetched or Fetched({}, frozenset())
        self._causes = Causes(shard_map) if shard_map is not None else None

    def findings(self, missing: Any) -> Iterator[Finding]:
        """Of ascending missing user records."""
        for _, runs in groupby(runs_of(self._names, missing), key=lambda run: run[:2]):
            yield from self._of_record(list(runs))

    def _of_record(self, runs: list[Run]) -> Iterator[Finding]:
        place = runs[0].shard_id, runs[0].sequence_number
        # AUD-16: "The cause of a missing user record MUST be one of these, by what the stream still holds:
        # dropped by the KCL's rule, broken, past retention, on a shard of which nothing was ever handled, or
        # sound and never handled."
        unread = place[0] not in self._tally.handled_shards
        record = self._fetched.records.get(place)
        users = {} if record is None else self._opened(record)
        for run in runs:
            some = users.get(run.first)
            cause = None
            if place in self._fetched.gone:
                kind, detail = "audit-expired", "the stream does not hold it any more"
            elif record is not None and (some is None or some.defects or some.kcl == "raw"):
                kind, detail = (
                    "audit-broken",
                    str(some.defects[0]) if some and some.defects else "not an aggregate",
                )
            elif some is not None and some.kcl == "dropped":
                kind = "audit-dropped"
                cause, detail = self._dropped(record, list(users.values()))
            elif unread:
                kind, detail = "audit-unread", "nothing of this shard was ever handled"
            else:
                kind, detail = "audit-missing", self._neighbours(run)
            yield Finding(
                kind=kind,
                shard_id=place[0],
                sequence_number=place[1],
                sub_sequence_number=run.first,
                user_records=run.user_records,
                cause=cause,
                detail=f"user records {run.first} to {run.last}: {detail}"
                if run.last > run.first
                else detail,
            )

    def _opened(self, record: KinesisRecord) -> dict[int, DeaggregatedRecord]:
        opened = deaggregate([record], "report", shard_map=self._map)
        return {user.sub_sequence_number: user for user in opened}

    def _dropped(
        self, record: KinesisRecord | None, users: list[DeaggregatedRecord]
    ) -> tuple[str | None, str]:
        keys = [
            user.placement.hash_key
            for user in users
            if user.placement and user.placement.hash_key is not None
        ]
        outside = next((user for user in users if user.placement and not user.placement.in_range), None)
        if record is None or self._causes is None or not keys:
            return None, "the KCL drops its aggregate"
        cause = self._causes.of(
            record.shard_id or "", min(keys), max(keys), hinted_time(record.sequence_number)
        )
        which = "" if outside is None else f"user record {outside.sub_sequence_number} is outside its shard: "
        return cause.name, f"the KCL drops its aggregate; {which}{CAUSES[cause.name]}"

    def _neighbours(self, run: Run) -> str:
        """The handled user records around it."""
        at = self._names.user_record((run.shard_id, run.sequence_number, run.first))
        assert at is not None
        code = self._names.shards.index(run.shard_id)
        low, high = (self._names.starts[self._names.bounds[code + one]] for one in (0, 1))
        told = []
        for word, part, step in (
            ("before", self._tally.times[low:at], -1),
            ("after", self._tally.times[at:high], 1),
        ):
            handled = np.flatnonzero(part[::step][:100_000])
            if len(handled):
                one = at + handled[0] if step > 0 else at - 1 - handled[0]
                near = runs_of(self._names, np.array([one]))[0]
                told.append(f"{near.sequence_number}/{near.first} {word} it")
        return f"handled were {' and '.join(told)}" if told else "nothing near it was handled"
