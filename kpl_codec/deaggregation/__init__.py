"""Kinesis records in, user records out, under a policy. See spec/03."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names
from .kcl import KclOutcome

if TYPE_CHECKING:
    from .explanation import Node as Node
else:
    __getattr__, __dir__ = lazy_names(__name__, {"Node": "explanation"})

__all__ = ["KclOutcome", "Node"]
