"""Everything that takes bytes or text from outside, each with its law; by name."""

from __future__ import annotations

from . import (
    answers,
    captures,
    commands,
    events,
    frames,
    listings,
    programs,
    repairs,
    watch,
)
from .target import Target

TARGETS: dict[str, Target] = {
    **frames.TARGETS,
    **events.TARGETS,
    **listings.TARGETS,
    **captures.TARGETS,
    **answers.TARGETS,
    **commands.TARGETS,
    **repairs.TARGETS,
    **watch.TARGETS,
    **programs.TARGETS,
}
