"""What a scheduled watch keeps between two runs, in items of a DynamoDB table.

    table = StateTable(dynamodb_client(), "kpl-watch", "orders")
    kept = table.load(now)
    ...
    table.save(watch.keep(now))

The table's partition key is ``id``, a string. The state is gzipped JSON, cut into parts of 350,000 bytes, one
an item: the first has the watch's name as its ``id``, the next ones the name, a space and 1, 2 ... An item
is ``id``, ``run`` (a number that grows with each save), ``parts`` (how many there are), ``state`` (its part,
binary) and ``expires_at`` (seconds since 1970, for the time to live). Several are written in one transaction.
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
#: Bytes of one part, of the 400 KB of an item; parts of a transaction of at most 4 MB.
_PART, _MOST_PARTS = 350_000, 11
_ONE: Final = {"N": "1"}


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
        """What the last run kept; None if there was none in the last day, or it is from
        the future.

        Raises botocore's errors, and KeptStateError for an item that no `save` wrote.
        """
        item = self._item(0)
        if item is None:
            return None
        self._before = item.get("run", self._before)
        try:
            self._run = int(item["run"]["N"])
            parts = [item["state"]["B"]]
            for number in range(1, min(_MOST_PARTS, int(item.get("parts", _ONE)["N"]))):
                part = self._item(number)
                if part is None or part["run"] != item["run"]:
                    raise ValueError("its parts are of two runs")
                parts.append(part["state"]["B"])
            state = json.loads(decompress(b"".join(parts), _LONGEST))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise KeptStateError(reason=f"{type(error).__name__}: {error}") from None
        kept = Kept.from_json(state)
        return kept if -_AHEAD <= now - kept.at <= _OLDEST else None

    def _item(self, number: int) -> Any:
        # The run before may have ended a moment ago.
        key = {"id": {"S": self._id(number)}}
        return self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")

    def _id(self, number: int) -> str:
        return f"{self._name} {number}" if number else self._name

    def save(self, kept: Kept) -> None:
        """Keep it for the next run. Raises botocore's errors: ConditionalCheckFailedException (with several
        parts TransactionCanceledException) where another run has saved since `load`; and KeptStateError for
        a state of more than 11 parts."""
        state = gzip.compress(json.dumps(kept.to_json(), separators=(",", ":")).encode(), mtime=0)
        parts = [state[start : start + _PART] for start in range(0, len(state), _PART)]
        if len(parts) > _MOST_PARTS:
            raise KeptStateError(reason=f"{len(state):,} bytes are more than a transaction takes")
        run = {"N": str(self._run + 1)}
        common = {
            "run": run,
            "parts": {"N": str(len(parts))},
            "expires_at": {"N": str(round(kept.at) + _OLDEST)},
        }
        puts: list[dict[str, Any]] = [
            {"TableName": self._table, "Item": {"id": {"S": self._id(n)}, "state": {"B": part}, **common}}
            for n, part in enumerate(parts)
        ]
        # WCH-31: "Of two runs at the same time the state of the first to save MUST stay."
        puts[0] |= {
            "ConditionExpression": "attribute_not_exists(#run) OR #run = :before",
            "ExpressionAttributeNames": {"#run": "run"},
            "ExpressionAttributeValues": {":before": self._before},
        }
        if len(puts) == 1:
            self._client.put_item(**puts[0])
        else:
            self._client.transact_write_items(TransactItems=[{"Put": put} for put in puts])
        self._run, self._before = self._run + 1, run
