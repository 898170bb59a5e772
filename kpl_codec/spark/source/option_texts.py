"""The texts of options: taken one by one, by any of their names, and checked.

Options that change nothing here (`option_table.NOT_NEEDED`) are accepted with a warning; all others that
nobody takes are refused.
Specification: spec/07-spark-source.md, SPK-64 and the table of section 7.9.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Mapping
from typing import Final

from .option_table import NOT_NEEDED
from .positions import OptionError

_log = logging.getLogger("kpl_codec.spark")

#: Options that Spark adds.
_SPARKS_OWN = {"path", "checkpointlocation", "queryname", "outputmode"}
_TRUE, _FALSE = {"true", "1", "yes"}, {"false", "0", "no"}
#: The largest number of an option: what Spark and a clock can take.
_MOST: Final = 2**31 - 1
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class OptionTexts:
    """Takes options one by one, by any of their names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._known: list[str] = []
        self._left: dict[str, tuple[str, str]] = {}
        for name, value in options.items():
            short = name.lower().removeprefix("kinesis.")
            if name.lower() in _SPARKS_OWN:
                continue
            if short in self._left:
                both = f"{self._left[short][0]}, {name}"
                raise OptionError(option=name, value="...", expected=f"only one of {both}")
            self._left[short] = (name, value)

    def text(self, *names: str) -> str | None:
        self._known += names
        found = [self._left.pop(name.lower()) for name in names if name.lower() in self._left]
        if len(found) > 1:
            raise OptionError(option=found[1][0], value="...", expected=f"only one of {', '.join(names)}")
        return found[0][1] if found else None

    def number(self, name: str, default: float, low: float, kind: Callable[[str], float] = float) -> float:
        text = self.text(name)
        if text is None:
            return default
        try:
            value = kind(text)
        except ValueError:
            value = low - 1
        if not low <= value <= _MOST:
            what = "an integer" if kind is int else "a number"
            raise OptionError(option=name, value=text, expected=f"{what} of at least {low:g}")
        return value

    def limit(self, name: str, default: int | None, factor: int = 1) -> int | None:
        """A positive number; 0 is no limit."""
        value = int(self.number(name, default or 0, 0, int if factor == 1 else float) * factor)
        return value or None

    def seconds(self, *names: str, default: float, unit: str = "s") -> float:
        """A duration: a number of ``unit``, or with a unit of its own ("500ms", "2m")."""
        text = self.text(*names)
        if text is None:
            return default
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
        if match is None or (match[2] or unit) not in _UNITS:
            expected = f"a duration: a number of {unit}, or a text like 500ms, 10s, 2m"
            raise OptionError(option=names[0], value=text, expected=expected)
        return min(float(match[1]), _MOST) * _UNITS[match[2] or unit]

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in _TRUE | _FALSE:
            raise OptionError(option=name, value=text, expected="true or false")
        return text.lower() in _TRUE

    def flag_or_size(self, name: str) -> bool | int:
        """False unless given; true or false, or a number of bytes, at least 2 (1 is true, 0 false)."""
        text = self.text(name)
        if text is None or text.lower() in _FALSE:
            return False
        if text.lower() in _TRUE:
            return True
        if not (text.isascii() and text.isdecimal() and len(text) < 19 and int(text) > 1):
            raise OptionError(option=name, value=text, expected="true, false, or the largest size in bytes")
        return int(text)

    def warn(self, name: str, reason: str) -> None:
        """An option was given that changes nothing."""
        _log.warning("option %s changes nothing: %s", name, reason)

    def done(self) -> None:
        """Raises OptionError for an option that nobody took."""
        for name, reason in NOT_NEEDED.items():
            if self._left.pop(name.lower(), None) is not None:
                self.warn(name, reason)
        # SPK-64: "An option that is not known, or has a value it cannot have, MUST be refused before
        # anything is read, with its name and what was expected."
        if self._left:
            short, (name, value) = next(iter(self._left.items()))
            known = {name.lower(): name for name in self._known}
            like = " or ".join(known[found] for found in difflib.get_close_matches(short, known, 2))
            hint = f" ({like}, perhaps)" if like else ""
            raise OptionError(
                option=name,
                value="..." if any(word in short for word in ("secret", "token", "password")) else value,
                expected=f"an option of kpl-kinesis{hint}: {', '.join(sorted(self._known, key=str.lower))}",
            )
