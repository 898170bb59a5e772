"""The summary for terminals and for text files. Needs rich when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .model import Report

if TYPE_CHECKING:
    from rich.console import RenderableType


def summary(report: Report, *, width: int = 100) -> list[RenderableType]:
    """The summary as parts for `kpl_codec.pictures.terminal.show`. Needs rich."""
    from .layout import parts

    return parts(report, width)


def summary_text(report: Report, *, color: bool = False, width: int = 100) -> str:
    """The summary as text, ending in a newline. ``color`` adds ANSI escapes, for a terminal only. Needs rich.

    Nothing is said by colour alone.
    """
    from ..pictures.terminal import render

    return render(*summary(report, width=width), color=color, width=width)
