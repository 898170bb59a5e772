"""What is counted of one shard in one minute, and what is known of an open finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

#: Seconds of one minute.
MINUTE: Final = 60


class Wrong(NamedTuple):
    """Faults with the same kind, kind of writer and cause are one finding."""

    kind: str
    writer: str = "unknown"
    cause: str | None = None


#: A shard's id, None where it is not known, and what is wrong on it.
FindingKey = tuple[str | None, Wrong]


@dataclass(slots=True)
class Minute:
    """What was read of one shard in one minute.

    ``slot_records``, ``slot_user_records``, ``slot_bytes``: in the slots looked at. ``looks``: how often;
    ``read_ms``: how much of its time. ``looked_ms``: of slots drawn; ``stands_for_ms``: of the periods they
    were drawn from, also those that were missed. ``losses``: user records lost of one `Wrong` in one look, by
    its number; None: certain, not to be scaled up. What follows is not kept, and of all that was read, also
    past the slots, as validation counts it. ``newest``: the last arrival (seconds). ``aggregates``: "mixed"
    and "foreign"; ``fates``, ``fate_bytes``: user records, and bytes of their data, by placement verdict and
    what the KCL does.
    """

    slot_records: int = 0
    slot_user_records: int = 0
    slot_bytes: int = 0
    looks: int = 0
    read_ms: int = 0
    looked_ms: int = 0
    stands_for_ms: int = 0
    losses: Counter[tuple[Wrong, int | None]] = field(default_factory=Counter)
    kinesis_records: int = 0
    broken_frames: int = 0
    newest: float = 0.0
    writers: Counter[str] = field(default_factory=Counter)
    aggregates: Counter[str] = field(default_factory=Counter)
    fates: Counter[tuple[str | None, str | None]] = field(default_factory=Counter)
    fate_bytes: Counter[tuple[str | None, str | None]] = field(default_factory=Counter)


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
    """What came in a second, of the time that was read."""

    kinesis_records: float
    user_records: float
    bytes: float


def load_of(minutes: Iterable[Minute]) -> Load:
    """The load of one shard."""
    read = [minute for minute in minutes if minute.read_ms]
    seconds = sum(minute.read_ms for minute in read) / 1000 or 1.0
    return Load(
        sum(minute.slot_records for minute in read) / seconds,
        sum(minute.slot_user_records for minute in read) / seconds,
        sum(minute.slot_bytes for minute in read) / seconds,
    )
