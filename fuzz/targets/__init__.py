"""What opens bytes from outside, each with its law; by name."""

from __future__ import annotations

from . import captures, frames
from .target import Target

TARGETS: dict[str, Target] = frames.TARGETS | captures.TARGETS
