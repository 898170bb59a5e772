"""The producer, sans-I/O: what to send, where and when, and what the answers mean.

`ProducerCore` is driven by `kpl_codec.aws.Producer` (threads, boto3) or `kpl_codec.aws.AsyncProducer`
(asyncio, aiobotocore). Read in this order: config, outcomes, partitioner, pending, kinesis_record,
aggregator, limiter, send_queue, ordering, placer, answers, verdicts, failures, core.
"""

from ..shards.allocation import HashKeyAllocator
from .config import ConfigError, ProducerConfig
from .core import ProducerCore
from .kinesis_record import PutRecordsRequest
from .metrics import METRICS
from .outcomes import Attempt, Delivery, DeliveryError, Outcome, Put
from .partitioner import ShardLoad, UniformStickyPartitioner
from .pending import Pending, ProducerClosed, ProducerFull, RecordTooLarge

__all__ = [
    "METRICS",
    "Attempt",
    "ConfigError",
    "Delivery",
    "DeliveryError",
    "HashKeyAllocator",
    "Outcome",
    "Pending",
    "ProducerClosed",
    "ProducerConfig",
    "ProducerCore",
    "ProducerFull",
    "Put",
    "PutRecordsRequest",
    "RecordTooLarge",
    "ShardLoad",
    "UniformStickyPartitioner",
]
