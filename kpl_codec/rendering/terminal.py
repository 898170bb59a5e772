"""Writes everything that commands print to a terminal. rich lays it out; it is imported when it is needed.

Without rich (the base install) the same texts come without colours, and tables are as wide as their cells.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TextIO

from .labels import safe, safe_json, safe_lines

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

#: A piece of text, or a piece of text with a rich style ("bold", "red", "bold red", "dim").
Part = str | tuple[str, str]
_WIDEST = 100_000
#: Characters of drawings, and the ASCII characters that replace them in an encoding without them.
_ASCII: dict[int, str | int] = dict(str.maketrans("█▏▎▍▌▋▊▉─│┊├┼┤▲◀", "########-|||||^<"))
_ASCII[ord("…")] = "..."


def use_color() -> bool:
    """Whether to write colours: on a terminal, unless NO_COLOR is set; FORCE_COLOR asks for them anywhere."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def width() -> int:
    """Columns to draw in, 40 to 160: those of the terminal, else COLUMNS, else 100."""
    return max(40, min(shutil.get_terminal_size((100, 24)).columns, 160))


@cache
def _has_rich() -> bool:
    return find_spec("rich") is not None


@dataclass(frozen=True)
class Line:
    """One line, or one paragraph, of pieces of text with their rich styles.

    It is folded between words, at the width of the output. The lines that follow the first are indented by
    ``hang`` columns. A word is never cut: paths and hash keys stay whole, and may be wider.
    """

    pieces: tuple[tuple[str, str], ...]
    hang: int
    fold: bool

    def __str__(self) -> str:
        return "".join(text for text, _ in self.pieces)

    def lines(self, width: int) -> list[Text | str]:
        """The line in lines of at most ``width`` columns."""
        whole, hang = str(self), min(self.hang, width * 2 // 3)
        spans = _spans(whole, width, hang) if self.fold else [(0, len(whole))]
        if not _has_rich():
            return [" " * (hang if start else 0) + whole[start:end] for start, end in spans]
        from rich.text import Text

        text = Text.assemble(*(piece if piece[1] else piece[0] for piece in self.pieces))
        indent = Text(" " * hang)
        return [indent + text[start:end] if start else text[start:end] for start, end in spans]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text | str]:
        yield from self.lines(options.max_width)


def _spans(text: str, width: int, hang: int) -> list[tuple[int, int]]:
    """Where each line of ``text`` begins and ends."""
    spans, start, end = [], 0, 0
    for word in re.finditer(r"\S+", text):
        columns = _columns(text[start : word.end()]) + (hang if start else 0)
        if end > start and columns > width:
            spans.append((start, end))
            start = word.start()
        end = word.end()
    return [*spans, (start, end)]


def _columns(text: str) -> int:
    """How wide a terminal shows ``text``: some characters take two columns."""
    if text.isascii() or not _has_rich():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def line(*parts: Part, hang: int | None = None, fold: bool = True) -> Line:
    """One line, or one paragraph, of plain and styled pieces. ``hang``: by default as many columns as the
    text has spaces at its beginning."""
    pieces = tuple((safe(part), "") if isinstance(part, str) else (safe(part[0]), part[1]) for part in parts)
    text = "".join(text for text, _ in pieces)
    return Line(pieces, len(text) - len(text.lstrip(" ")) if hang is None else hang, fold)


def command(text: str) -> Line:
    """A command to copy, indented. It stays one line, however wide it is: a shell would run two lines as two
    commands."""
    return line(f"    {text}", fold=False)


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), indent: int = 0
) -> RenderableType:
    """A table of ``rows`` under their heads. ``right``: the indices of the columns that hold numbers."""
    texts = [[safe(cell) for cell in row] for row in rows]
    if not _has_rich():
        texts = [[*heads]] * any(heads) + texts
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        form = "  ".join(f"{{:{'>' if n in right else '<'}{width}}}" for n, width in enumerate(widths))
        return "\n".join(" " * indent + form.format(*row) for row in texts)
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(heads))
    for index, head in enumerate(heads):
        grid.add_column(head, justify="right" if index in right else "left", overflow="fold")
    for row in texts:
        grid.add_row(*map(Text, row))
    return Padding(grid, (0, 0, 0, indent), expand=False) if indent else grid


def render(*parts: RenderableType, color: bool = False, width: int = 100, fit: bool = True) -> str:
    """The parts as text, one below the other, no line wider than ``width``, ending in a newline.

    ``fit=False``: tables are as wide as what they hold, for readers such as grep and awk.
    """
    if not _has_rich():
        rows = [row for part in parts for row in (part.lines(width) if isinstance(part, Line) else [part])]
        return "".join(f"{row.rstrip()}\n" for text in rows for row in str(text).split("\n"))
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out, width=width if fit else _WIDEST, force_terminal=color, highlight=False, markup=False,
        color_system="standard" if color else None, emoji=False, legacy_windows=False,
    )  # fmt: skip
    for part in parts:
        if isinstance(part, Line):
            for row in part.lines(width):
                console.print(row, soft_wrap=True)
        else:
            console.print(part)
    return "".join(f"{row.rstrip()}\n" for row in out.getvalue().splitlines())


def show(*parts: RenderableType) -> None:
    """Write to standard output. In a pipe, which has no width, each row of a table is one line."""
    fit = sys.stdout.isatty() or "COLUMNS" in os.environ
    write(render(*parts, color=use_color(), width=width(), fit=fit))


def show_json(value: Any) -> None:
    """One JSON value. Hash keys and sequence numbers are strings in it: JSON readers lose digits."""
    write(safe_json(json.dumps(value, indent=2, ensure_ascii=_ascii_only(sys.stdout))) + "\n")


def json_line(value: Any) -> str:
    """One JSON value on one line, ending in a newline."""
    text = json.dumps(value, ensure_ascii=_ascii_only(sys.stdout), separators=(", ", ": "))
    return safe_json(text) + "\n"


def write(text: str) -> None:
    """Write to standard output. After the reader of a pipe has closed it, text is dropped and the work goes
    on."""
    try:
        write_on(text)
    except BrokenPipeError:
        drop_output()


def write_on(text: str) -> None:
    """Write to standard output, for commands that go on without end. Raises BrokenPipeError."""
    with standard_output():
        sys.stdout.write(text)
        sys.stdout.flush()


@contextmanager
def standard_output() -> Iterator[None]:
    """A context whose OSErrors name standard output: it is full, and no file of the command."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno is None:  # closed: its text says so
            raise
        raise OSError(error.errno, error.strerror, "standard output") from None


def note(text: str) -> None:
    """One line to standard error; on a terminal the lines of ``text``, each in lines of its width. It is
    dropped where standard error is closed or full."""
    lines = safe_lines(f"kpl-codec: {text}").split("\n")
    with suppress(OSError):
        if sys.stderr.isatty() or "COLUMNS" in os.environ:
            indent = " " * len("kpl-codec: ")
            fill = textwrap.TextWrapper(
                width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            ).fill
            sys.stderr.write("\n".join([fill(lines[0]), *(fill(indent + one) for one in lines[1:])]) + "\n")
        else:
            sys.stderr.write(" ".join(lines) + "\n")
        sys.stderr.flush()


def drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _ascii_only(stream: TextIO) -> bool:
    return not (stream.encoding or "").lower().replace("-", "").startswith("utf")


def write_whatever_the_encoding() -> None:
    """Let standard output and standard error take any text: drawings become # and -, other characters that
    are not in their encoding \\u30ad."""

    def replace(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        text = error.object[error.start : error.end].translate(_ASCII)
        return text.encode("ascii", "backslashreplace").decode(), error.end

    codecs.register_error("kpl-codec", replace)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="kpl-codec")
