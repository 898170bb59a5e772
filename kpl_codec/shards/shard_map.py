"""The shard map of a stream: which shard a hash key belongs to; and the table by which a live map predicts.

Specification: spec/04-shards-and-placement.md, 4.1; spec/08-live-shard-map.md, MAP-21.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from ..base.arguments import argument_error
from ..errors import HashKeyError, ShardMapError
from ..format.limits import HASH_KEY_BITS, MAX_HASH_KEY
from .lineage import Lineage, checked_shards, distinct_shards
from .shard import Distribution, Shard, shards_of_pages

if TYPE_CHECKING:
    from .stream_name import Stream


class ShardMap(Lineage):
    """The shards of one listing by their ids, parents before children. The open ones cover every hash key
    once. Immutable.

    ``distribution``: "AUTO" for a stream on which the service ignores keys (RecordDistributionStrategy): no
    shard can be predicted. ``stream``: its name or ARN; then records of another stream get no verdict. Raises
    ShardMapError: empty, duplicate, cycle, gap, overlap.

        >>> import kpl_codec as kpl
        >>> low, high = kpl.ALL_HASH_KEYS.split(2)
        >>> shard_map = kpl.ShardMap([kpl.Shard("shardId-0", low), kpl.Shard("shardId-1", high)])
        >>> shard_map.shard_for(kpl.effective_hash_key("customer-1")).shard_id
        'shardId-1'
        >>> record = kpl.KinesisRecord("customer-1", b"data", "1", "shardId-0")
        >>> kpl.verify_placement(record, shard_map).verdict
        'explicit-hash-key-implied'
        >>> shard_map == kpl.ShardMap.from_json(shard_map.to_json())
        True
        >>> kpl.ShardMap([kpl.Shard("shardId-0", low)])
        Traceback (most recent call last):
        kpl_codec.errors.ShardMapError: ...
    """

    def __init__(
        self,
        shards: Iterable[Shard],
        *,
        distribution: Distribution = "USER_PARTITION_KEY",
        stream: Stream | str | None = None,
    ) -> None:
        shards = distinct_shards(checked_shards("ShardMap", shards)).values()
        super().__init__(shards, distribution=distribution, stream=stream)
        unknown = {
            shard.shard_id: missing
            for shard in self._by_id.values()
            if (missing := tuple(p for p in shard.parent_shard_ids if p not in self._by_id))
        }
        # SHD-5: "A parent that is not listed MUST be reported and MUST NOT be an error: closed shards
        # expire."
        self.unknown_parents: Mapping[str, tuple[str, ...]] = unknown
        open_shards = (shard for shard in self._by_id.values() if shard.open)
        #: The open shards, in the order of their hash key ranges.
        self.open_shards: tuple[Shard, ...] = tuple(sorted(open_shards, key=lambda one: one.hash_key_range))
        hole = first_hole(self.open_shards)
        if hole is not None:
            raise hole
        #: The last hash key of each open shard, ascending.
        self.endings: list[int] = [shard.hash_key_range.ending_hash_key for shard in self.open_shards]

    @classmethod
    def from_list_shards(
        cls,
        pages: Iterable[Mapping[str, Any]] | Mapping[str, Any],
        *,
        distribution: Distribution = "USER_PARTITION_KEY",
        stream: Stream | str | None = None,
    ) -> ShardMap:
        """A shard map of all pages of a ListShards response, in order, or of a single page. Responses
        of DescribeStream work, too, and name the stream; for ListShards give its name or ARN as ``stream``.

        Raises ShardMapError: malformed, incomplete (the last page announces another), and what the
        constructor raises.
        """
        from .stream_name import stream_of_pages

        if not isinstance(pages, Iterable):
            give = "the answers of ListShards, or one of them"
            raise argument_error("ShardMap.from_list_shards", "pages", pages, give=give)
        pages = [pages] if isinstance(pages, Mapping) else [*pages]
        shards, more = shards_of_pages(pages)
        # SHD-7: "A listing whose last page names a next one MUST be refused: it is not whole."
        if more:
            reason = "pages are missing: the last one has a NextToken"
            raise ShardMapError(code="incomplete", reason=reason, shard_ids=())
        return cls(shards, distribution=distribution, stream=stream or stream_of_pages(pages))

    @classmethod
    def from_json(
        cls,
        text: str | bytes,
        *,
        distribution: Distribution = "USER_PARTITION_KEY",
        stream: Stream | str | None = None,
        source: str | None = None,
    ) -> ShardMap:
        """A shard map of JSON: what ``aws kinesis list-shards`` or ``kpl-codec shards list --json`` prints, a
        list of pages, or one page a line. bytes are UTF-8, UTF-16 or UTF-32.

        ``stream``: as for `from_list_shards`. ``source``: what errors call the text. Raises ShardMapError as
        `from_list_shards` does, malformed for a text that is not JSON; TypeError if it is not a text.
        """
        if not isinstance(text, (str, bytes)):
            raise TypeError(
                f"from_json takes JSON text, not {type(text).__name__}: of a file give path.read_text(); for "
                "answers of ListShards use ShardMap.from_list_shards([answer])"
            )
        try:
            return cls.from_list_shards(_pages(text), distribution=distribution, stream=stream)
        except ShardMapError as error:
            if source is None:
                raise
            raise error.at(source=source) from None

    def to_json(self) -> str:
        """JSON as ``aws kinesis list-shards`` prints it, with the stream if that is known."""
        import json

        from .stream_name import stream_members

        stream = {} if self.stream is None else stream_members(self.stream)
        return json.dumps({**stream, "Shards": [shard.to_aws() for shard in self.values()]}, indent=2)

    def shard_for(self, hash_key: int) -> Shard:
        """The open shard that takes ``hash_key``. O(log n). Raises HashKeyError outside 0 to 2^128 - 1."""
        if type(hash_key) is not int and (isinstance(hash_key, bool) or not hasattr(hash_key, "__index__")):
            raise argument_error("ShardMap.shard_for", "hash_key", hash_key, give="a whole number")
        if not 0 <= hash_key <= MAX_HASH_KEY:
            raise HashKeyError(reason="outside 0 to 2^128 - 1")
        # SHD-8: "A hash key belongs to the open shard whose range holds it, both ends included."
        return self.open_shards[bisect_left(self.endings, hash_key)]

    def __repr__(self) -> str:
        if len(self) > 20:
            return f"<ShardMap of {len(self)} shards, {len(self.open_shards)} open>"
        return f"ShardMap({list(self.values())!r}, distribution={self.distribution!r})"


def first_hole(open_shards: Sequence[Shard]) -> ShardMapError | None:
    """The error for the first gap or overlap of open shards, in the order of their ranges."""
    # SHD-2: "The open shards of a listing MUST cover every hash key exactly once; a gap or an
    # overlap MUST be refused."
    expected, before = 0, ""
    ranges = ((shard.shard_id, shard.hash_key_range) for shard in open_shards)
    for shard_id, (start, end) in chain(ranges, (("", (MAX_HASH_KEY + 1, 0)),)):
        if start != expected:
            ids = tuple(filter(None, (before, shard_id)))
            if start > expected:
                reason = f"no open shard has hash keys {expected} to {start - 1}"
                return ShardMapError(code="gap", reason=reason, shard_ids=ids)
            reason = f"{before} and {shard_id} both have hash key {start}"
            return ShardMapError(code="overlap", reason=reason, shard_ids=ids)
        expected, before = end + 1, shard_id
    return None


class Routes:
    """The table by which a live shard map predicts: the open shard of each hash key, or none. A row is a
    range of hash keys: its last key and its shard, None where no shard can be predicted. ``open_shards``: in
    the order of their hash key ranges, which do not overlap."""

    __slots__ = ("_ends", "_ids", "_rows")

    def __init__(self, open_shards: Iterable[Shard]) -> None:
        ends: list[int] = []
        ids: list[str | None] = []
        expected = 0
        for shard in open_shards:
            start, end = shard.hash_key_range
            if start > expected:
                ends.append(start - 1)
                ids.append(None)
            ends.append(end)
            ids.append(shard.shard_id)
            expected = end + 1
        if expected <= MAX_HASH_KEY:
            ends.append(MAX_HASH_KEY)
            ids.append(None)
        self._ends, self._ids = ends, ids
        self._rows: Mapping[str, int] = {id: row for row, id in enumerate(ids) if id is not None}

    def predict(self, hash_key: int) -> str | None:
        """The id of the shard, None where none can be predicted. Raises HashKeyError."""
        if hash_key >> HASH_KEY_BITS:
            raise HashKeyError(reason="outside 0 to 2^128 - 1")
        return self._ids[bisect_left(self._ends, hash_key)]

    def without(self, shard_ids: Iterable[str]) -> Routes:
        """A copy of the table, without predictions for these shards."""
        new = Routes.__new__(Routes)
        new._ends, new._ids, new._rows = self._ends, self._ids.copy(), self._rows
        for shard_id in shard_ids:
            new.remove(shard_id)
        return new

    def remove(self, shard_id: str) -> None:
        """Predict this shard no more. It takes no longer than a prediction: in a reshard of all shards each
        is removed by itself. Other threads may predict meanwhile."""
        if (row := self._rows.get(shard_id)) is not None:
            self._ids[row] = None

    @property
    def shard_ids(self) -> tuple[str, ...]:
        """The ids of the shards that are predicted, in the order of their hash key ranges."""
        return tuple(shard_id for shard_id in self._ids if shard_id is not None)

    def __contains__(self, shard_id: str) -> bool:
        row = self._rows.get(shard_id)
        return row is not None and self._ids[row] is not None


#: A table that predicts no shard.
NO_ROUTES: Final = Routes(())


def undisputed(open_shards: Sequence[Shard]) -> tuple[list[Shard], frozenset[str]]:
    """The shards that may be predicted although the listing has a gap or an overlap, and the ids of those
    that may not. ``open_shards``: in the order of their ranges."""
    # MAP-21: "Of a listing with a gap or an overlap only the open shards that overlap no other MUST be
    # predicted;"
    disputed: set[str] = set()
    furthest: Shard | None = None  # the shard so far with the highest last hash key
    for shard in open_shards:
        keys = shard.hash_key_range
        if furthest is not None and keys.overlaps(furthest.hash_key_range):
            disputed |= {shard.shard_id, furthest.shard_id}
        if furthest is None or keys.ending_hash_key > furthest.hash_key_range.ending_hash_key:
            furthest = shard
    return [shard for shard in open_shards if shard.shard_id not in disputed], frozenset(disputed)


def _pages(text: str | bytes) -> list[Any]:
    import json  # imported here, because looking up shards does not need it

    pages: list[Any] = []
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))  # PowerShell writes UTF-16
        rest = text.removeprefix("\ufeff").strip()
        while rest or not pages:  # one page a line
            page, end = json.JSONDecoder().raw_decode(rest)
            pages.append(_capitalize(page))
            rest = rest[end:].lstrip()
    except (ValueError, RecursionError) as error:
        at = (
            f"line {error.lineno} column {error.colno}" if isinstance(error, json.JSONDecodeError) else "text"
        )
        path = isinstance(text, str) and text.endswith(".json")
        hint = " (a path? give Path(...).read_text())" if path else ""
        raise ShardMapError(code="malformed", reason=f"not JSON: {at}{hint}", shard_ids=()) from None
    if len(pages) == 1 and isinstance(pages[0], list):
        pages = pages[0]
        if pages and all(isinstance(page, Mapping) and "ShardId" in page for page in pages):
            pages = [{"Shards": pages}]
    return pages


def _capitalize(value: Any) -> Any:
    if isinstance(value, list):
        return [_capitalize(inner) for inner in value]
    if isinstance(value, dict):
        return {name[:1].upper() + name[1:]: _capitalize(inner) for name, inner in value.items()}
    return value
