"""Finds the user records that `kpl-codec repair` has put again, by the tags of their copies and by its logs.

Each copy has a tag with the place of its original. Every producer can write such a tag, so only a copy with
the keys and data of its original counts. A log that no repair can have written raises InputError.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..arrow.layout import values_of
from ..captures import InputError, Location
from ..findings import Finding
from ..rendering.labels import plural
from .report.scan import AboutRow, findings_about

#: Key of the tag; its value is shard id, sequence number and sub-sequence number, with slashes between.
TAG = "kpl_codec.repair"
#: What `Copies.mark` writes in place of "dropped" for a user record that was put again.
REPAIRED = "repaired"
RecordPlace = tuple[str, str, int]
Numbers = np.ndarray[Any, Any]
#: A digest of 16 bytes.
_DIGEST = np.dtype("V16")
_NONE, _NO_CONTENTS = np.empty(0, np.int64), np.empty(0, _DIGEST)
#: Every aggregate has fewer than a million user records; a number from the input must not exhaust the memory.
_PLACE = re.compile(r"([^/]+)/([^/]+)/([0-9]{1,6})")


def tag_value(place: Iterable[Any]) -> str:
    """The value of the tag of a copy of the user record at ``place``."""
    return "/".join(map(str, place))


def nameable_place(place: Iterable[Any]) -> RecordPlace | None:
    """Shard id, sequence number and sub-sequence number, if a tag can name them; else None."""
    return None if None in place else _place(tag_value(place))


class RecordPlaces:
    """A set of places of user records. Memory: a bit for each, and about 300 bytes for each 1,024 of a
    Kinesis record."""

    def __init__(self, places: Iterable[RecordPlace] = ()) -> None:
        self._bits: defaultdict[tuple[Any, ...], int] = defaultdict(int)
        for place in places:
            self.add(place)

    def __contains__(self, place: tuple[str | None, str | None, int]) -> bool:
        shard_id, number, index = place
        return self._bits.get((shard_id, number, index >> 10), 0) >> (index & 1023) & 1 == 1

    def add(self, place: tuple[str | None, str | None, int]) -> bool:
        """Add a place. Returns whether it is new: a place without a shard or a sequence number always is."""
        shard_id, number, index = place
        is_new = place not in self
        if None not in place and index >= 0:
            self._bits[shard_id, number, index >> 10] |= 1 << (index & 1023)
        return is_new


class Copies:
    """The delivered user records that have the tag of a copy: for each the hash of the place that the tag
    names, and a digest of its contents. Memory: 24 bytes for each."""

    def __init__(self, places: Numbers = _NONE, contents: Numbers = _NO_CONTENTS) -> None:
        order = np.argsort(places, kind="stable")
        self._places, self._contents = places[order], contents[order]

    def __bool__(self) -> bool:
        return len(self._places) > 0

    def mark(
        self, checked: Iterable[pa.RecordBatch], report: Callable[[Iterable[Finding]], None]
    ) -> Iterator[pa.RecordBatch]:
        """Batches of `check`, with "repaired" as ``kcl`` for user records that the KCL dropped and of which a
        copy was put. User records that another one wrongly claims to be the copy of are reported."""
        for batch in checked:
            dropped = pc.fill_null(pc.equal(batch["kcl"], "dropped"), False)
            if not self or not dropped.true_count:
                yield batch
                continue
            rows = batch.filter(dropped)
            outcomes: list[str] = []
            about: list[AboutRow] = []
            marks = zip(_places(rows), contents_in(rows), originals_in(rows), strict=True)
            for row, (place, contents, originals) in enumerate(marks):
                same = self._are_like(place, contents)
                # SPK-34: "A user record that the KCL drops and that repair has put again MUST be reported as
                # repaired, known by a copy that has its tag, keys and data, and MUST NOT be planned to be put
                # once more; a copy that is too large with the tag MUST NOT be put."
                # (A dropped copy is repaired with its original.)
                put_again = same.any() or any(self._are_like(one, contents).any() for one in originals)
                outcomes.append(REPAIRED if put_again else "dropped")
                if not same.all():
                    claims = plural(int((~same).sum()), "user record has", "user records have")
                    text = f"{claims} the tag {TAG} = {place}, not its keys and data"
                    about.append((row, "unlike-copy", text))
            marked = pc.replace_with_mask(batch["kcl"].cast(pa.string()), dropped, pa.array(outcomes))
            yield batch.set_column(batch.schema.get_field_index("kcl"), "kcl", marked.dictionary_encode())
            report(findings_about(rows, about))

    def _are_like(self, place: str, contents: bytes) -> Any:
        """Of each user record with a tag that names ``place``, whether it has these contents."""
        first, last = np.searchsorted(self._places, [_hash(place), _hash(place) + 1])
        return self._contents[first:last] == np.frombuffer(contents, _DIGEST)


def _hash(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _places(batch: pa.RecordBatch) -> Iterator[str]:
    """The tag values that copies of these user records have; "" if a tag cannot name a user record."""
    columns = (values_of(batch[name]) for name in ("shardId", "sequenceNumber", "subSequenceNumber"))
    for place in zip(*columns, strict=True):
        yield "" if nameable_place(place) is None else tag_value(place)


def originals_in(batch: pa.RecordBatch) -> Iterator[list[str]]:
    """The places that the tags of each user record name, if it is a copy."""
    for tags in batch["tags"].to_pylist():
        yield [tag["value"] for tag in tags or () if tag["key"] == TAG and _place(tag["value"] or "")]


def contents_in(batch: pa.RecordBatch) -> Iterator[bytes]:
    """A digest of each user record's partition key, explicit hash key and data: 16 bytes."""
    names = ("partitionKey", "explicitHashKey")
    keys = [values_of(batch[name]) if name in batch.schema.names else [None] * len(batch) for name in names]
    for key, hash_key, data in zip(*keys, batch["data"].to_pylist(), strict=True):
        # "007" may be read, but is written as "7".
        parts = repr((key, hash_key and hash_key.lstrip("0"))).encode("utf-8", "surrogatepass")
        yield blake2b(parts + b"\0" + (data or b""), digest_size=16).digest()


def copies_in(batch: pa.RecordBatch) -> Iterator[tuple[str, str]]:
    """The tag value, and a hexadecimal digest of the contents, of each delivered copy among user records."""
    tags = batch["tags"]
    if tags.null_count == len(tags):
        return
    # `flatten` leaves null lists out, `list_parent_indices` too.
    flat = tags.flatten()
    ours = pc.fill_null(pc.equal(flat.field("key"), TAG), False)
    rows = batch.take(pc.list_parent_indices(tags).filter(ours))
    values = flat.field("value").filter(ours).to_pylist()
    for value, outcome, contents in zip(values, values_of(rows["kcl"]), contents_in(rows), strict=True):
        if outcome == "delivered" and value is not None and _place(value) is not None:
            yield value, contents.hex()


def read_task_copies(work: Location) -> Copies:
    """The copies that the tasks wrote to files of ``work``, of Kinesis records that have a finding."""
    places, records, contents = array("q"), array("q"), bytearray()
    for file in (work / "copies").files():
        for value, digest in json.loads(file.read()):
            places.append(_hash(value))
            records.append(_hash(value.rpartition("/")[0]))
            contents += bytes.fromhex(digest)
    if not places:
        return Copies()
    finding_hashes: set[int] = set()
    for batch in (work / "findings").rows(["shardId", "sequenceNumber"]):
        names = zip(*(values_of(batch[name]) for name in batch.schema.names), strict=True)
        finding_hashes.update(_hash(tag_value(name)) for name in names if None not in name)
    # Only copies of Kinesis records with a finding count: anybody can write a tag.
    has_finding = np.isin(np.frombuffer(records, np.int64), np.fromiter(finding_hashes, np.int64))
    return Copies(np.frombuffer(places, np.int64)[has_finding], np.frombuffer(contents, _DIGEST)[has_finding])


def _place(value: str) -> RecordPlace | None:
    """The place in a tag's value; None if it has another form."""
    match = _PLACE.fullmatch(value)
    return (match[1], match[2], int(match[3])) if match else None


# -- logs -----------------------------------------------------------------------------------------


class RepairLog:
    """The log of the user records that were put, in segments that become visible when they are complete."""

    def __init__(self, folder: Location) -> None:
        self._folder, self._attempt, self._segment = folder, uuid4().hex, 0
        self._lines: list[str] = []

    def put_places(self) -> RecordPlaces:
        """The places of the user records that earlier runs have put. Raises InputError."""
        return RecordPlaces(old for old, _ in read_copies(self._folder))

    def add(self, entry: dict[str, Any]) -> None:
        self._lines.append(json.dumps(entry) + "\n")

    def write(self) -> None:
        if self._lines:
            segment = self._folder / f"{self._attempt}.{self._segment:06d}.jsonl"
            segment.write("".join(self._lines).encode())
            self._segment, self._lines = self._segment + 1, []


def repair_log(results: Location) -> Location:
    """The folder of logs of the repair from ``results``. Raises InputError if ``results`` holds no
    results."""
    if all((results / name).kind() is None for name in ("findings", "user-records", "repair/log")):
        kinds = {None: "no such file or folder", "file": "it is a file, not a folder of results"}
        reason = kinds.get(results.kind(), "it holds no results of kpl-codec validate or audit")
        raise InputError(code="unreadable", path=results.path, reason=reason)
    return results / "repair/log"


def read_copies(folder: Location) -> Iterator[tuple[RecordPlace, RecordPlace]]:
    """The places of each original and its copy, as the logs in ``folder`` say. Raises InputError for a line
    that cannot be read: its user record could be put twice."""
    logs = (file for file in folder.files() if file.name.endswith(".jsonl"))
    lines = ((file, *numbered) for file in logs for numbered in enumerate(file.read().splitlines(), 1))
    for file, number, line in lines:
        try:
            entry = json.loads(line)
            if entry["outcome"] != "put":
                continue
            place, new = nameable_place(entry["old"]), entry["new"]
            if place is None:
                raise ValueError("no name of a user record")
            copy = str(new[0]), str(new[1]), int(new[2])
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            reason = f"line {number}: {type(error).__name__}: {error}"
            raise InputError(code="unreadable", path=file.path, reason=reason) from None
        yield place, copy
