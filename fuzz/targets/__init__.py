"""Everything that takes bytes or text from outside, each with its law; by name."""

from __future__ import annotations

from . import answers, captures, commands, events, frames, listings, watch
from .target import Target

TARGETS: dict[str, Target] = {}
for module in (frames, events, listings, captures, answers, commands, watch):
    TARGETS |= module.TARGETS
