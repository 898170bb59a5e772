"""What a scheduled watch keeps between two runs, in an item of a DynamoDB table.

    table = StateTable(dynamodb_client(), "kpl-watch", "orders")
    kept = table.load(now)
    ...
    table.save(watch.keep(now))

The table's partition key is ``id``, a string: the watch's name. An item has also ``run`` (a number that grows
with each save), ``state`` (gzipped JSON) and ``expires_at`` (seconds since 1970, for the time to live).
The role needs dynamodb:GetItem and dynamodb:PutItem on the table.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from typing import Any, Final

import boto3
from botocore.config import Config

from ..format.compression import decompress
from ..watch import Kept, KeptStateError

#: Seconds after which a state is not used: what Kinesis keeps at least.
_OLDEST: Final = 86_400
#: Seconds that the clock of the run before may have been ahead. A state from later would stop this run.
_AHEAD: Final = 60
#: The longest JSON of a state, in bytes: compressed, it could be a thousand times as long.
_LONGEST: Final = 32_000_000
#: The most bytes of a compressed one: an item has 400 KB, with its names and the other values.
_MOST: Final = 400_000


def dynamodb_client() -> Any:
    """A DynamoDB client for a function: it waits 7 s at most for one call, tries included."""
    quick = Config(connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 2})
    return boto3.client("dynamodb", config=quick)


class StateTable:
    """The state of one watch, ``name``. ``client``: a boto3 DynamoDB client."""

    def __init__(self, client: Any, table: str, name: str) -> None:
        self._client, self._table, self._name = client, table, name
        self._run = 0
        #: The attribute as `load` found it, whatever its type: `save` replaces no other.
        self._before: Mapping[str, Any] = {"N": "0"}

    def load(self, now: float) -> Kept | None:
        """What the last run kept; None if there was none in the last day, or it is from the future. Raises
        botocore's errors, and KeptStateError for an item that no `save` wrote."""
        # Consistent: the run before may have ended a moment ago.
        key = {"id": {"S": self._name}}
        item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        if item is None:
            return None
        self._before = item.get("run", self._before)
        try:
            self._run = int(item["run"]["N"])
            state = json.loads(decompress(item["state"]["B"], _LONGEST))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise KeptStateError(reason=f"{type(error).__name__}: {error}") from None
        kept = Kept.from_json(state)
        return kept if -_AHEAD <= now - kept.at <= _OLDEST else None

    def save(self, kept: Kept) -> None:
        """Keep it for the next run. Raises botocore's errors: ConditionalCheckFailedException where another
        run has saved since `load`; and KeptStateError for a state that is too long for an item."""
        state = gzip.compress(json.dumps(kept.to_json(), separators=(",", ":")).encode(), mtime=0)
        if len(state) > _MOST:
            raise KeptStateError(reason=f"{len(state):,} bytes are more than an item of the table has")
        run = {"N": str(self._run + 1)}
        # WCH-31: "Of two runs at the same time the state of the first to save MUST stay."
        self._client.put_item(
            TableName=self._table,
            Item={
                "id": {"S": self._name},
                "run": run,
                "state": {"B": state},
                "expires_at": {"N": str(round(kept.at) + _OLDEST)},
            },
            ConditionExpression="attribute_not_exists(#run) OR #run = :before",
            ExpressionAttributeNames={"#run": "run"},
            ExpressionAttributeValues={":before": self._before},
        )
        self._run, self._before = self._run + 1, run
