"""Kinesis records in, user records out, under a policy. See spec/03."""

from .explanation import Node
from .kcl import Outcome

__all__ = ["Node", "Outcome"]
