"""Sound aggregates without the compiled extension: numpy finds the user records of a whole batch at once.

The KPL writes key tables and then user records, each as its partition key index, perhaps an explicit hash key
index, and its data. `sound_aggregates` looks for these fields before the data. A message is sound if the user
records found in it follow one another from the end of the key tables to the end of the message, and protobuf
reads nothing but key tables before them. The `Opener` parses all other messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa

from ..format.frame import digest
from ..format.message import AggregatedRecord
from ..format.protobuf_parser import key_tables
from ..limits import DIGEST_SIZE, FRAME_OVERHEAD, MAGIC
from .layout import Numbers, Source

#: So many bytes are searched at a time: what is made of them stays in the CPU's cache.
_SEARCHED = 128 * 1024


class DataInBatch(Sequence[bytes]):
    """The data of ``size`` user records, not copied: every second of ``values`` from ``first`` on."""

    __slots__ = ("first", "size", "values")

    def __init__(self, values: pa.LargeBinaryArray, first: int, size: int) -> None:
        self.values, self.first, self.size = values, first, size

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> Any:
        found = range(self.first, self.first + 2 * self.size, 2)[index]
        if isinstance(found, range):
            return [self.values[number].as_py() for number in found]
        return self.values[found].as_py()


def sound_aggregates(source: Source, rows: Numbers) -> dict[int, AggregatedRecord]:
    """Those of ``rows``, which start as frames do, that are certainly sound."""
    data, offsets = source.bytes_of_data()
    rows = rows[offsets[rows + 1] - offsets[rows] > FRAME_OVERHEAD]
    if not len(rows):
        return {}
    begins, stops = offsets[rows] + len(MAGIC), offsets[rows + 1] - DIGEST_SIZE
    users = _user_records(data, int(begins[0]), int(stops[-1]))
    starts, ends = users[0], users[-1]
    of = np.searchsorted(begins, starts, side="right") - 1
    # In one message, and not in the data of another user record.
    known = ends <= stops[of]
    known[1:] &= starts[1:] >= np.maximum.accumulate(np.where(known, ends, 0))[:-1]
    if not known.all():
        users, of = users.compress(known, axis=1), of[known]
    if not len(of):
        return {}
    starts, pks, ehks, _, ends = users
    firsts = np.flatnonzero(np.diff(of, prepend=-1))
    counts = np.diff(firsts, append=len(of))
    of = of[firsts]
    following = np.append(starts[1:], 0)
    following[firsts + counts - 1] = stops[of]
    without_gaps = np.logical_and.reduceat(following == ends, firsts)
    most = (np.maximum.reduceat(each, firsts) for each in (pks, ehks))
    messages = (rows[of], begins[of], starts[firsts], stops[of], firsts, counts, *most)
    # The data of user record i is value 2 i + 1; between them is what is not data.
    borders = np.append(0, users[3:].T)
    buffers = [None, pa.py_buffer(borders), source.data.buffers()[2]]
    values = pa.Array.from_buffers(pa.large_binary(), 2 * len(ends), buffers)
    all_bytes, all_pks, all_ehks = data.data, pks.data, ehks.data
    found = {}
    for row, begin, start, stop, first, count, pk, ehk in np.stack(messages, axis=1)[without_gaps].tolist():
        tables = key_tables(bytes(all_bytes[begin:start]))
        if tables is None or pk >= len(tables[0]) or ehk >= len(tables[1]):
            continue
        if digest(all_bytes[begin:stop]) == all_bytes[stop : stop + DIGEST_SIZE]:
            indices = all_pks[first : first + count], all_ehks[first : first + count] if ehk >= 0 else None
            found[row] = AggregatedRecord(*tables, *indices, DataInBatch(values, 2 * first + 1, count), None)
    return found


def _user_records(data: Numbers, begin: int, stop: int) -> Numbers:
    """What looks like user records with a first index between ``begin`` and ``stop``: where each starts, its
    indices (-1: none), where its data starts and ends. The data is the rest of the user record.

    At least 4 bytes precede ``begin`` and 16 follow ``stop``.
    """
    # A tag and one to three bytes of length precede the first index.
    found = []
    for first in range(begin, stop, _SEARCHED):
        end = min(first + _SEARCHED, stop)
        tags = data[first - 4 : end] == 0x1A
        near = tags[2:-2] | tags[1:-3]
        near |= tags[:-4]
        near &= data[first:end] == 0x08
        found.append(np.flatnonzero(near) + first)
    at = np.concatenate(found)
    before = _words(data, at - 4, "<u4")
    size = np.where(before >> 16 & 0xFF == 0x1A, 2, np.where(before >> 8 & 0xFF == 0x1A, 3, 4))
    starts, sound = at - size, np.ones(len(at), bool)
    length, taken = _varints(before >> (40 - 8 * size), sound)
    sound &= taken == size - 1
    ends = at + length
    words = _words(data, at + 1)
    pks, taken = _varints(words, sound)
    at += taken + 2
    words >>= 8 * taken
    ehks = np.full(len(at), -1)
    explicit = np.flatnonzero(words & 0xFF == 0x10)
    if len(explicit):
        known = sound[explicit]
        ehks[explicit], taken = _varints(words[explicit] >> 8, known)
        sound[explicit] = known
        at[explicit] += taken + 1
        words[explicit] = _words(data, at[explicit] - 1)
    sound &= words & 0xFF == 0x1A
    length, taken = _varints(words >> 8, sound)
    at += taken
    sound &= at + length == ends
    return np.stack((starts, pks, ehks, at, ends)).compress(sound, axis=1)


def _words(data: Numbers, at: Numbers, kind: str = "<i8") -> Numbers:
    """The bytes from each of these places on, as one number."""
    size = np.dtype(kind).itemsize
    words: Numbers = np.ndarray(len(data) - size + 1, kind, data, strides=(1,))
    return words[at].astype(np.int64)


def _varints(words: Numbers, sound: Numbers) -> tuple[Numbers, Numbers]:
    """The varints that these words start with, and of how many bytes. Of more than three is not ``sound``."""
    values, sizes, more = words & 0x7F, np.ones(len(words), np.int64), words & 0x80
    for number in (1, 2):
        if not more.any():
            break
        sizes += more > 0
        byte = np.where(more, words >> 8 * number, 0)
        values |= (byte & 0x7F) << 7 * number
        more = byte & 0x80
    sound &= more == 0
    return values, sizes
