"""The threads of thread producers: one that drives them, and workers that make their calls."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Mapping
from typing import Any, Final

from ..producer import ProducerConfig
from .calls import KinesisClient
from .one_lock import LOCK, begin_driving
from .producer_base import boto3_client
from .producer_owner import Owner
from .workers import Answer, Workers

#: Seconds that the driving thread sleeps at most: a wait may not be longer than threading.TIMEOUT_MAX.
_LONGEST_SLEEP: Final = 3600.0
#: Those that exist, for forks; and those whose threads run, which lives until they end. With the lock held.
EXISTING: Final[weakref.WeakSet[ProducerThreads]] = weakref.WeakSet()
RUNNING: Final[set[ProducerThreads]] = set()


class ProducerThreads:
    """Threads that several producers share, one producer for each stream.

        threads = ProducerThreads()
        with Producer("orders", threads=threads) as orders, Producer("clicks", threads=threads) as clicks:
            ...

    The threads start with the first put, and end when the last of the producers is closed; another put to
    another producer starts them again. One thread drives all producers and runs all callbacks. Calls are made
    by as many threads as calls are under way: ``max_connections`` of each producer limits its own, and a
    stream that hangs takes nothing from the others. Producers with equal settings share a boto3 client. An
    error in one producer breaks that one only. The methods are for the producers.
    """

    def __init__(self) -> None:
        self.begin()
        EXISTING.add(self)

    def begin(self) -> None:
        """Set everything that a forked child needs anew."""
        self.owners: list[Owner] = []
        self.thread: threading.Thread | None = None
        # The driving thread sleeps here; None only wakes it. A finalizer may put into it: it has no lock.
        self._queue: queue.SimpleQueue[tuple[Owner, Answer] | None] = queue.SimpleQueue()
        self._asleep = False
        self._clients: list[tuple[ProducerConfig, Mapping[str, Any], KinesisClient]] = []

    def client(self, config: ProducerConfig, settings: Mapping[str, Any]) -> Any:
        """The boto3 client for these settings. The first takes long: not to be called with the lock held."""
        for known_config, known_settings, client in self._clients:
            if known_config == config and known_settings == settings:
                return client
        client = boto3_client(config, settings)
        self._clients.append((config, settings, client))
        return client

    def wake(self) -> None:
        """There is something for an owner to do. Called with the lock held."""
        if self._asleep:
            self._asleep = False
            self._queue.put(None)

    def let_go(self, owner: Owner) -> None:
        """Its producer was dropped without `close`: deliver what is outstanding, then end. May be called
        anywhere, as finalizers are."""
        owner.letters.closing = owner.letters.unread = True
        self._queue.put(None)

    def drive(self, owner: Owner, name: str) -> None:
        """Give ``owner`` its turns from now on. Called with the lock held."""
        if self.thread is None:
            workers = Workers()
            workers.start_one()
            threading.Thread(target=self._run, args=(workers,), name=name, daemon=True).start()
        RUNNING.add(self)
        self.owners.append(owner)
        self.wake()

    def _run(self, workers: Workers) -> None:
        begin_driving()
        with LOCK:
            if self.thread is not None:  # two producers began at once, or Ctrl-C came while one did
                workers.stop()
                return
            self.thread = threading.current_thread()
        while True:
            with LOCK:
                workers.most = sum(owner.most_calls for owner in self.owners)
                wait = min([owner.wait() for owner in self.owners], default=_LONGEST_SLEEP)
                self._asleep = wait > 0 and self._queue.empty()
            self._take_answers(workers, min(wait, _LONGEST_SLEEP) if self._asleep else 0.0)
            with LOCK:
                self._asleep = False
                ready = [owner for owner in self.owners if owner.wait() <= 0]
            for owner in ready:
                if not self._turn(owner, workers):
                    workers.stop()
                    return

    def _take_answers(self, workers: Workers, seconds: float) -> None:
        """Sleep until there is something, and take all answers."""
        try:
            item = self._queue.get(timeout=seconds) if seconds else self._queue.get_nowait()
            while True:
                if item is not None:
                    owner, answer = item
                    workers.busy -= 1
                    owner.answers.append(answer)
                item = self._queue.get_nowait()
        except queue.Empty:
            pass

    def _report(self, owner: Owner, answer: Answer) -> None:
        """Called by workers."""
        self._queue.put((owner, answer))

    def _turn(self, owner: Owner, workers: Workers) -> bool:
        """Make a turn. False when this was the last turn of the last owner."""
        # PRD-47: "Producers of several streams that share their threads MUST deliver, fail, break and close
        # each by itself, as with threads of their own."
        try:
            if owner.turn(workers, self._report):
                return True
        except BaseException as error:  # noqa: BLE001 - it breaks one producer, not the thread
            owner.fall_apart(error)
            _print(error)
        with LOCK:
            self.owners.remove(owner)
            owner.finish()
            if self.owners:
                return True
            owner.last_thread = self.thread
            self.thread = None
            RUNNING.discard(self)
            return False


def _print(error: BaseException) -> None:
    """As for an error that ends a thread."""
    thread = threading.current_thread()
    threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, thread)))
