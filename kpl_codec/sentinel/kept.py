"""What a watch knows, to be kept between two runs: positions, minutes and open findings, also as JSON.

    kept = watch.keep(now)               # at the end of a run
    watch.resume(Kept.from_json(...))    # before the first `use` of the next one

Not kept: which Kinesis records were seen, only up to which each shard was read (a duplicate is known within a
run only); counts of partition keys (a hot key is found only if one run sees enough); counters.
Specification: spec/10-sentinel.md, SEN-29.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Final, NamedTuple

from ..errors import KplError
from .judging import Wrong

_VERSION: Final = 2

#: A shard's id, None where it is not known, and what is wrong on it.
FindingKey = tuple[str | None, Wrong]


class KeptStateError(KplError, ValueError):
    """The kept state is damaged, or another version's."""

    code = "kept-state"
    requirement = "SEN-30"
    reason: str
    text = "the state that was kept cannot be read: {reason}"


@dataclass(slots=True)
class Losses:
    """User records lost of one `Wrong` in one minute: sums over the looks, see `Sample`."""

    total: int = 0
    squares: int = 0
    largest: int = 0
    certain: int = 0


@dataclass(slots=True)
class Minute:
    """What was read of one shard in one minute.

    ``slot_records``, ``slot_user_records``, ``slot_bytes``: in the slots looked at. ``looks``: how often;
    ``read_ms``: how much of its time. ``looked_ms``: of slots drawn; ``stands_for_ms``: of the periods they
    were drawn from, also those that were missed. ``kinesis_records`` and what follows, which is not kept:
    all that was read, also past the slots.
    """

    slot_records: int = 0
    slot_user_records: int = 0
    slot_bytes: int = 0
    looks: int = 0
    read_ms: int = 0
    looked_ms: int = 0
    stands_for_ms: int = 0
    losses: dict[Wrong, Losses] = field(default_factory=dict)
    kinesis_records: int = 0
    plain_records: int = 0
    user_records: int = 0
    bytes: int = 0

    def to_json(self) -> list[Any]:
        """The numbers in order, then each `Wrong` with its losses."""
        numbers = [getattr(self, name) for name in _MINUTE_NUMBERS]
        return [*numbers, *([*wrong, *astuple(losses)] for wrong, losses in self.losses.items())]

    @classmethod
    def from_json(cls, row: list[Any]) -> Minute:
        """The inverse of `to_json`."""
        count = len(_MINUTE_NUMBERS)
        losses = {Wrong(*one[:3]): Losses(*map(int, one[3:])) for one in row[count:]}
        return cls(**dict(zip(_MINUTE_NUMBERS, map(int, row[:count]), strict=True)), losses=losses)


_MINUTE_NUMBERS: Final = (
    "slot_records",
    "slot_user_records",
    "slot_bytes",
    "looks",
    "read_ms",
    "looked_ms",
    "stands_for_ms",
)


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


class KeptShard(NamedTuple):
    """How far a shard was read. ``covered``: milliseconds since 1970 up to which it was looked at or missed;
    ``sequence_number``: of the last record read, if reading goes on behind it; ``looked_at``: seconds.
    ``whole_until``: seconds since 1970 up to which it is read whole; None: it is sampled, 0: always whole.
    ``read_to``: sequence number of the last record ever read."""

    starting_sequence_number: str | None
    covered: float
    looked_at: float
    sequence_number: str | None = None
    whole_until: float | None = None
    read_to: str | None = None


class Kept(NamedTuple):
    """All that is kept. ``at``: seconds since 1970. ``ended``: closed shards that were read to their end."""

    at: float
    shards: Mapping[str, KeptShard]
    ended: frozenset[str]
    minutes: Mapping[str | None, Mapping[int, Minute]]
    findings: Mapping[FindingKey, OpenFinding]

    def to_json(self) -> dict[str, Any]:
        """As one JSON object, without record data."""
        return {
            "version": _VERSION,
            "at": self.at,
            "shards": {shard_id: list(shard) for shard_id, shard in self.shards.items()},
            "ended": sorted(self.ended),
            "minutes": [
                [shard_id, number, minute.to_json()]
                for shard_id, minutes in self.minutes.items()
                for number, minute in minutes.items()
            ],
            "findings": [
                [shard_id, list(wrong), list(astuple(found))]
                for (shard_id, wrong), found in self.findings.items()
            ],
        }

    @classmethod
    def from_json(cls, state: Any) -> Kept:
        """The inverse of `to_json`. Raises KeptStateError."""
        try:
            if state["version"] != _VERSION:
                raise KeptStateError(reason=f"version {state['version']!r}, not {_VERSION}")
            minutes: dict[str | None, dict[int, Minute]] = {}
            for shard_id, number, row in state["minutes"]:
                minutes.setdefault(shard_id, {})[int(number)] = Minute.from_json(row)
            return cls(
                float(state["at"]),
                {shard_id: KeptShard(*row) for shard_id, row in state["shards"].items()},
                frozenset(state["ended"]),
                minutes,
                {(shard_id, Wrong(*wrong)): OpenFinding(*row) for shard_id, wrong, row in state["findings"]},
            )
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            if isinstance(error, KeptStateError):
                raise
            raise KeptStateError(reason=f"{type(error).__name__}: {error}") from None
