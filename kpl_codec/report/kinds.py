"""Every kind of finding: its name, how bad it is, what it means, whom it concerns, what to do about it.

The one home of these names and texts: findings carry the name, the summary and the page look the rest
up here. ``kind_of`` knows every name, also one that is not listed: a finding is never left out because
its kind is new.

Severities, worst first:

    critical   consumers that use the KCL have lost, or will lose, user records
    error      bytes that are not what they claim to be; some consumer fails on them or reads them wrong
    warning    something does not fit together, and needs a person to look
    info       a fact worth knowing; nothing is wrong
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
    """The kind of that name. A name not listed is one more thing that could not be read: its text says
    what little is known, and it keeps its name."""
    known = KINDS.get(name)
    if known is not None:
        return known
    capture = KINDS["capture"]
    return capture._replace(name=name, title=f"{capture.title}: {name}")


def worst(names: Iterable[str]) -> Severity | None:
    """The worst severity of the kinds named, None of none at all."""
    ranks = [SEVERITIES.index(kind_of(name).severity) for name in names]
    return SEVERITIES[min(ranks)] if ranks else None


__all__ = ["KINDS", "SEVERITIES", "Kind", "Severity", "kind_of", "worst"]
