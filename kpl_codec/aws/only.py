"""Just the records whose sequence numbers somebody has: of a channel's dead-letter objects, of a log, of a
failed Lambda invocation.

    numbers = sequence_numbers(Path("errors.json").read_bytes())
    for record in read_only(client, "orders", numbers): ...       # KinesisRecord, or Gone
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..adapters.json_stream import Defect, json_documents
from ..format.records import KinesisRecord, answered_record
from ..shards.live_shard_map import StreamUnavailable
from ..shards.place import at_record
from ..shards.sequence_numbers import SequenceNumberError, parse_sequence_number, sequence_hint
from ..values import Value
from .calls import finished
from .cursor import ShardCursor
from .reading import PATIENCE, records_at

__all__ = ["Gone", "Place", "read_only", "sequence_numbers"]

#: What the service says of a sequence number, or a shard, that it no longer has.
_GONE = ("InvalidArgumentException", "ResourceNotFoundException")
_NUMBER_A_LINE = re.compile(rb"\s*\d+(\s+\d+)*\s*")


class Place(NamedTuple):
    """A sequence number and its shard, None where neither the source nor the number says it."""

    shard_id: str | None
    sequence_number: str


class Gone(Value):
    """A record that the stream does not give any more: its retention is over, or it is of another stream."""

    place: Place
    reason: str


def sequence_numbers(data: bytes) -> list[Place]:
    """Every sequence number in ``data``, once, in the order in which they are there: members of JSON objects
    at any depth that are called sequenceNumber in any case, with or without underscores, beside a shardId or
    below one; or nothing but numbers, one a line.

    JSON in a member's text is read, too (``body``, ``payload``). What is not JSON is passed over.
    """
    if _NUMBER_A_LINE.fullmatch(data):
        return [_place(None, number.decode()) for number in dict.fromkeys(data.split())]
    found: dict[Place, None] = {}
    for document in json_documents([data]):
        if not isinstance(document, Defect):
            found.update(dict.fromkeys(_places(document.value, None)))
    return list(found)


def _places(value: Any, shard_id: str | None) -> Iterator[Place]:
    if isinstance(value, list):
        for item in value:
            yield from _places(item, shard_id)
    elif isinstance(value, str) and value[:1] in ("{", "["):
        try:
            yield from _places(json.loads(value), shard_id)
        except ValueError:  # a text that only begins like JSON
            return
    elif isinstance(value, dict):
        named = {name.lower().replace("_", ""): item for name, item in value.items()}
        own = named.get("shardid")
        if not isinstance(own, str) and isinstance(named.get("eventid"), str):
            own = named["eventid"].rpartition(":")[0]  # as Lambda names it
        shard_id = own if isinstance(own, str) and own else shard_id
        number = named.get("sequencenumber")
        if isinstance(number, str):
            try:
                parse_sequence_number(number)
                yield _place(shard_id, number)
            except SequenceNumberError:  # something else of that name
                pass
        for item in value.values():
            if isinstance(item, (dict, list, str)) and item is not number:
                yield from _places(item, shard_id)


def _place(shard_id: str | None, number: str) -> Place:
    hint = sequence_hint(number) if shard_id is None else None
    return Place(hint.shard_id if hint is not None else shard_id, number)


def read_only(
    client: Any, stream: str, places: Iterable[Place], *, read_on: int = 1
) -> Iterator[KinesisRecord | Gone]:
    """The record at each place, or why there is none. Raises StreamUnavailable.

    ``read_on``: records asked for at a time, where places in order are near each other. Two calls for each
    that is not among those just read.
    """
    shard_id, first, last, held = "", 0, -1, dict[str, Mapping[str, Any]]()
    for place in places:
        # CHN-3: "Of records that were asked for by sequence number each MUST be given, or named as gone."
        number, reason = place.sequence_number, "the stream does not hold it any more"
        if place.shard_id is None:
            yield Gone(place, "nothing says its shard")
            continue
        if place.shard_id != shard_id or not first <= int(number) <= last:
            cursor = ShardCursor(client, stream, place.shard_id, at_record(number), patience=PATIENCE)
            try:
                found = finished(records_at(cursor, read_on))
            except StreamUnavailable as error:
                if error.code not in _GONE:
                    raise
                found, reason = [], error.reason
            held = {record["SequenceNumber"]: record for record in found}
            shard_id, first, last = place.shard_id, int(number), max(map(int, held), default=int(number))
        yield answered_record(held[number], shard_id) if number in held else Gone(place, reason)
