"""Where records belong: hash key ranges, shards and their lineage, the verdict on each record."""

from .lineage import Lineage
from .placement import AggregateKind, verify_placement

__all__ = ["AggregateKind", "Lineage", "verify_placement"]
