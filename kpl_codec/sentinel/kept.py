"""What a watch knows, to be kept between two runs: positions, minutes and open findings, also as JSON.

    kept = watch.keep(now)               # at the end of a run
    watch.resume(Kept.from_json(...))    # before the first `use` of the next one

Not kept: which Kinesis records were seen, only up to which each shard was read (a duplicate is known within a
run only); counts of partition keys (a hot key is found only if one run sees enough); counters.
Specification: spec/10-sentinel.md, SEN-29.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

from ..errors import KplError
from ..shards.sequence_numbers import parse_sequence_number
from .judging import Wrong

_VERSION: Final = 2
#: Above every number that is kept: sums of squares.
_MOST: Final = 2**120
_YEAR_9999_MS: Final = 253_370_764_800_000
_Made = TypeVar("_Made")

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
    all that was read, also past the slots; ``newest``: the last arrival (seconds); the others as in `Judged`.
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
    broken_frames: int = 0
    newest: float = 0.0
    aggregates: Counter[str] = field(default_factory=Counter)
    fates: dict[tuple[str | None, str | None], tuple[int, int]] = field(default_factory=dict)

    def to_json(self) -> list[Any]:
        """The numbers in order, then each `Wrong` with its losses."""
        numbers = [getattr(self, name) for name in _MINUTE_NUMBERS]
        return [*numbers, *([*wrong, *astuple(losses)] for wrong, losses in self.losses.items())]

    @classmethod
    def from_json(cls, row: list[Any]) -> Minute:
        """The inverse of `to_json`."""
        count = len(_MINUTE_NUMBERS)
        losses = {_made(Wrong, one[:3]): _made(Losses, one[3:]) for one in row[count:]}
        minute = _made(cls, row[:count])
        minute.losses = losses
        return minute


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
                raise KeptStateError(reason=f"version {state['version']!r:.40}, not {_VERSION}")
            minutes: dict[str | None, dict[int, Minute]] = {}
            for shard_id, number, row in state["minutes"]:
                minutes.setdefault(_of(str | None, shard_id), {})[_of(int, number)] = Minute.from_json(row)
            return cls(
                _of(float, state["at"]),
                {shard_id: _shard(row) for shard_id, row in state["shards"].items()},
                frozenset(_of(str, shard_id) for shard_id in state["ended"]),
                minutes,
                {
                    (_of(str | None, shard_id), _made(Wrong, wrong)): _made(OpenFinding, row)
                    for shard_id, wrong, row in state["findings"]
                },
            )
        except KeptStateError:
            raise
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, RecursionError) as error:
            raise KeptStateError(reason=f"{type(error).__name__}: {error}") from None


def _of(kind: Any, value: Any) -> Any:
    """``value``, which must be of ``kind``; a time or number is finite and below `_MOST`. Raises TypeError,
    ValueError."""
    kinds = kind | int if kind in (float, float | None) else kind
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is no {kind}")
    # No number is NaN, and none becomes infinite.
    if isinstance(value, int | float) and not -1 <= value < _MOST:
        raise ValueError(f"{value!r:.40} is out of range")
    return value


def _made(kind: Callable[..., _Made], row: Any) -> _Made:
    """A ``kind`` with the values of ``row``, each of the type that its field declares."""
    types = _types(kind)
    if not isinstance(row, list) or len(row) > len(types):
        raise TypeError(f"{row!r:.40} is no {kind}")
    return kind(*map(_of, types, row))


@cache
def _types(kind: Callable[..., Any]) -> tuple[Any, ...]:
    """The types of a class's fields, in order. A state of 1,000 shards has 60,000 rows."""
    return tuple(get_type_hints(kind).values())


def _shard(row: Any) -> KeptShard:
    shard = _made(KeptShard, row)
    if not 0 <= shard.covered < _YEAR_9999_MS:
        raise ValueError(f"{shard.covered!r:.40} is no time")
    for number in (shard.starting_sequence_number, shard.sequence_number, shard.read_to):
        if number is not None:
            parse_sequence_number(number)
    return shard
