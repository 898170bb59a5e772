"""The producer, sans-I/O: what to send, where and when, and what the answers mean.

`ProducerCore` is driven by `kpl_codec.producer.Producer` (threads, boto3) or `kpl_codec.producer.AsyncProducer`
(asyncio, aiobotocore). Read in this order: config, outcomes, partitioner, pending, kinesis_record,
aggregator, send_queue, ordering, placer, verdicts, results, core.
"""

from .config import ConfigError, ProducerConfig
from .core import ProducerCore as ProducerCore
from .outcomes import Attempt, Delivery, DeliveryError, Outcome, Put
from .pending import Pending as Pending
from .pending import ProducerClosed, ProducerFull, RecordTooLarge

__all__ = [
    "Attempt", "ConfigError", "Delivery", "DeliveryError", "Outcome", "ProducerClosed", "ProducerConfig",
    "ProducerFull", "Put", "RecordTooLarge",
]  # fmt: skip
