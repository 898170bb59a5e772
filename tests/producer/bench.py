"""The producer's core on a bench: a model stream, and a clock in hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import kpl_codec as kpl
from kpl_codec.producer import Delivery, DeliveryError, Outcome, Pending, ProducerConfig, ProducerCore
from kpl_codec.producer.record_builder import PutRecordsRequest
from kpl_codec.shards.live_shard_map import LiveShardMap, Request

from .model import ModelStream, chance_of

LOW, HIGH = 5, 2**127 + 5  # hash keys of the first and the second of two shards


class Bench:
    """A core, a model stream and a clock."""

    def __init__(
        self,
        shards: int = 2,
        *,
        ready: bool = True,
        core_class: type[ProducerCore] = ProducerCore,
        **config: Any,
    ) -> None:
        self.now = 100.0
        self.stream = ModelStream.of(shards)
        self.live = LiveShardMap("model", shard_filter="FROM_TRIM_HORIZON")
        self.measured: Counter[str] = Counter()
        self.core = core_class(ProducerConfig(**config), self.live, chance_of(3), self.observe)
        self.core.live.refresh(self.now)
        self.results: dict[bytes, Delivery | DeliveryError] = {}
        if ready:
            self.map()

    def observe(self, name: str, value: float, attributes: Any) -> None:
        self.measured[name] += value  # type: ignore[assignment]

    def put(self, data: bytes, hash_key: int | None = None, key: str | None = "k", **more: Any) -> Pending:
        pending = self.core.prepare(key, data, hash_key, **more)
        pending.token = data
        self.core.accept(pending, self.now)
        return pending

    def calls(self, wait: float = 0.0) -> list[PutRecordsRequest | Request]:
        self.now += wait
        calls = self.core.requests(self.now)
        self.collect()
        return calls

    def puts(self, wait: float = 0.0) -> list[PutRecordsRequest]:
        return [call for call in self.calls(wait) if isinstance(call, PutRecordsRequest)]

    def map(self) -> None:
        """Answer the map's calls until it asks for nothing more."""
        for _ in range(10):
            for call in self.calls():
                assert isinstance(call, Request)
                self.core.receive(call, self.stream.answer(call), self.now)

    def serve(self, call: PutRecordsRequest) -> None:
        self.core.receive(call, self.stream.put_records(call.records), self.now)
        self.collect()

    def run(self, seconds: float) -> None:
        """Let everything go well for a while, from timer to timer."""
        end = self.now + seconds
        while True:
            for call in self.calls():
                if isinstance(call, Request):
                    self.core.receive(call, self.stream.answer(call), self.now)
                else:
                    self.serve(call)
            timer = self.core.timer()
            if timer is None or timer > end:
                break
            self.now = max(self.now + 1e-6, timer)
        self.now = end
        self.collect()

    def collect(self) -> None:
        for pending in self.core.results():
            assert pending.token not in self.results
            self.results[pending.token] = pending.result

    def outcomes(self, data: bytes) -> list[Outcome]:
        return [attempt.outcome for attempt in self.results[data].attempts]


def data_of(call: PutRecordsRequest) -> list[list[bytes]]:
    return [
        [r.data for r in kpl.decode(record["Data"])]
        if kpl.is_aggregated(record["Data"])
        else [record["Data"]]
        for record in call.records
    ]
