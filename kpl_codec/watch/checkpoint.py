"""What a watch knows, to be kept between two runs: positions, minutes and open findings, also as JSON.

    kept = watch.keep(now)               # at the end of a run
    watch.resume(Kept.from_json(...))    # before the first `use` of the next one

Not kept: which Kinesis records were seen, only up to which each shard was read; counts of partition keys;
counters.
Specification: spec/10-watch.md, WCH-29.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final, NamedTuple

from ..errors import KplError
from ..shards.shard_map import ShardMap
from ..shards.stream_name import Stream, described, listed_stream

_VERSION: Final = 3
#: What is kept of a minute besides its losses: its first fields.
_NUMBERS: Final = attrgetter(
    "slot_records", "slot_user_records", "slot_bytes", "looks", "read_ms", "looked_ms", "stands_for_ms"
)


#: Seconds of one minute.
MINUTE: Final = 60


class FindingGroup(NamedTuple):
    """Faults with the same kind, kind of writer and cause are one finding."""

    kind: str
    writer: str = "unknown"
    cause: str | None = None


#: A shard's id, None where it is not known, and what is wrong on it.
FindingKey = tuple[str | None, FindingGroup]


@dataclass(slots=True)
class Minute:
    """What was read of one shard in one minute.

    ``slot_records``, ``slot_user_records``, ``slot_bytes``: in the slots looked at. ``looks``: how often;
    ``read_ms``: how much of its time. ``looked_ms``: of slots drawn; ``stands_for_ms``: of the periods they
    were drawn from, also those that were missed. ``losses``: user records lost of one `FindingGroup` in one
    look, by its number; None: certain, not to be scaled up.
    """

    slot_records: int = 0
    slot_user_records: int = 0
    slot_bytes: int = 0
    looks: int = 0
    read_ms: int = 0
    looked_ms: int = 0
    stands_for_ms: int = 0
    losses: Counter[tuple[FindingGroup, int | None]] = field(default_factory=Counter)


@dataclass(slots=True)
class OpenFinding:
    """An open finding. ``told``: its count when it was last reported."""

    first_seen: float
    last_seen: float
    kinesis_records: int = 0
    told: int = 0
    expected_shard_id: str | None = None
    sequence_number: str | None = None
    detail: str | None = None


class Load(NamedTuple):
    """What came on a shard in a second of the time that was read, in ``looks``. ``seen``: user records."""

    user_records: float
    bytes: float
    looks: int
    seen: int
    kinesis_records: float


class KeptStateError(KplError, ValueError):
    """The kept state is damaged, or another version's."""

    code = "kept-state"
    requirement = "WCH-30"
    reason: str
    text = "the state that was kept cannot be read: {reason}"
    concerns = "The scheduled watch: this run starts without what earlier runs knew, and says so."
    todo = "Nothing, if the version changed: the next run saves a new state. Otherwise look at the table."


class KeptShard(NamedTuple):
    """How far a shard was read. ``covered``: milliseconds since 1970 up to which it was looked at or missed;
    ``sequence_number``: of the last record read, if reading goes on behind it; ``looked_at``: seconds.
    ``until``: seconds since 1970 up to which it is read whole; None: it is sampled.
    ``read_to``: sequence number of the last record ever read."""

    starting_sequence_number: str | None
    covered: float
    looked_at: float
    sequence_number: str | None = None
    until: float | None = None
    read_to: str | None = None


class Checkpoint(NamedTuple):
    """All that is kept. ``at``: seconds since 1970. ``ended``: closed shards that were read to their end.
    ``stream``: whose state it is, None where an earlier version did not keep that."""

    at: float
    shards: Mapping[str, KeptShard]
    ended: frozenset[str]
    minutes: Mapping[str | None, Mapping[int, Minute]]
    findings: Mapping[FindingKey, OpenFinding]
    stream: Stream | None = None

    def is_of_another_stream(self, shard_map: ShardMap) -> bool:
        """Whether ``shard_map`` is of another stream of this name, or of another life of it."""
        # WCH-41: "A kept state MUST say which stream it is of, where that is known; what another stream of
        # its name has left, or what the present one cannot have, MUST NOT be gone on with."
        mine, other = self.stream, shard_map.stream
        if mine is not None and other is not None and (mine.is_another(other) or mine.is_another_life(other)):
            return True
        for shard_id, shard in shard_map.items():
            known = self.shards.get(shard_id)
            if known is not None and known.starting_sequence_number != shard.starting_sequence_number:
                return True
            # A listing may be old: then the children of a shard that has ended may be listed before its end.
            if shard_id in self.ended and shard.open and not shard_map.children(shard_id):
                return True
        return False

    def to_json(self) -> dict[str, Any]:
        """As one JSON object, without record data."""
        state = {
            "version": _VERSION,
            "at": self.at,
            "shards": {shard_id: list(shard) for shard_id, shard in self.shards.items()},
            "ended": sorted(self.ended),
            "minutes": [
                [
                    shard_id,
                    number,
                    _NUMBERS(minute),
                    [[*wrong, look, lost] for (wrong, look), lost in minute.losses.items() if lost],
                ]
                for shard_id, minutes in self.minutes.items()
                for number, minute in minutes.items()
            ],
            "findings": [
                [shard_id, wrong, astuple(found)] for (shard_id, wrong), found in self.findings.items()
            ],
        }
        if self.stream is not None:
            state["stream"] = described(self.stream)
        return {**state, "seal": _seal(state)}

    @classmethod
    def from_json(cls, state: Any) -> Checkpoint:
        """The inverse of `to_json`. Raises KeptStateError."""
        body = dict(state) if isinstance(state, dict) else {}
        seal = body.pop("seal", None)
        if body.get("version") != _VERSION:
            raise KeptStateError(reason=f"version {body.get('version')!r:.40}, not {_VERSION}")
        if seal != _seal(body):
            raise KeptStateError(reason="it is not as it was saved")
        minutes: dict[str | None, dict[int, Minute]] = {}
        for shard_id, number, numbers, losses in body["minutes"]:
            minute = minutes.setdefault(shard_id, {})[number] = Minute(*numbers)
            minute.losses = Counter({(FindingGroup(*wrong), look): lost for *wrong, look, lost in losses})
        return cls(
            body["at"],
            {shard_id: KeptShard(*row) for shard_id, row in body["shards"].items()},
            frozenset(body["ended"]),
            minutes,
            {
                (shard_id, FindingGroup(*wrong)): OpenFinding(*row)
                for shard_id, wrong, row in body["findings"]
            },
            listed_stream([body.get("stream")]),
        )


def _seal(state: Mapping[str, Any]) -> str:
    """A digest of ``state``: what has the right one, `to_json` has written."""
    try:
        return sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
    except RecursionError:
        return ""
