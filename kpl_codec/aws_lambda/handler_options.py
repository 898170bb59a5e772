"""Options of all functions that take a Lambda event. Only type checkers import this module."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

from ..deaggregation.deaggregated_record import Drop
from ..deaggregation.policy_rules import Policy
from ..shards.shard_map import ShardMap
from .batch import Poison
from .consumer_watch import ConsumerWatch
from .shard_map_cache import ShardMapCache

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from ..schema_registry import Unframe


class OpenOptions(TypedDict, total=False):
    """How Kinesis records are deaggregated.

    * ``policy``: as in `kpl_codec.deaggregate`; one that drops user records, as "kcl", needs ``on_drop``;
    * ``shard_map``: a ShardMap or a `shard_map_cache.ShardMapCache`; then ``record.placement`` is set;
    * ``on_drop``: called with what the policy drops;
    * ``watch``: a `consumer_watch.ConsumerWatch`, which checks the event first;
    * ``max_decompressed_size``, ``unframe``: as in `kpl_codec.deaggregate`. A Kinesis record with data
      that cannot be decompressed, or whose frame is broken, counts as one that cannot be decoded.
    """

    policy: Policy
    shard_map: ShardMap | ShardMapCache | None
    on_drop: Callable[[Drop], None] | None
    watch: ConsumerWatch | None
    max_decompressed_size: int | None
    unframe: Unframe


class HandlerOptions(OpenOptions, total=False):
    """`OpenOptions`, and what happens to Kinesis records that cannot be decoded, or for which no time is
    left.

    * ``on_poison``: called with each Kinesis record that cannot be decoded (for a dead-letter queue). If it
      does not raise, the record counts as handled; without it such records are reported as failed;
    * ``context``, ``reserve_ms``: Lambda's context, and milliseconds: when fewer are left, no more user
    record is started, and the rest is reported as failed;
    * ``ledger``: a `kpl_codec.audit.Ledger`, which notes what was handled before Lambda gets the response.
      What it raises fails the invocation: the records come again.
    """

    on_poison: Callable[[Poison], object] | None
    context: Any
    reserve_ms: int
    ledger: Ledger | None
