"""Reads, writes and checks aggregated Kinesis records (the KPL's format).

    import kpl_codec as kpl

    for record in kpl.deaggregate(kinesis_records):
        record.partition_key, record.data, record.sequence_number, record.sub_sequence_number

The core takes bytes, numbers and times as arguments; it uses no clock, no random numbers and no network.
boto3 lives in kpl_codec.aws, pyspark in kpl_codec.spark, pyarrow in kpl_codec.arrow.
"""

from .deaggregation.counts import Counts, Drop
from .deaggregation.explanation import Explanation, Node, explain
from .deaggregation.policies import Deaggregation, Policy, deaggregate
from .deaggregation.records import DeaggregatedRecord
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
from .format.codec import AggregatedRecordBuilder, decode, encode, encode_many, is_aggregated, is_canonical
from .format.compression import DecompressionError
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

__version__ = "0.1.0"

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
    "HashKeyError",
    "HashKeyRange",
    "IndexOutOfTable",
    "InvalidHashKey",
    "InvalidKey",
    "KinesisRecord",
    "KplError",
    "Lineage",
    "MalformedMessage",
    "MissingField",
    "NoUserRecords",
    "Node",
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
    "deaggregate",
    "decode",
    "effective_hash_key",
    "encode",
    "encode_many",
    "explain",
    "format_hash_key",
    "hash_key_from_bytes",
    "hash_key_to_bytes",
    "is_aggregated",
    "is_canonical",
    "parse_hash_key",
    "partition_key_hash",
    "verify_placement",
]
