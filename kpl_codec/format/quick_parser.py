"""Reads a sound message quickly where nothing is compiled, as `_native/wire.h` does.

It knows the shape that writers give a message: tables, and user records of an index, perhaps a second one,
and data, in this order. Anything else (tags, unknown fields, another order, a defect) gives None: wire.py
decides.
"""

from __future__ import annotations

from typing import Any

from ..errors import HashKeyError, MalformedMessage
from ..limits import MAX_PARTITION_KEY_LENGTH
from .fields import read_varint
from .hash_keys import explicit_hash_key_value

#: The parts of AggregatedRecord, in its order.
Parts = tuple[Any, ...]


def parse(message: bytes) -> Parts | None:
    """The parts of the AggregatedRecord in ``message``; None: it may be broken."""
    tables: dict[int, list[bytes]] = {0x0A: [], 0x12: []}
    partition_key_indices: list[int] = []
    explicit_hash_key_indices: list[int] = []
    payloads: list[bytes] = []
    pos, size = 0, len(message)

    def number(at: int) -> tuple[int, int]:
        return read_varint(message, at, size)

    try:
        while pos < size:
            tag = message[pos]
            # Nearly every number has one byte: only the others cost a call.
            length, pos = (message[pos + 1], pos + 2) if message[pos + 1] < 0x80 else number(pos + 1)
            end = pos + length
            if end > size:
                return None
            if tag != 0x1A:
                tables[tag].append(message[pos:end])
                pos = end
                continue
            if message[pos] != 0x08:
                return None
            pk, pos = (message[pos + 1], pos + 2) if message[pos + 1] < 0x80 else number(pos + 1)
            ehk = -1
            if message[pos] == 0x10:
                ehk, pos = number(pos + 1)
            if message[pos] != 0x1A:
                return None
            length, pos = (message[pos + 1], pos + 2) if message[pos + 1] < 0x80 else number(pos + 1)
            if pos + length != end:  # whatever was read before lies within the user record, too
                return None
            partition_key_indices.append(pk)
            explicit_hash_key_indices.append(ehk)
            payloads.append(message[pos:end])
            pos = end
        partition_keys = tuple(map(bytes.decode, tables[0x0A]))
        explicit_hash_keys = tuple(map(bytes.decode, tables[0x12]))
        for key in explicit_hash_keys:
            explicit_hash_key_value(key)
    except (IndexError, KeyError, MalformedMessage, UnicodeDecodeError, HashKeyError):
        return None
    if not payloads or max(map(len, partition_keys), default=0) > MAX_PARTITION_KEY_LENGTH:
        return None
    last = max(explicit_hash_key_indices)
    if max(partition_key_indices) >= len(partition_keys) or last >= len(explicit_hash_keys):
        return None
    return (
        *(partition_keys, explicit_hash_keys, partition_key_indices),
        *(None if last < 0 else explicit_hash_key_indices, payloads, None),
    )
