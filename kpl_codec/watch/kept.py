"""What a watch knows, to be kept between two runs: positions, minutes and open findings, also as JSON.

    kept = watch.keep(now)               # at the end of a run
    watch.resume(Kept.from_json(...))    # before the first `use` of the next one

Not kept: which Kinesis records were seen, only up to which each shard was read (a duplicate is known within a
run only); counts of partition keys (a hot key is found only if one run sees enough); counters.
Specification: spec/10-watch.md, WCH-29.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple
from functools import cache
from itertools import takewhile
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

from ..errors import KplError
from ..shards.sequence_numbers import parse_sequence_number
from .minutes import FindingKey, Losses, Minute, OpenFinding, Wrong

_VERSION: Final = 2
#: Above every number that is kept: sums of squares.
_MOST: Final = 2**120
_YEAR_9999_MS: Final = 253_370_764_800_000
_Made = TypeVar("_Made")


class KeptStateError(KplError, ValueError):
    """The kept state is damaged, or another version's."""

    code = "kept-state"
    requirement = "WCH-30"
    reason: str
    text = "the state that was kept cannot be read: {reason}"
    concerns = "The scheduled watch: this run starts without what earlier runs knew, and says so."
    todo = "Nothing, if the version changed: the next run saves a new state. Otherwise look at the table."


#: The fields before the losses are kept of a minute.
_MINUTE_NUMBERS: Final = tuple(takewhile("losses".__ne__, get_type_hints(Minute)))


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
                [shard_id, number, _minute_json(minute)]
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
                minutes.setdefault(_of(str | None, shard_id), {})[_of(int, number)] = _minute(row)
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


def _minute_json(minute: Minute) -> list[Any]:
    """The numbers in order, then each `Wrong` with its losses."""
    numbers = [getattr(minute, name) for name in _MINUTE_NUMBERS]
    return [*numbers, *([*wrong, *astuple(losses)] for wrong, losses in minute.losses.items())]


def _minute(row: list[Any]) -> Minute:
    """The inverse of `_minute_json`."""
    count = len(_MINUTE_NUMBERS)
    minute = _made(Minute, row[:count])
    minute.losses = {_made(Wrong, one[:3]): _made(Losses, one[3:]) for one in row[count:]}
    return minute


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
