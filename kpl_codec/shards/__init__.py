"""Where records belong: hash key ranges, shards and their lineage, the verdict on each record."""

from .lineage import Lineage, LineageDefect
from .placement import AggregateKind, verify_placement

__all__ = ["AggregateKind", "Lineage", "LineageDefect", "verify_placement"]
