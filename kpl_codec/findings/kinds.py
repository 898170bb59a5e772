"""Every kind of finding: name, severity, meaning, whom it concerns, and what to do.

Findings have only the name; the summary and the page take the rest from here. ``kind_of`` accepts unlisted
names, too, so a finding of a new kind is never left out.

Severities, worst first:

    critical   consumers that use the KCL have lost, or will lose, user records
    error      broken bytes; some consumer fails on them or reads them wrong
    warning    something is inconsistent; a person should look at it
    info       a useful fact; nothing is wrong
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from .kind import SEVERITIES, Kind, Severity
from .kinds_bytes import BYTES
from .kinds_input import INPUT
from .kinds_placement import PLACEMENT
from .kinds_watch import WATCH

#: Every listed kind by its name, in the order they are shown.
KINDS: Mapping[str, Kind] = MappingProxyType(
    {kind.name: kind for kind in (*PLACEMENT, *BYTES, *INPUT, *WATCH)}
)


def kind_of(name: str) -> Kind:
    """The kind of that name. An unlisted name gets a general text and keeps its name."""
    known = KINDS.get(name)
    if known is not None:
        return known
    capture = KINDS["capture"]
    return capture._replace(name=name, title=f"{capture.title}: {name}")


def worst(names: Iterable[str]) -> Severity | None:
    """The worst severity of the kinds named, None if there are none."""
    ranks = [SEVERITIES.index(kind_of(name).severity) for name in names]
    return SEVERITIES[min(ranks)] if ranks else None
