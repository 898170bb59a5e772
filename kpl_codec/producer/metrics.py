"""The producer's metrics, under the KPL's names.

name                             | unit         | recorded when
---------------------------------+--------------+--------------------------------------------
UserRecordsReceived              | count        | a user record is accepted
UserRecordsPending               | count        | this changes: user records outstanding
UserRecordsPut                   | count        | user records are delivered
UserRecordsDataPut               | bytes        | the same: their data
KinesisRecordsPut                | count        | a Kinesis record is delivered (by ShardId)
KinesisRecordsDataPut            | bytes        | the same: its data
ErrorsByCode                     | count        | a Kinesis record was not delivered (by ErrorCode)
AllErrors                        | count        | the same
RetriesPerRecord                 | count        | a user record is delivered
BufferingTime                    | milliseconds | a user record is sent for the first time
RequestTime                      | milliseconds | a PutRecords call was answered, or failed
UserRecordsPerKinesisRecord      | count        | a request goes out, for each Kinesis record in it
KinesisRecordsPerPutRecordsRequest | count      | a request goes out
UserRecordsPerPutRecordsRequest  | count        | a request goes out
OldestUserRecordAge              | milliseconds | the same: since the oldest outstanding was put, 0 for none
ShardMapErrors                   | count        | a refresh of the shard map failed (by ErrorCode)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .kinesis_record import Outgoing

#: ``observe(name, value, attributes)``.
Observe = Callable[[str, float, Mapping[str, str]], None]

# PRD-33: "Measurements MUST have the KPL's metric names."
#: Name -> (kind, unit). Counters add up, histograms take single values, gauges show a level.
METRICS: Final[dict[str, tuple[str, str]]] = {
    "UserRecordsReceived": ("counter", "{record}"),
    "UserRecordsPending": ("gauge", "{record}"),
    "UserRecordsPut": ("counter", "{record}"),
    "UserRecordsDataPut": ("counter", "By"),
    "KinesisRecordsPut": ("counter", "{record}"),
    "KinesisRecordsDataPut": ("counter", "By"),
    "ErrorsByCode": ("counter", "{record}"),
    "AllErrors": ("counter", "{record}"),
    "RetriesPerRecord": ("histogram", "{retry}"),
    "BufferingTime": ("histogram", "ms"),
    "RequestTime": ("histogram", "ms"),
    "UserRecordsPerKinesisRecord": ("histogram", "{record}"),
    "KinesisRecordsPerPutRecordsRequest": ("histogram", "{record}"),
    "UserRecordsPerPutRecordsRequest": ("histogram", "{record}"),
    # The KPL does not have these.
    "OldestUserRecordAge": ("gauge", "ms"),
    "ShardMapErrors": ("counter", "{error}"),
}


def _ignore(name: str, value: float, attributes: Mapping[str, str]) -> None:
    """Where nobody observes."""


class Meter:
    """Calls ``observe`` with the metrics above."""

    def __init__(self, observe: Observe | None) -> None:
        self._observe = observe or _ignore
        self._outstanding = 0  # as it was told last

    def accepted(self) -> None:
        self._observe("UserRecordsReceived", 1, {})

    def levels(self, outstanding: int, oldest_at: float | None, now: float) -> None:
        """Called every turn: so an idle producer has told that nothing is outstanding."""
        if outstanding or self._outstanding:
            age = max(0.0, now - oldest_at) if oldest_at is not None else 0.0
            self._observe("UserRecordsPending", outstanding, {})
            self._observe("OldestUserRecordAge", age * 1000, {})
        self._outstanding = outstanding

    def sent(self, kinesis_records: Sequence[Outgoing], now: float) -> None:
        observe = self._observe
        if observe is _ignore:
            return
        observe("KinesisRecordsPerPutRecordsRequest", len(kinesis_records), {})
        observe(
            "UserRecordsPerPutRecordsRequest", sum(len(outgoing.records) for outgoing in kinesis_records), {}
        )
        for outgoing in kinesis_records:
            observe("UserRecordsPerKinesisRecord", len(outgoing.records), {})
            for pending in outgoing.records:
                if not pending.attempts:
                    observe("BufferingTime", (now - pending.accepted_at) * 1000, {})

    def answered(self, seconds: float) -> None:
        self._observe("RequestTime", seconds * 1000, {})

    def failed(self, code: str) -> None:
        self._observe("ErrorsByCode", 1, {"ErrorCode": code})
        self._observe("AllErrors", 1, {})

    def map_failed(self, code: str) -> None:
        self._observe("ShardMapErrors", 1, {"ErrorCode": code})

    def delivered(self, outgoing: Outgoing, shard_id: str) -> None:
        observe = self._observe
        if observe is _ignore:
            return
        for pending in outgoing.records:
            observe("RetriesPerRecord", len(pending.attempts) + pending.attempts_left_out, {})
        observe("UserRecordsPut", len(outgoing.records), {})
        observe("UserRecordsDataPut", sum(len(pending.record.data) for pending in outgoing.records), {})
        observe("KinesisRecordsPut", 1, {"ShardId": shard_id})
        observe("KinesisRecordsDataPut", outgoing.data_size, {"ShardId": shard_id})
