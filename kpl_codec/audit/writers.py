"""The members of all ledgers of one side, by their writers, and which of them are not there. Specification:
spec/15-audit.md, section 15.1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..ledger.ledger_rows import Row
from ..shards.stream_name import Stream
from .lost_parts import LostPart


class Origin(NamedTuple):
    """Whose rows a ledger or a table holds: the stream, its ARN (None where not known), the side (produced or
    handled)."""

    stream: str
    stream_arn: str | None = None
    side: str = "handled"

    def __str__(self) -> str:
        return self.stream_arn or self.stream

    def is_of(self, stream: Stream) -> bool:
        """Whether the rows may be of that stream."""
        return not stream.is_another(Stream(self.stream, self.stream_arn))


class Member(NamedTuple):
    """A member of a ledger, whole by its CRC. ``writer``: its name; ``end``: whether the ledger ends with it;
    ``part_end``: whether another part follows."""

    origin: Origin
    writer: str
    number: int
    crc: int
    rows: list[Row]
    end: bool = False
    part_end: bool = False


class _Writer:
    """The members of one writer: their CRCs, by number."""

    def __init__(self) -> None:
        self.members: dict[int, set[int]] = {}
        self.next_part = -1  # the first member after the last finished part: it exists, or did
        self.ends: set[int] = set()


class Writers:
    """The members that were read, by the name and the origin of their writer."""

    def __init__(self) -> None:
        self._writers: dict[tuple[str, Origin], _Writer] = {}

    @property
    def origins(self) -> set[Origin]:
        return {origin for _, origin in self._writers}

    def add(self, member: Member) -> bool:
        """Note a member. Returns whether it is new: of a copy no row counts."""
        writer = self._writers.setdefault((member.writer, member.origin), _Writer())
        known = writer.members.setdefault(member.number, set())
        if member.crc in known:
            return False
        known.add(member.crc)
        if member.end:
            writer.ends.add(member.number)
        if member.part_end:
            writer.next_part = max(writer.next_part, member.number + 1)
        return True

    def lost(self, side: str, stream: Stream | None = None) -> Iterator[LostPart]:
        """Which members of writers of that side and stream (None: any) are not there, or contradict each
        other. Call it when all was read."""
        for (name, origin), writer in sorted(self._writers.items(), key=repr):
            if origin.side != side or (stream is not None and not origin.is_of(stream)):
                continue
            last = -1
            for number in [*sorted(writer.members), writer.next_part + 1]:
                if number > last + 1:
                    which = f"member {last + 1}" + f" to {number - 1}" * (number > last + 2)
                    yield LostPart(name, f"{which}: not there, or not whole", kind="members")
                last = max(last, number)
            # AUD-29: "A forked process MUST be a writer of its own; of two members of a writer that have one
            # number and differ, the rows of both MUST be read, and the audit MUST NOT say complete."
            for number, crcs in sorted(writer.members.items()):
                if len(crcs) > 1:
                    yield LostPart(name, f"two members {number}, which differ", kind="members")
            # AUD-5: "A producer's ledger without its end, and one whose count of members skips one, MUST make
            # the audit incomplete."
            # AUD-7: "A consumer's rows MUST be stored before the records count as handled": a consumer
            # without an end has named all that will not come again.
            if side == "produced" and max(writer.members) not in writer.ends:
                yield LostPart(name, "it was not closed, or its end is not there", kind="members")
