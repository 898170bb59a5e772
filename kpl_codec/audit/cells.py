"""Cells of tables: texts, and numbers in whatever form other programs write them."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: What text files say where there is no number.
NULLS: Final = {"", "null", "none", "nan", "na", "n/a", "\\n"}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?", re.ASCII)
#: What a cell of a column of numbers is.
OK, NULL, BAD = 0, 1, 2


def texts(column: Any) -> Any:
    """A column as a dictionary of texts."""
    if pa.types.is_dictionary(column.type):
        return column.cast(pa.dictionary(column.type.index_type, pa.string()))
    return column.cast(pa.string()).dictionary_encode()


def whole_numbers(column: Any) -> tuple[Any, Any]:
    """A column as numbers, and what each cell is: `OK`, `NULL` or `BAD` (then the number is 0)."""
    if pa.types.is_signed_integer(column.type):
        states = np.where(column.is_null().to_numpy(zero_copy_only=False), NULL, OK)
        return pc.fill_null(column.cast(pa.int64()), 0).to_numpy(), states
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    read = [_whole_number(value) for value in coded.dictionary.to_pylist()]
    values = np.array([number for number, _ in read] + [0], np.int64)
    states = np.array([state for _, state in read] + [NULL], np.int64)
    index = pc.fill_null(coded.indices.cast(pa.int64()), len(read)).to_numpy()
    return values[index], states[index]


def _whole_number(value: Any) -> tuple[int, int]:
    if value is None or value != value:  # (NaN)
        return 0, NULL
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in NULLS:
            return 0, NULL
        return (int(text.partition(".")[0]), OK) if _INTEGER.fullmatch(text) else (0, BAD)
    number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    whole = number and abs(value) < 1 << 53 and value == int(value)
    return (int(value), OK) if whole else (0, BAD)
