"""Chooses, by columns, the few rows of data that may have a nested aggregate; format/nested.py opens these.
Both look at the same first bytes: the row of every aggregate that `layers_around` finds is chosen, and few
others."""

from __future__ import annotations

from binascii import a2b_base64, unhexlify
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..format import nested
from ..format.compression import STARTS, beginning
from .layout import Numbers

#: Rows that are looked at together: so many that the calls of NumPy cost little, and so few that their first
#: bytes stay in the cache.
_ROWS: Final = 1 << 13
#: A sign begins in the first 32 bytes, and has at most 8.
_HEAD: Final = 40
#: Digits that are decoded: so many have at least 40 bytes in them.
_BASE64_DIGITS, _HEX_DIGITS = 56, 80
#: Text has at least 28 digits (`nested._TEXT`), behind at most 16 other characters: at these places digits
#: stand in all text. The first ones tell most other data apart.
_FEWEST: Final = 28
_SURELY_DIGITS: Final = (16, 27, 20, 24, 18, 22, 26, 17, 19, 21, 23, 25)
_DIGITS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_OF_HEX: Final = b"0123456789abcdefABCDEF"
#: For `bytes.translate`: the digits of base64's other alphabet, and any digit for what is none.
_TO_BASE64: Final = bytes(
    ord({"-": "+", "_": "/"}.get(chr(byte), chr(byte))) if byte in _DIGITS else ord("A")
    for byte in range(256)
)
_TO_HEX: Final = bytes(byte if byte in _OF_HEX else 48 for byte in range(256))


def _table(characters: bytes) -> Numbers:
    return np.isin(np.arange(256), [*characters])


_IS_DIGIT, _IS_HEX = _table(_DIGITS + b"\r\n"), _table(_OF_HEX)
_MAY_BEGIN_TEXT: Final = _table(_DIGITS + b' \t\r\n"')
#: Two bytes of each sign, by which it is looked for: the bytes of the sign that are before them.
_PAIRS: Final = {
    **dict.fromkeys((b"\xf3\x89", b"\x1f\x8b", b"\x28\xb5", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda"), 0),
    b"4m": 1,  # 84maw
    b"H4": 0,  # H4sI
    **dict.fromkeys((b"9a", b"9A"), 4),  # f3899ac2
}
_FIRST_OF_PAIR: Final = sorted({pair[0] for pair in _PAIRS})
#: Whether two bytes are such a pair. As a number: the first is the low byte, the second the high one.
_IS_PAIR: Final = np.zeros(1 << 16, bool)
_IS_PAIR[[first | second << 8 for first, second in _PAIRS]] = True


def may_nest(data: pa.Array) -> Numbers:
    """The numbers of the rows of ``data`` (binary) in which a nested aggregate may be, ascending."""
    found = [
        start + _candidates(data.slice(start, min(_ROWS, len(data) - start)), nested.LAYERS)
        for start in range(0, len(data), _ROWS)
    ]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _candidates(data: pa.Array, layers: int) -> Numbers:
    starts, heads = _first_bytes(data, _HEAD)
    places = _signs(heads)
    chosen = signed = np.zeros(0, np.int64)
    if len(places):
        signed, counts = np.unique(np.searchsorted(starts, places, "right") - 1, return_counts=True)
        chosen = signed
    if layers == nested.LAYERS and len(signed) > len(data) // 64:  # of the whole data, not of its beginning
        # Many are compressed: then it pays to look at what is in them by columns, too.
        alone = signed[counts == 1]
        alone = alone[np.isin(starts[alone], places)]
        packed = data.take(pa.array(alone)).to_pylist()
        inner = [beginning(item, nested.TEXT_HEAD) if item.startswith(STARTS) else None for item in packed]
        kept = np.array([content is None for content in inner], bool)
        kept[_candidates(pa.array(inner, pa.binary()), layers - 1)] = True
        chosen = np.setdiff1d(signed, alone[~kept])
    sizes = np.diff(starts)
    if layers:
        text = np.flatnonzero((sizes >= _FEWEST) & _MAY_BEGIN_TEXT[heads[starts[:-1]]])
        if len(text):
            chosen = np.union1d(chosen, _of_text(data, text[_digits_at(heads, starts[text])]))
    return chosen[sizes[chosen] >= nested.SHORTEST]


def _first_bytes(data: pa.Array, count: int) -> tuple[Numbers, Numbers]:
    """Where each row begins, and the end of the last, in an array of the first ``count`` bytes of all rows.
    It has ``count`` blanks more."""
    heads = pc.binary_slice(data, 0, count)
    _, offsets, values = heads.buffers()
    kind = np.int64 if pa.types.is_large_binary(heads.type) else np.int32
    starts = np.frombuffer(offsets, kind)[heads.offset :][: len(heads) + 1].astype(np.int64)
    size = int(starts[-1] - starts[0])
    out = np.full(size + count, ord(" "), np.uint8)
    if size:
        out[:size] = np.frombuffer(values, np.uint8)[starts[0] : starts[-1]]
    return starts - starts[0], out


def _signs(heads: Numbers) -> Numbers:
    """Where signs (`nested.SIGNS`) begin in ``heads``, but for the last eight bytes."""
    may_be = np.zeros(len(heads), bool)
    for first in _FIRST_OF_PAIR:
        may_be |= heads == first
    at = np.flatnonzero(may_be[:-1])
    at = at[_IS_PAIR[heads[at] | heads[at + 1].astype(np.uint16) << 8]]
    content = heads.tobytes()
    places = [place - _PAIRS[content[place : place + 2]] for place in at.tolist()]
    return np.array(
        [at for at in places if 0 <= at < len(heads) - 8 and content.startswith(nested.SIGNS, at)], np.int64
    )


def _digits_at(heads: Numbers, starts: Numbers) -> Numbers:
    """The numbers of the rows, beginning at ``starts``, that have digits wherever text has them."""
    rows = np.arange(len(starts))
    for place in _SURELY_DIGITS:
        if not len(rows):
            break
        rows = rows[_IS_DIGIT[heads[starts[rows] + place]]]
    return rows


def _of_text(data: pa.Array, rows: Numbers) -> Numbers:
    """Those of ``rows``, all of them text, in whose digits a nested aggregate may be."""
    if not len(rows):
        return rows
    starts, heads = _first_bytes(data.take(pa.array(rows)), _HEX_DIGITS + 1)
    starts = starts[:-1] + (heads[starts[:-1]] == ord('"'))
    window = heads[starts[:, None] + np.arange(_BASE64_DIGITS)]
    # White space moves the digits: Python looks at these rows.
    chosen = ~_IS_DIGIT[window[:, 0]]
    chosen |= np.logical_or(window == ord("\r"), window == ord("\n")).any(axis=1)
    chosen |= _content_may_nest(a2b_base64(window.tobytes().translate(_TO_BASE64)), len(rows))
    is_hex = np.arange(len(rows))
    for place in range(0, 2 * nested.SHORTEST, 3):
        is_hex = is_hex[_IS_HEX[window[is_hex, place]]]
    if len(is_hex):
        window = heads[starts[is_hex][:, None] + np.arange(_HEX_DIGITS)]
        chosen[is_hex] |= np.logical_or(window == ord("\r"), window == ord("\n")).any(axis=1)
        chosen[is_hex] |= _content_may_nest(unhexlify(window.tobytes().translate(_TO_HEX)), len(is_hex))
    return rows[[n for n in np.flatnonzero(chosen).tolist() if nested.may_nest(data[int(rows[n])].as_py())]]


def _content_may_nest(content: bytes, rows: int) -> Numbers:
    """Whether each of ``rows`` equal parts of ``content`` has a sign, or text in it."""
    width = len(content) // rows
    heads = np.frombuffer(content + bytes(8), np.uint8)
    chosen = np.zeros(rows, bool)
    chosen[_signs(heads) // width] = True
    chosen[_digits_at(heads, np.arange(0, len(content), width))] = True
    return chosen
