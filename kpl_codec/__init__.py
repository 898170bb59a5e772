"""Reads, writes and checks aggregated Kinesis records, the format of the Kinesis Producer Library (KPL).

    import kpl_codec as kpl

    for record in kpl.deaggregate(kinesis_records):
        record.partition_key, record.data, record.sequence_number, record.sub_sequence_number

Everything here takes bytes, numbers and times as arguments: it uses no clock, no random numbers and no
network. Calls with boto3 are in kpl_codec.aws, Spark is in kpl_codec.spark, Arrow in kpl_codec.arrow.
"""

from typing import TYPE_CHECKING

from .base import lazy
from .deaggregation.deaggregated_record import Counts, DeaggregatedRecord, Drop
from .deaggregation.kcl import KclOutcome
from .deaggregation.policies import Deaggregation, deaggregate
from .deaggregation.policy_rules import Policy
from .errors import (
    AggregateFull,
    CaptureError,
    ChecksumMismatch,
    DecodeError,
    EncodeError,
    HashKeyError,
    IndexOutOfTable,
    InvalidHashKey,
    InvalidKey,
    KplError,
    MalformedMessage,
    MissingField,
    NotAggregated,
    NoUserRecords,
    ShardMapError,
    UnknownShard,
    WrongWireType,
)
from .format.codec import AggregatedRecordBuilder, decode, encode, is_aggregated
from .format.compression import DecompressionError, compress, decompress
from .format.hash_keys import (
    ALL_HASH_KEYS,
    HashKeyRange,
    effective_hash_key,
    format_hash_key,
    hash_key_from_bytes,
    hash_key_to_bytes,
    parse_hash_key,
    partition_key_hash,
)
from .format.message import AggregatedRecord
from .format.records import KinesisRecord, Tag, UserRecord
from .shards.lineage import Lineage
from .shards.placement import AggregateKind, Placement, Verdict, verify_placement
from .shards.shard import Shard
from .shards.shard_map import ShardMap

if TYPE_CHECKING:
    from .deaggregation.explanation import Explanation as Explanation
    from .deaggregation.explanation import ExplanationNode as ExplanationNode
    from .deaggregation.explanation import explain as explain
else:  # imported on first use: a Lambda function does not need them
    _LAZY = dict.fromkeys(("Explanation", "ExplanationNode", "explain"), "deaggregation.explanation")
    __getattr__, __dir__ = lazy.lazy_names(__name__, _LAZY)

__version__ = "1.0.0rc1"

__all__ = [
    "ALL_HASH_KEYS",
    "AggregateFull",
    "AggregateKind",
    "AggregatedRecord",
    "AggregatedRecordBuilder",
    "CaptureError",
    "ChecksumMismatch",
    "Counts",
    "DeaggregatedRecord",
    "Deaggregation",
    "DecodeError",
    "DecompressionError",
    "Drop",
    "EncodeError",
    "Explanation",
    "ExplanationNode",
    "HashKeyError",
    "HashKeyRange",
    "IndexOutOfTable",
    "InvalidHashKey",
    "InvalidKey",
    "KclOutcome",
    "KinesisRecord",
    "KplError",
    "Lineage",
    "MalformedMessage",
    "MissingField",
    "NoUserRecords",
    "NotAggregated",
    "Placement",
    "Policy",
    "Shard",
    "ShardMap",
    "ShardMapError",
    "Tag",
    "UnknownShard",
    "UserRecord",
    "Verdict",
    "WrongWireType",
    "compress",
    "deaggregate",
    "decode",
    "decompress",
    "effective_hash_key",
    "encode",
    "explain",
    "format_hash_key",
    "hash_key_from_bytes",
    "hash_key_to_bytes",
    "is_aggregated",
    "parse_hash_key",
    "partition_key_hash",
    "verify_placement",
]
