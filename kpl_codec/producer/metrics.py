"""What the producer measures, under the KPL's metric names.

name                             | unit         | told when
---------------------------------+--------------+--------------------------------------------
UserRecordsReceived              | count        | a user record is accepted
UserRecordsPending               | count        | a request goes out: user records outstanding
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
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

#: ``observe(name, value, attributes)``.
Observe = Callable[[str, float, Mapping[str, str]], None]

# PRD-33: "Measurements MUST have the KPL's metric names."
#: Name -> (kind, unit). Counters add up, histograms take single values, gauges tell a level.
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
}
