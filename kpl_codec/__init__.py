"""Reads, writes and checks aggregated Kinesis records (the KPL's format).

    import kpl_codec as kpl

    for record in kpl.deaggregate(kinesis_records):
        record.partition_key, record.data, record.sequence_number, record.sub_sequence_number

The core takes bytes, numbers and times as arguments; it uses no clock, no random numbers and no network.
boto3 lives in kpl_codec.aws, pyspark in kpl_codec.spark, pyarrow in kpl_codec.arrow. All errors of
kpl_codec.errors can be imported here, too.
"""

from typing import TYPE_CHECKING, Any

from . import lazy
from .deaggregation.deaggregated_record import Counts, DeaggregatedRecord, Drop
from .deaggregation.policies import Deaggregation, deaggregate
from .deaggregation.policy_rules import Policy
from .errors import AggregateFull as AggregateFull
from .errors import CaptureError, DecodeError, EncodeError, KplError, ShardMapError
from .errors import ChecksumMismatch as ChecksumMismatch
from .errors import HashKeyError as HashKeyError
from .errors import IndexOutOfTable as IndexOutOfTable
from .errors import InvalidHashKey as InvalidHashKey
from .errors import InvalidKey as InvalidKey
from .errors import MalformedMessage as MalformedMessage
from .errors import MissingField as MissingField
from .errors import NotAggregated as NotAggregated
from .errors import NoUserRecords as NoUserRecords
from .errors import UnknownShard as UnknownShard
from .errors import UnusedHashKey as UnusedHashKey
from .errors import WrongWireType as WrongWireType
from .format.codec import AggregatedRecordBuilder, decode, encode, is_aggregated
from .format.compression import DecompressionError as DecompressionError
from .format.hash_keys import ALL_HASH_KEYS, HashKeyRange, effective_hash_key
from .format.message import AggregatedRecord
from .format.records import KinesisRecord, Tag, UserRecord
from .lazy import lazy_names
from .shards.placement import Placement, Verdict
from .shards.shard import Shard
from .shards.shard_map import ShardMap

if TYPE_CHECKING:
    from .deaggregation.explanation import Explanation as Explanation
    from .deaggregation.explanation import explain as explain
else:  # what a Lambda function does not need
    _EXPLANATION = "deaggregation.explanation"
    __getattr__, __dir__ = lazy_names(__name__, {"Explanation": _EXPLANATION, "explain": _EXPLANATION})


def _html(value: Any) -> str:
    from .rendering.notebook import html

    return html(value)


lazy.html = _html

__version__ = "1.0.0rc1"

__all__ = [
    "ALL_HASH_KEYS",
    "AggregatedRecord",
    "AggregatedRecordBuilder",
    "CaptureError",
    "Counts",
    "DeaggregatedRecord",
    "Deaggregation",
    "DecodeError",
    "Drop",
    "EncodeError",
    "Explanation",
    "HashKeyRange",
    "KinesisRecord",
    "KplError",
    "Placement",
    "Policy",
    "Shard",
    "ShardMap",
    "ShardMapError",
    "Tag",
    "UserRecord",
    "Verdict",
    "deaggregate",
    "decode",
    "effective_hash_key",
    "encode",
    "explain",
    "is_aggregated",
]
