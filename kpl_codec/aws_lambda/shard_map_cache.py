"""Keeps the stream's shard map across invocations, so that a function can check placement.

    quick = Config(connect_timeout=1, read_timeout=3, retries={"total_max_attempts": 1})
    maps = ShardMapCache(boto3.client("kinesis", config=quick))         # outside the handler

    def lambda_handler(event, context):
        return process_user_records(event, handle, shard_map=maps)

The role needs ``kinesis:ListShards`` and ``kinesis:DescribeStreamSummary`` on the stream. If the
function cannot reach Kinesis, there is no map: placements are None, and `ShardMapCache.error` says why. With
botocore's own settings a call would wait five times 60 s.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..base.arguments import check_arguments

if TYPE_CHECKING:
    from ..shards.live_shard_map import StreamUnavailable
    from ..shards.shard_map import ShardMap
    from ..shards.stream_name import StreamNameError

#: Seconds after which a map that lacks a shard is fetched again.
_MIN_AGE = 5.0


class ShardMapCache:
    """Shard maps by stream. Not thread-safe: a Lambda process handles one event at a time.

    A map is fetched again when it is older than ``max_age`` seconds, or lacks a record's shard, but not
    before 5 seconds after a success, ``max_age`` after a failure. A fetch that fails is tried again for
    ``patience`` seconds.
    """

    def __init__(
        self,
        client: Any,
        *,
        max_age: float = 60.0,
        patience: float = 5.0,
    ) -> None:
        check_arguments("ShardMapCache", locals())
        self._client = client
        self._max_age, self._patience = max_age, patience
        self._clock = time.monotonic
        self._maps: dict[str, ShardMap] = {}
        self._tried: dict[str, float] = {}
        #: Why the last fetch failed, by stream ARN; removed after a success.
        self.error: dict[str, StreamUnavailable | StreamNameError] = {}

    def shard_map(self, stream_arn: str, shard_id: str | None = None) -> ShardMap | None:
        """The map of ``stream_arn``, with ``shard_id`` if the service has it; None if it cannot be
        fetched."""
        # LMB-13: "A shard map that cannot be fetched MUST NOT fail the batch: records are then handled
        # without a placement."
        cached = self._maps.get(stream_arn)
        age = self._clock() - self._tried.get(stream_arn, float("-inf"))
        stale = cached is None or age > self._max_age or (shard_id is not None and shard_id not in cached)
        if not stale or age < (self._max_age if stream_arn in self.error else _MIN_AGE):
            return cached
        from ..aws.stream_reading import fetch_shard_map  # boto3's errors; only where a map is asked for
        from ..shards.live_shard_map import StreamUnavailable
        from ..shards.stream_name import StreamNameError

        self._tried[stream_arn] = self._clock()
        try:
            cached = fetch_shard_map(self._client, stream_arn, patience=self._patience)
        except (StreamUnavailable, StreamNameError) as error:
            self.error[stream_arn] = error
            return cached
        self.error.pop(stream_arn, None)
        self._maps[stream_arn] = cached
        return cached
