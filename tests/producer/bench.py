"""The producer's core on a bench: a model stream, and a clock in hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import kpl_codec as kpl
from kpl_codec.producer import Delivery, DeliveryError, Outcome, Pending, ProducerConfig, ProducerCore
from kpl_codec.producer.batch import Call
from kpl_codec.producer.metrics import METRICS
from kpl_codec.shards.live_shard_map import Failure, LiveShardMap, Request

from .model import ModelStream, chance_of

LOW, HIGH = 5, 2**127 + 5  # hash keys of the first and the second of two shards

Answer = Callable[[Call], tuple[float, Callable[[], object]]]


class Bench:
    """A core, a model stream and a clock."""

    def __init__(self, shards: int = 2, *, ready: bool = True, **config: Any) -> None:
        self.now = 100.0
        self.measured: Counter[tuple[str, float]] = Counter()
        self.stream = ModelStream(shards)
        self.live = LiveShardMap("model", shard_filter="FROM_TRIM_HORIZON")
        self.core = ProducerCore(ProducerConfig(**config), self.live, chance_of(3), self.observe)
        self.core.live.refresh(self.now)
        self.results: dict[bytes, Delivery | DeliveryError] = {}
        self.under_way: list[tuple[float, Callable[[], object]]] = []
        if ready:
            self.map()

    def observe(self, name: str, value: float, attributes: Any) -> None:
        assert name in METRICS
        self.measured[name, value] += 1

    def put(self, data: bytes, hash_key: int | None = None, key: str | None = "k", **more: Any) -> Pending:
        pending = self.core.prepare(key, data, hash_key, **more)
        pending.token = data
        self.core.accept(pending, self.now)
        return pending

    def calls(self, wait: float = 0.0) -> list[Call | Request]:
        self.now += wait
        calls = self.core.requests(self.now)
        self.collect()
        return calls

    def puts(self, wait: float = 0.0) -> list[Call]:
        return [call for call in self.calls(wait) if isinstance(call, Call)]

    def map(self) -> None:
        """Answer the map's calls until it asks for nothing more."""
        for _ in range(10):
            for call in self.calls():
                assert isinstance(call, Request)
                self.core.receive(call, self.stream.answer(call), self.now)

    def serve(self, call: Call) -> None:
        self.core.receive(call, self.stream.put_records(call.records), self.now)
        self.collect()

    def run(self, seconds: float, answer: Answer | None = None) -> None:
        """Let time pass, from event to event. ``answer``: for each PutRecords call the seconds that it takes
        and what then becomes of it; without it each goes well at once."""
        end = self.now + seconds
        while True:
            for call in self.calls():
                if isinstance(call, Request):
                    self.core.receive(call, self.stream.answer(call), self.now)
                else:
                    latency, ends = answer(call) if answer else (0.0, partial(self.serve, call))
                    self.under_way.append((self.now + latency, ends))
            timer = self.core.timer()
            times = [due for due, _ in self.under_way] + ([] if timer is None else [timer])
            if min(times, default=float("inf")) > end:
                break
            self.now = max(self.now + 1e-6, min(times))
            for entry in [entry for entry in self.under_way if entry[0] <= self.now]:
                self.under_way.remove(entry)
                entry[1]()
        self.now = end
        self.collect()

    def fail(self, call: Call, code: str, *, answered: bool = True) -> None:
        self.core.fail(call, Failure(code), self.now, answered=answered)

    def collect(self) -> None:
        assert self.core.reports.error is None
        for pending in self.core.results():
            assert pending.token not in self.results
            self.results[pending.token] = pending.result

    def outcomes(self, data: bytes) -> list[Outcome]:
        return [attempt.outcome for attempt in self.results[data].attempts]


def data_of(call: Call) -> list[list[bytes]]:
    return [
        [r.data for r in kpl.decode(record["Data"])]
        if kpl.is_aggregated(record["Data"])
        else [record["Data"]]
        for record in call.records
    ]
