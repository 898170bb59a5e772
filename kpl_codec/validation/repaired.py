"""The user records that `kpl-codec repair` has put again, by the tags of their copies, and by its logs.

Each copy has a tag with the place of the original. The KCL ignores tags, and user records with equal contents
are not confused. A log may have been changed, cut off or copied: InputError tells what no repair wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from ..arrow.layout import values_of
from ..captures import InputError, Location

#: Key of the tag; its value is shard id, sequence number and sub-sequence number, with slashes between.
TAG = "kpl_codec.repair"
#: What `mark` writes in place of "dropped".
REPAIRED = "repaired"
Place = tuple[str, str, int]
#: Every aggregate has fewer than a million user records; a number from the input must not exhaust the memory.
_PLACE = re.compile(r"([^/]+)/([^/]+)/([0-9]{1,6})")


def tag_value(place: Iterable[Any]) -> str:
    """The value of the tag of a copy of the user record at ``place``."""
    return "/".join(map(str, place))


def named(place: Iterable[Any]) -> Place | None:
    """Shard id, sequence number and sub-sequence number, if there are all and a tag can name them."""
    return None if None in place else _place(tag_value(place))


class Repaired:
    """Places of user records that were put again. Memory: a bit for each, and about 200 bytes for each
    Kinesis record."""

    def __init__(self, places: Iterable[Place] = ()) -> None:
        self._bits: dict[tuple[str, str], int] = {}
        for place in places:
            self.add(place)

    def __bool__(self) -> bool:
        return bool(self._bits)

    def __contains__(self, place: tuple[str | None, str | None, int | None]) -> bool:
        shard_id, number, index = place
        if shard_id is None or number is None or index is None or index < 0:
            return False
        return bool(self._bits.get((shard_id, number), 0) >> index & 1)

    def add(self, place: tuple[str | None, str | None, int]) -> bool:
        """Add a place; gives whether it is new. One without a shard or a number always is."""
        shard_id, number, index = place
        if place in self:
            return False
        if shard_id is not None and number is not None and index >= 0:
            self._bits[shard_id, number] = self._bits.get((shard_id, number), 0) | 1 << index
        return True

    def mark(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of `check` with "repaired" as ``kcl`` where it says "dropped" and a copy was put."""
        if not self._bits:
            return batch
        dropped = pc.fill_null(pc.equal(batch["kcl"], "dropped"), False)
        rows = pc.indices_nonzero(dropped)
        names = ("shardId", "sequenceNumber", "subSequenceNumber")
        places = zip(*(values_of(batch[name].take(rows)) for name in names), strict=True)
        # SPK-34: "A user record that the KCL drops and that repair has put again MUST be told as repaired,
        # known by the tag of its copy, and MUST NOT be planned to be put once more; a copy that is too large
        # with the tag MUST NOT be put."
        fates = pa.array([REPAIRED if place in self else "dropped" for place in places], pa.string())
        marked = pc.replace_with_mask(batch["kcl"].cast(pa.string()), dropped, fates)
        return batch.set_column(batch.schema.get_field_index("kcl"), "kcl", marked.dictionary_encode())


def copied_places(batch: pa.RecordBatch) -> Iterator[str]:
    """The tag values of copies among judged user records that a KCL consumer gets."""
    tags = batch["tags"]
    if tags.null_count == len(tags):
        return
    # `flatten` leaves null lists out, `list_parent_indices` too.
    flat = tags.flatten()
    ours = pc.fill_null(pc.equal(flat.field("key"), TAG), False)
    rows = pc.list_parent_indices(tags).filter(ours)
    fates = values_of(batch["kcl"].take(rows))
    for value, fate in zip(flat.field("value").filter(ours).to_pylist(), fates, strict=True):
        if fate == "delivered" and value is not None:
            yield value


def read_copied(folder: Location) -> Repaired:
    """The copies whose tag values the tasks wrote to files of ``folder``."""
    places = (_place(value) for file in folder.files() for value in json.loads(file.read()))
    return Repaired(place for place in places if place is not None)


def _place(value: str) -> Place | None:
    """The place in a tag's value; None if it has another form."""
    found = _PLACE.fullmatch(value)
    return (found[1], found[2], int(found[3])) if found else None


# -- logs -----------------------------------------------------------------------------------------


class Log:
    """The log of what was put, in segments that become visible when complete."""

    def __init__(self, folder: Location) -> None:
        self._folder, self._attempt, self._segment = folder, uuid4().hex, 0
        self._lines: list[str] = []

    def done(self) -> Repaired:
        """What earlier attempts have put. Raises InputError."""
        return Repaired(old for old, _ in read_copies(self._folder))

    def add(self, entry: dict[str, Any]) -> None:
        self._lines.append(json.dumps(entry) + "\n")

    def write(self) -> None:
        if self._lines:
            segment = self._folder / f"{self._attempt}.{self._segment:06d}.jsonl"
            segment.write("".join(self._lines).encode())
            self._segment, self._lines = self._segment + 1, []


def read_copies(folder: Location) -> Iterator[tuple[Place, Place]]:
    """The name of each user record that was put, as the logs in ``folder`` say, and that of its copy. Raises
    InputError for a line that cannot be read: what it says could be put twice."""
    logs = (file for file in folder.files() if file.name.endswith(".jsonl"))
    lines = ((file, *numbered) for file in logs for numbered in enumerate(file.read().splitlines(), 1))
    for file, number, line in lines:
        try:
            entry = json.loads(line)
            if entry["outcome"] != "put":
                continue
            place, new = named(entry["old"]), entry["new"]
            if place is None:
                raise ValueError("no name of a user record")
            copy = str(new[0]), str(new[1]), int(new[2])
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            reason = f"line {number}: {type(error).__name__}: {error}"
            raise InputError(code="unreadable", path=file.path, reason=reason) from None
        yield place, copy
