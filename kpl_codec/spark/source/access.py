"""How a stream is read, on the driver and in tasks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from ...aws.cursor import Pace, ShardCursor
from ...aws.shard_map import fetch_lineage
from ...aws.subscription import StreamConsumers
from ...shards.lineage import Lineage
from ...shards.live_shard_map import StreamUnavailable
from ...shards.place import Place
from .offsets import DataLoss
from .options import Options

_log = logging.getLogger("kpl_codec.spark")

#: In ms. No stream keeps records for a shorter time.
SHORTEST_RETENTION: Final = 24 * 3600 * 1000
#: Codes of GetShardIterator for a sequence number or shard that no longer exists.
GONE: Final = {"InvalidArgumentException": "trimmed", "ResourceNotFoundException": "shard-gone"}


@dataclass(eq=False)
class Access:
    """Calls Kinesis with ``client``. ``clock`` in seconds, ``now`` in seconds since 1970. Thread-safe."""

    client: Any
    options: Options
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    _retention: int | None = None
    _asking: threading.Lock = field(default_factory=threading.Lock)

    def now_ms(self) -> int:
        return int(self.now() * 1000)

    def pace(self) -> Pace:
        options = self.options
        return Pace(options.calls_per_second, options.bytes_per_second, clock=self.clock)

    def cursor(self, shard_id: str, place: Place, pace: Pace, consumer: str | None = None) -> ShardCursor:
        """A cursor at a place. ``consumer``: the ARN of the consumer that subscribes, None to poll."""
        settings: dict[str, Any] = {"clock": self.clock, "now": self.now, "sleep": self.sleep}
        settings["patience"] = self.options.retry_timeout
        if consumer is not None:
            from ...aws.subscription import SubscriptionCursor

            return SubscriptionCursor(self.client, consumer, shard_id, place, **settings)
        return ShardCursor(self.client, self.options.called, shard_id, place, pace=pace, **settings)

    def lineage(self) -> Lineage:
        """The shards that hold records, closed ones too. Raises StreamUnavailable."""
        options = self.options
        return fetch_lineage(self.client, options.called, timeout=options.retry_timeout, sleep=self.sleep)

    def retention(self) -> int:
        """The stream's retention in ms; the shortest there is where the role may not ask."""
        with self._asking:  # once for all shards in doubt
            if self._retention is None:
                asked = StreamConsumers(self.client, patience=10.0, sleep=self.sleep, clock=self.clock)
                try:
                    hours = asked.summary(self.options.called)["RetentionPeriodHours"]
                except StreamUnavailable:
                    return SHORTEST_RETENTION
                self._retention = hours * 3600 * 1000
            return self._retention

    def report_loss(self, shard_id: str, place: Place, code: str, reason: str) -> None:
        number = place.sequence_number if place.names_record else None
        loss = DataLoss(shard_id=shard_id, sequence_number=number, code=code, reason=reason)
        if self.options.fail_on_data_loss:
            raise loss
        _log.warning("%s", loss)
