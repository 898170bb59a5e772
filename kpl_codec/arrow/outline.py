"""Sound aggregates of one batch as numbers into its bytes: the road where nothing is compiled.

protobuf's runtime cuts each message into its keys and its user records (as bytes: their lengths are all
that is used), and numpy reads the few bytes before the data of all user records of the batch at once.
Certain is a frame with the right digest whose message is written as the KPL writes it (ENC-4), without
tags and unknown fields, every key and index in order; all else is left to `parse` and the byte walker.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ..errors import ChecksumMismatch
from ..format import frame
from ..format.protobuf_parser import outline
from ..limits import DIGEST_SIZE
from .layout import Source

Numbers = np.ndarray[Any, Any]


class Outline(NamedTuple):
    """What an `AggregatedRecord` is, with ``starts`` and ``ends`` of the data in the batch's bytes."""

    partition_key_table: tuple[str, ...]
    explicit_hash_key_table: tuple[str, ...]
    partition_key_indices: Numbers
    explicit_hash_key_indices: Numbers | None
    starts: Numbers
    ends: Numbers


class _Cut(NamedTuple):
    row: int
    partition_keys: tuple[str, ...]
    explicit_hash_keys: tuple[str, ...]
    lengths: list[int]
    end: int  # where the message ends in the batch's bytes


def outlines(source: Source, rows: Iterable[int]) -> dict[int, Outline]:
    """Those of ``rows`` that are certain, by row."""
    cuts = [cut for row in rows if (cut := _cut(source, row)) is not None]
    if not cuts:
        return {}
    counts = np.array([len(cut.lengths) for cut in cuts])
    lengths = np.fromiter(chain.from_iterable(cut.lengths for cut in cuts), np.int64, int(counts.sum()))
    firsts = np.cumsum(counts) - counts
    # The user records stand at the end of the message, one behind the other.
    ends = np.cumsum(1 + _varint_sizes(lengths) + lengths)
    ends += np.repeat(np.array([cut.end for cut in cuts]) - ends[firsts + counts - 1], counts)
    sizes = [(len(cut.partition_keys), len(cut.explicit_hash_keys)) for cut in cuts]
    pk_sizes, ehk_sizes = (np.repeat(np.array(column), counts) for column in zip(*sizes, strict=True))
    pks, ehks, starts, sound = _heads(source.bytes, ends - lengths, ends)
    sound &= (pks < pk_sizes) & (ehks < ehk_sizes)
    certain = np.logical_and.reduceat(sound, firsts)
    found = {}
    for number, (cut, first, count) in enumerate(zip(cuts, firsts.tolist(), counts.tolist(), strict=True)):
        if certain[number]:
            of = slice(first, first + count)
            found[cut.row] = Outline(
                cut.partition_keys, cut.explicit_hash_keys, pks[of],
                ehks[of] if cut.explicit_hash_keys else None, starts[of], ends[of],
            )  # fmt: skip
    return found


def _cut(source: Source, row: int) -> _Cut | None:
    data = source.data_at(row)
    if data is None or not frame.looks_aggregated(data):
        return None
    try:
        cut = outline(frame.split_frame(data))
    except ChecksumMismatch:
        return None
    return None if cut is None else _Cut(row, *cut, source.end_of(row) - DIGEST_SIZE)


def _varint_sizes(values: Numbers) -> Numbers:
    sizes = np.ones(len(values), np.int64)
    for shift in (7, 14, 21, 28):
        sizes += (values >> shift) > 0
    return sizes


def _heads(data: Numbers, starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Of user records between ``starts`` and ``ends``: both indices (-1: none), where the data begins, and
    whether they are a partition key index, perhaps an explicit hash key index, and the data, no more.

    At most 16 bytes are read behind a start, and a digest of 16 bytes follows the last user record.
    """
    sound = data[starts] == 0x08
    pks, at = _varints(data, starts + 1, sound)
    ehks = np.full(len(starts), -1, np.int64)
    explicit = np.flatnonzero(data[at] == 0x10)
    if len(explicit):
        fine = sound[explicit]
        ehks[explicit], at[explicit] = _varints(data, at[explicit] + 1, fine)
        sound[explicit] = fine
    sound &= data[at] == 0x1A
    lengths, at = _varints(data, at + 1, sound)
    sound &= at + lengths == ends
    return pks, ehks, at, sound


def _varints(data: Numbers, at: Numbers, sound: Numbers) -> tuple[Numbers, Numbers]:
    """Values and where they end; longer than four bytes is not ``sound``."""
    values = data[at].astype(np.int64)
    at = at + 1
    more = np.flatnonzero(values >= 0x80)
    values[more] &= 0x7F
    for shift in (7, 14, 21):
        if not len(more):
            break
        byte = data[at[more]].astype(np.int64)
        values[more] |= (byte & 0x7F) << shift
        at[more] += 1
        more = more[byte >= 0x80]
    sound[more] = False
    return values, at
