"""Reads the cells of tables: texts, and numbers in any form that other programs write them."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: What text files have, in lower case, where there is no number.
NULLS: Final = {"", "null", "none", "nan", "na", "n/a", "\\n"}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?", re.ASCII)
#: States of a cell that should have a number: it has one, it is empty, it has something else.
OK, NULL, BAD = 0, 1, 2


def texts(column: Any) -> Any:
    """A column as a dictionary array of texts. Any other cell, such as a list, becomes what `str` makes of
    it."""
    is_dictionary = pa.types.is_dictionary(column.type)
    try:
        if is_dictionary:
            array = column.cast(pa.dictionary(column.type.index_type, pa.string()))
        else:
            array = column.cast(pa.string()).dictionary_encode()
        array.dictionary.validate(full=True)  # bytes that are no UTF-8
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        plain = column.dictionary_decode() if is_dictionary else column
        cells = plain.cast(pa.binary()) if pa.types.is_string(plain.type) else plain
        return pa.array(map(_text, cells.to_pylist()), pa.string()).dictionary_encode()
    return array


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)


def whole_numbers(column: Any) -> tuple[Any, Any]:
    """A column as numbers, and the state of each cell: `OK`, or `NULL` or `BAD` with the number 0."""
    if pa.types.is_signed_integer(column.type):
        states = np.where(column.is_null().to_numpy(zero_copy_only=False), NULL, OK)
        return pc.fill_null(column.cast(pa.int64()), 0).to_numpy(), states
    numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    encoded = column.dictionary_encode() if numeric or pa.types.is_decimal(column.type) else texts(column)
    cells = [*map(_whole_number, encoded.dictionary.to_pylist()), (0, NULL)]
    numbers, states = np.array(cells, np.int64).T
    index = pc.fill_null(encoded.indices.cast(pa.int64()), len(cells) - 1).to_numpy()
    return numbers[index], states[index]


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
