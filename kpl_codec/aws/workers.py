"""The threads that make the calls of the thread producers, started when they are needed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ..producer.collector import PutRecordsRequest
from ..shards.live_shard_map import Failure, Request
from .calls import CALL_ERRORS, KinesisClient, call, what_failed
from .producer_log import log_failure


class Answer(NamedTuple):
    """The answer to a call, or its failure. ``answered``: see `what_failed`."""

    request: PutRecordsRequest | Request
    answer: Any
    failure: Failure | None
    answered: bool


class Report(Protocol):
    """Called with the answer to a call, in the worker's thread."""

    def __call__(self, answer: Answer) -> None: ...


class Call(NamedTuple):
    """A call to make, for one of the producers. ``stream``: its name or ARN as the call's argument."""

    request: PutRecordsRequest | Request
    client: KinesisClient
    stream: Mapping[str, str]
    report: Report


class Workers:
    """At most ``most`` threads for PutRecords, and one for shard maps. Only the owning thread calls it."""

    def __init__(self) -> None:
        self.most = 0
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0  # calls whose answers the owning thread has not taken yet

    def give(self, call: Call) -> None:
        """Make the call in a thread; its result goes to its ``report``."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) <= min(self._busy, self.most):
            self.start_one()
        self._busy += 1
        self._calls.put(call)

    def taken(self, answers: int) -> None:
        """The owning thread has taken so many answers."""
        self._busy -= answers

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
        while True:
            given = self._calls.get()
            if given is None:
                return
            request, client, stream, report = given
            try:
                answer = Answer(request, call(client, request, stream), None, True)
            except BaseException as error:
                failure, answered = what_failed(error)
                log_failure(request, failure, answered)
                report(Answer(request, None, failure, answered))
                if not isinstance(error, CALL_ERRORS):
                    raise  # a bug: the call counts as unanswered, this thread is replaced
            else:
                report(answer)
