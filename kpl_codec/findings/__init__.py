"""Findings: the problems that `validate`, `watch`, `audit` and the Lambda functions report, by kind.

The severities of kinds, worst first:

critical   consumers that use the KCL have lost, or will lose, user records
error      broken bytes; some consumer fails on them or reads them wrong
warning    something is inconsistent; a person should look at it
info       a useful fact; nothing is wrong
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, get_args

from .catalogue import ALL, DAMAGED_BYTES
from .catalogue import FindingType as FindingType
from .catalogue import Severity as Severity

#: All severities, worst first.
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


def at_least_as_bad(severity: Severity, than: Severity) -> bool:
    """Whether ``severity`` is as bad as ``than``, or worse."""
    return SEVERITIES.index(severity) <= SEVERITIES.index(than)


#: Every listed kind by its name, in the order they are shown.
KINDS = MappingProxyType({kind.name: kind for kind in ALL})
#: Kinds about damaged bytes of Kinesis records.
DAMAGE_KINDS = frozenset(kind.name for kind in DAMAGED_BYTES)
#: Kinds about records whose data holds an aggregated record that no consumer opens.
HIDDEN_AGGREGATE_KINDS = frozenset(("capture-encoded-frame", "nested-aggregate"))


def is_unread_input(name: str) -> bool:
    """Whether findings of the kind of that name are about a part of the input that was not read."""
    return name.startswith("capture") and name not in {
        *HIDDEN_AGGREGATE_KINDS,
        "capture-timestamp",
        "capture-other-content",
    }


def kind_of(name: str) -> FindingType:
    """The kind of that name. An unlisted name gets a general text, so that no finding is left out."""
    capture = KINDS["capture"]
    return KINDS.get(name) or capture._replace(name=name, title=f"{capture.title}: {name}")


def order_of_kind(name: str) -> tuple[object, ...]:
    """A sort key for names of kinds: the worst first, then as they are listed."""
    listed = list(KINDS).index(name) if name in KINDS else len(KINDS)
    return SEVERITIES.index(kind_of(name).severity), listed, name


def worst(names: Iterable[str]) -> Severity | None:
    """The worst severity of the kinds named, None if there are none."""
    return min((kind_of(name).severity for name in names), key=SEVERITIES.index, default=None)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding and its evidence. Fields that do not apply are None.

    ``user_records``: how many user records it is about. ``inside``, ``outside``: user records of an aggregate
    in and out of its shard's range. ``dropped``: how many the KCL drops. ``kcl``: what the KCL does with the
    one user record. ``cause``: a key of `shards.placement.CAUSES`. ``offset``: byte in the Kinesis record's
    data, from 0. ``file``, ``line`` (from 1), ``position`` (byte in a text file, row in a Parquet file) and
    ``item`` (which record of the JSON value there, from 0; None if it is one record): where it was captured.
    ``detail``: one sentence, never record data. ``requirement``: by default that of its kind.
    """

    kind: str
    shard_id: str | None = None
    sequence_number: str | None = None
    sub_sequence_number: int | None = None
    expected_shard_id: str | None = None
    user_records: int | None = None
    aggregates: int | None = None
    inside: int | None = None
    outside: int | None = None
    dropped: int | None = None
    kcl: str | None = None
    cause: str | None = None
    offset: int | None = None
    record_index: int | None = None
    requirement: str | None = None
    file: str | None = None
    line: int | None = None
    position: int | None = None
    item: int | None = None
    approximate_arrival_timestamp: datetime | None = None
    detail: str | None = None

    def __post_init__(self) -> None:
        if self.requirement is None:
            object.__setattr__(self, "requirement", kind_of(self.kind).requirement)

    @property
    def severity(self) -> Severity:
        """The severity of the finding's kind."""
        return kind_of(self.kind).severity

    @property
    def title(self) -> str:
        """The title of the finding's kind."""
        return kind_of(self.kind).title

    @property
    def captured_in(self) -> str | None:
        """The file, and the place in it."""
        file = self.file
        if self.line is not None:
            file = f"{file} line {self.line}"
        elif self.position is not None:
            unit = "row" if (file or "").endswith(".parquet") else "at file offset"
            file = f"{file} {unit} {self.position}"
        return file if self.item is None else f"{file}, Records[{self.item}]"

    @property
    def place(self) -> str:
        """The place of the finding, and its detail, on one line."""
        file, number, sub = self.captured_in, self.sequence_number, self.sub_sequence_number
        if number and sub is not None and sub >= 0:
            number += f"/{sub}"
        byte = None if self.offset is None else f"byte {self.offset} of the record"
        return ", ".join(filter(None, (file, self.shard_id, number, byte, self.detail)))


def camel(name: str) -> str:
    """``first_arrival`` as ``firstArrival``: how every command's JSON, and every column, is named."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def camel_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` with names in camel case."""
    return {camel(name): value for name, value in values.items()}


def order_of(finding: Finding) -> tuple[object, ...]:
    """A sort key: the worst first, then by kind and place."""
    number = finding.sequence_number or ""
    return (
        *order_of_kind(finding.kind),
        finding.shard_id or "",
        len(number),
        number,
        -1 if finding.sub_sequence_number is None else finding.sub_sequence_number,
        finding.file or "",
        finding.position or 0,
        finding.offset or 0,
        finding.detail or "",
    )
