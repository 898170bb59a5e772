"""Reads Kinesis queues with aggregated records: a consumer, and functions that list a queue's records and its
dead letters.

    queue = find_queue(client, "orders-queue")
    counts = process_queue_records(client, queue, handler)      # until SIGTERM

`process_queue_records` works with boto3, in threads; `kpl_codec.queues.aio` has the same function for
asyncio. Names are imported on first use. Specification: spec/14-queues-and-channels.md.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:  # what `lazy_names` gives, for type checkers
    from .queue_calls import QueuesUnsupported as QueuesUnsupported
    from .queue_calls import QueueUnavailable as QueueUnavailable
    from .queue_calls import browse_queue as browse_queue
    from .queue_calls import find_queue as find_queue
    from .queue_calls import restore_dead_letters as restore_dead_letters
    from .queue_consumer import QUEUE_METRICS as QUEUE_METRICS
    from .queue_consumer import QueueCounts as QueueCounts
    from .threaded_consumer import QueueOptions as QueueOptions
    from .threaded_consumer import process_queue_records as process_queue_records

_CALLS = ("QueueUnavailable", "QueuesUnsupported", "browse_queue", "find_queue", "restore_dead_letters")
_HOMES = {
    **dict.fromkeys(_CALLS, "queue_calls"),
    **dict.fromkeys(("QUEUE_METRICS", "QueueCounts"), "queue_consumer"),
    **dict.fromkeys(("QueueOptions", "process_queue_records"), "threaded_consumer"),
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
