"""A producer whose methods signal handlers call, whatever they have interrupted, and whose callbacks raise.

The signals come at drawn lines of the producer's own code: the same again for the same seed.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from contextlib import suppress
from itertools import count
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpl_codec.aws import Producer
from kpl_codec.producer import ProducerClosed, ProducerConfig
from tests.examples import examples

from .model_client import ModelClient

_TTLS = st.sampled_from([30_000, 10**14, 2**63 - 1])
SIGNALS = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from(["put", "flush", "put and flush"])), max_size=25
)


class _Signals:
    """Raises SIGUSR1 after so many lines of kpl_codec/aws in this thread, each time for the next action."""

    def __init__(self, signals: list[tuple[int, str]], handle: Any) -> None:
        self._left, self._handle = list(reversed(signals)), handle
        self._before: Any = None
        self._wait = 0

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGUSR1, self._caught)
        self._next()
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        signal.signal(signal.SIGUSR1, self._before)

    def _next(self) -> None:
        self._wait = self._left[-1][0] if self._left else -1

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if "/kpl_codec/aws/" not in frame.f_code.co_filename:
            return None
        if event == "line" and self._left:
            self._wait -= 1
            if self._wait < 0:
                signal.raise_signal(signal.SIGUSR1)
        return self._trace

    def _caught(self, *_: object) -> None:
        _, action = self._left.pop()
        self._next()
        self._handle(action)


@pytest.mark.requirement("PRD-38", "PRD-40")
@settings(max_examples=examples(15), deadline=None)
@given(
    SIGNALS, st.lists(st.sampled_from([None, ValueError, KeyboardInterrupt, SystemExit]), max_size=12), _TTLS
)
def test_signal_handlers_use_the_producer(
    signals: list[tuple[int, str]], puts: list[type[BaseException] | None], ttl: int
) -> None:
    """``puts``: what the callbacks of these user records raise."""
    client = ModelClient(latency=0.001)
    config = ProducerConfig(record_max_buffered_time=20, aggregation_max_size=600, record_ttl=ttl)
    producer = Producer("s", client=client, config=config)
    futures: list[Any] = []
    sent: Counter[bytes] = Counter()
    numbers = count()

    def put(raised: type[BaseException] | None = None) -> None:
        number = next(numbers)
        try:
            futures.append(producer.put(f"k{number % 3}", b"%d" % number))
        except ProducerClosed:  # in a handler that interrupted close()
            return
        sent[b"%d" % number] += 1
        if raised is not None:

            def callback(_: object) -> None:
                raise raised

            with suppress(raised):  # if the record has ended already, it is called here
                futures[-1].add_done_callback(callback)

    def handle(action: str) -> None:
        if action.startswith("put"):
            put()
        if action != "put":
            producer.flush()

    with _Signals(signals, handle), producer:
        for number, raised in enumerate(puts):
            put(raised)
            if number % 4 == 3:
                producer.flush()
    assert [future for future in futures if not future.done() or future.exception()] == []
    assert Counter(client.stream.in_order()) == sent
