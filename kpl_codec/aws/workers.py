"""The threads that make the calls of the thread producers, started when they are needed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..producer.collector import PutRecordsRequest
from ..shards.live_shard_map import Failure, Request
from .calls import KinesisClient, call, what_failed
from .producer_log import log_failure


class Answer(NamedTuple):
    """The answer to a call, or its failure. ``answered``: see `what_failed`."""

    request: PutRecordsRequest | Request
    answer: Any
    failure: Failure | None
    answered: bool


class Call(NamedTuple):
    """A call to make, for one of the producers. ``stream``: its name or ARN as the call's argument.
    ``report`` gets the answer, in the worker's thread."""

    request: PutRecordsRequest | Request
    client: KinesisClient
    stream: Mapping[str, str]
    report: Callable[[Answer], None]


class Workers:
    """At most ``most`` threads for PutRecords, and one for shard maps. Only the driving thread calls it."""

    def __init__(self) -> None:
        self.most = 0
        self.busy = 0  # calls whose answers were not taken yet
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def give(self, call: Call) -> None:
        """Make the call in a thread; its result goes to its ``report``."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) <= min(self.busy, self.most):
            self.start_one()
        self.busy += 1
        self._calls.put(call)

    def start_one(self) -> None:
        thread = threading.Thread(target=self._work, name="kpl-codec PutRecords", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no new threads while the interpreter exits; the existing ones suffice
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def stop(self) -> None:
        """Let every thread end after its earlier calls."""
        for _ in self._threads:
            self._calls.put(None)

    def _work(self) -> None:
        while (given := self._calls.get()) is not None:
            _make(given)
            given = None  # an idle thread keeps no producer alive


def _make(given: Call) -> None:
    request, client, stream, report = given
    try:
        answer = call(client, request, stream)
    except BaseException as error:  # noqa: BLE001 - botocore raises anything for an answer that is no JSON
        failure, answered = what_failed(error)
        report(Answer(request, None, failure, answered))
        # Not before: a signal handler that has interrupted the log may wait for the answer.
        log_failure(request, failure, answered)
    else:
        report(Answer(request, answer, None, True))
