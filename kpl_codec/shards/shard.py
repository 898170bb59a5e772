"""A shard, as the responses of ListShards and DescribeStream describe it. See
spec/04-shards-and-placement.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

from ..base.arguments import add_row, one_of
from ..base.values import KW_ONLY, Value
from ..errors import HashKeyError, ShardMapError
from ..format.hash_keys import HashKeyRange, format_hash_key, parse_hash_key
from ..format.records import without_none

Distribution = Literal["USER_PARTITION_KEY", "AUTO"]
add_row("distribution", one_of(*get_args(Distribution)), '"USER_PARTITION_KEY" or "AUTO"')


class Shard(Value):
    """One shard. It is open while ``ending_sequence_number`` is None. Sequence numbers are decimal text."""

    shard_id: str
    hash_key_range: HashKeyRange
    _: KW_ONLY
    parent_shard_id: str | None = None
    adjacent_parent_shard_id: str | None = None
    starting_sequence_number: str | None = None
    ending_sequence_number: str | None = None

    @property
    def open(self) -> bool:
        """Whether the shard takes records."""
        # SHD-1: "A shard is open if and only if it has no ending sequence number."
        return self.ending_sequence_number is None

    @property
    def parent_shard_ids(self) -> tuple[str, ...]:
        """No shard id, one (after a split) or two (after a merge). These shards may have expired."""
        return tuple(p for p in (self.parent_shard_id, self.adjacent_parent_shard_id) if p is not None)

    def contradicts(self, other: Shard) -> bool:
        """Whether ``other``, which has the same id, is another shard: its range, parents or starting sequence
        number (where both have one) differ."""
        starts = {self.starting_sequence_number, other.starting_sequence_number} - {None}
        return (
            self.hash_key_range != other.hash_key_range
            or self.parent_shard_ids != other.parent_shard_ids
            or len(starts) > 1
        )

    @classmethod
    def from_aws(cls, shard: Mapping[str, Any]) -> Shard:
        """A shard from the ``Shard`` structure of ListShards and DescribeStream. Raises ShardMapError."""
        # SHD-9: "Input that is no shard listing, and a shard with a missing or invalid field, MUST be
        # refused."
        shard_id = shard.get("ShardId") if isinstance(shard, Mapping) else None
        if not isinstance(shard_id, str) or not shard_id:
            raise ShardMapError(code="malformed", reason="a shard has no ShardId", shard_ids=())
        try:
            keys = shard["HashKeyRange"]
            hash_key_range = HashKeyRange(
                parse_hash_key(keys["StartingHashKey"]), parse_hash_key(keys["EndingHashKey"])
            )
            numbers = shard.get("SequenceNumberRange") or {}
            texts = {
                "parent_shard_id": shard.get("ParentShardId"),
                "adjacent_parent_shard_id": shard.get("AdjacentParentShardId"),
                "starting_sequence_number": numbers.get("StartingSequenceNumber"),
                "ending_sequence_number": numbers.get("EndingSequenceNumber"),
            }
            wrong = [text for text in texts.values() if text is not None and not isinstance(text, str)]
            reason = f"parent ids and sequence numbers must be text, got {wrong[0]!r}" if wrong else ""
        except KeyError as error:
            reason = f"{error.args[0]} is missing"
        except (TypeError, AttributeError):
            reason = "HashKeyRange and SequenceNumberRange must be objects"
        except HashKeyError as error:
            reason = error.describe()
        if reason:
            reason = f"{shard_id}: {reason}"
            raise ShardMapError(code="malformed", reason=reason, shard_ids=(shard_id,))
        return cls(shard_id, hash_key_range, **texts)

    def to_aws(self) -> dict[str, Any]:
        """The ``Shard`` structure of ListShards; the inverse of `from_aws`."""
        first, last = map(format_hash_key, self.hash_key_range)
        return without_none(
            ShardId=self.shard_id,
            ParentShardId=self.parent_shard_id,
            AdjacentParentShardId=self.adjacent_parent_shard_id,
            HashKeyRange={"StartingHashKey": first, "EndingHashKey": last},
            SequenceNumberRange=without_none(
                StartingSequenceNumber=self.starting_sequence_number,
                EndingSequenceNumber=self.ending_sequence_number,
            ),
        )


def shards_of_pages(pages: Iterable[Mapping[str, Any]]) -> tuple[list[Shard], bool]:
    """The shards in responses of ListShards or DescribeStream, and whether the last response announces
    another page. Raises ShardMapError(code="malformed")."""
    shards: list[Shard] = []
    more = False
    for page in pages:
        if not isinstance(page, Mapping):
            reason = f'expected an object with "Shards", got {type(page).__name__}'
            raise ShardMapError(code="malformed", reason=reason, shard_ids=())
        page = page.get("StreamDescription", page)
        structures = page.get("Shards") if isinstance(page, Mapping) else None
        if not isinstance(structures, list):
            reason = 'a page has no list "Shards": aws kinesis list-shards prints one'
            raise ShardMapError(code="malformed", reason=reason, shard_ids=())
        shards.extend(map(Shard.from_aws, structures))
        more = bool(page.get("NextToken") or page.get("HasMoreShards"))
    return shards, more
