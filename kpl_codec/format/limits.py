"""Limits of the service, the format and the KPL, each with its source. Sizes are bytes."""

from __future__ import annotations

from typing import Final

#: The four bytes every aggregated record starts with (FRM-1).
MAGIC: Final = b"\xf3\x89\x9a\xc2"
#: Bytes of the MD5 digest that ends an aggregated record (FRM-3).
DIGEST_SIZE: Final = 16
#: Bytes of a frame beside its message: magic and digest (FRM-3).
FRAME_OVERHEAD: Final = len(MAGIC) + DIGEST_SIZE

#: Hash keys are unsigned 128-bit integers (KEY-1).
HASH_KEY_BITS: Final = 128
MAX_HASH_KEY: Final = 2**HASH_KEY_BITS - 1

#: Longest partition key, in Unicode code points (MSG-9).
MAX_PARTITION_KEY_LENGTH: Final = 256
#: Longest explicit hash key text a decoder accepts, in code points (MSG-9).
MAX_EXPLICIT_HASH_KEY_LENGTH: Final = 256
#: Deepest nesting of groups and messages a decoder follows (MSG-4).
MAX_NESTING: Final = 100

#: PutRecords takes 1 to 500 records a call, at most 10 MiB with their keys (AWS API model).
MAX_PUT_RECORDS: Final = 500
MAX_PUT_RECORDS_SIZE: Final = 10 * 1024 * 1024
#: Data plus partition key of one Kinesis record; a stream may be set to 1 to 10 MiB (AWS API model).
DEFAULT_MAX_RECORD_SIZE: Final = 1024 * 1024
LARGEST_MAX_RECORD_SIZE: Final = 10 * 1024 * 1024
#: The most user records of one Kinesis record: the smallest takes six bytes of an aggregate.
MOST_USER_RECORDS: Final = LARGEST_MAX_RECORD_SIZE // 6
#: Records and bytes that one shard takes in a second (AWS service limits).
SHARD_RECORDS_PER_SECOND: Final = 1000
SHARD_BYTES_PER_SECOND: Final = 1024 * 1024
