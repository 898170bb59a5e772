"""The threads that make the calls of `kpl_codec.aws.Producer`, started when they are needed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from typing import Any, Protocol

from ..producer.collector import PutRecordsRequest
from ..shards.live_shard_map import Failure, Request
from .calls import CALL_ERRORS, KinesisClient, call, what_failed
from .producer_log import log_failure


class Report(Protocol):
    """Called with the answer or failure of a call, in the worker's thread."""

    def __call__(
        self, request: PutRecordsRequest | Request, answer: Any, failure: Failure | None, answered: bool
    ) -> None: ...


class Workers:
    """At most ``most`` threads for PutRecords, and one for the shard map. Only its owner calls it."""

    def __init__(self, client: KinesisClient, stream: Mapping[str, str], most: int, report: Report) -> None:
        self._client = client
        self._stream = stream
        self._most = most
        self._report = report
        self._calls: queue.SimpleQueue[PutRecordsRequest | Request | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0  # calls whose answers the owner has not taken yet

    def give(self, request: PutRecordsRequest | Request) -> None:
        """Make the call in a thread; its result goes to ``report``."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) <= min(self._busy, self._most):
            self.start_one()
        self._busy += 1
        self._calls.put(request)

    def taken(self, answers: int) -> None:
        """The owner has taken so many answers."""
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
            request = self._calls.get()
            if request is None:
                return
            answer: Any = None
            failure: Failure | None = None
            answered = True
            try:
                answer = call(self._client, request, self._stream)
            except BaseException as error:
                failure, answered = what_failed(error)
                if not isinstance(error, CALL_ERRORS):
                    self._tell(request, None, failure, answered)
                    raise  # a bug: the call counts as unanswered, this thread is replaced
            self._tell(request, answer, failure, answered)

    def _tell(
        self, request: PutRecordsRequest | Request, answer: Any, failure: Failure | None, answered: bool
    ) -> None:
        if failure is not None:
            log_failure(request, failure, answered)
        self._report(request, answer, failure, answered)
