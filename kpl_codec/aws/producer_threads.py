"""The threads of thread producers: one that owns their cores, and workers that make their calls."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ..producer import ProducerConfig
from .calls import KinesisClient
from .fork_and_exit import remember_threads
from .producer_base import boto3_client
from .producer_owner import Owner
from .workers import Workers

#: Seconds that the owning thread sleeps at most: a wait may not be longer than threading.TIMEOUT_MAX.
_LONGEST_SLEEP = 3600.0


class SharedThreads:
    """The threads behind `ProducerThreads`, and what its producers do with them."""

    def __init__(self) -> None:
        self._begin()
        remember_threads(self)

    def _begin(self) -> None:
        """Set everything that a forked child needs anew."""
        # PRD-40: "Every method of the thread producer MUST work in a signal handler, whatever the handler has
        # interrupted."
        # A signal handler may run inside a method that holds the lock, in the same thread. So the lock is
        # re-entrant, and waiting uses its conditions, which release it completely.
        self.lock = threading.RLock()
        self._awake = threading.Condition(self.lock)  # the owning thread sleeps here
        self._asleep = False
        self._owners: list[Owner] = []
        self._running = False
        self._times_ended = 0
        self._thread: threading.Thread | None = None
        self._workers: Workers | None = None
        self._clients: list[tuple[ProducerConfig, Mapping[str, Any], KinesisClient]] = []

    def client(self, config: ProducerConfig, settings: Mapping[str, Any]) -> KinesisClient:
        """The boto3 client for these settings. The first takes long: not to be called with the lock held."""
        for known_config, known_settings, client in self._clients:
            if known_config == config and known_settings == settings:
                return client
        client = boto3_client(config, settings)
        self._clients.append((config, settings, client))
        return client

    def is_current(self) -> bool:
        """Whether this is the owning thread, in which callbacks run."""
        return threading.current_thread() is self._thread

    def wake(self) -> None:
        """There is something for an owner to do. Called with the lock held."""
        if self._asleep:
            self._awake.notify()

    def drive(self, owner: Owner, name: str) -> None:
        """Give ``owner`` its turns from now on. Called with the lock held."""
        while not self._running:
            times_ended = self._times_ended
            workers = self._workers = self._workers or Workers()
            workers.start_one()
            threading.Thread(target=self._run, args=(workers,), name=name, daemon=True).start()
            # Only now: a signal handler in between would start them, too. If it has also ended them, by
            # closing another producer, they start once more.
            self._running = self._times_ended == times_ended
        if owner not in self._owners:
            self._owners.append(owner)
            self._count_calls()
        self.wake()

    def _count_calls(self) -> None:
        if self._workers is not None:
            self._workers.most = sum(owner.most_calls for owner in self._owners)

    def _run(self, workers: Workers) -> None:
        with self.lock:
            if self._thread is not None or workers is not self._workers:
                return  # the second of two, see `drive`
            self._thread = threading.current_thread()
        while self._running_owners(workers):
            pass
        workers.stop()

    def _running_owners(self, workers: Workers) -> bool:
        """Sleep until some owners have a turn to make, and make it. False when all have ended."""
        with self.lock:
            ready = [owner for owner in self._owners if owner.wait() <= 0]
            if not ready:
                wait = min([owner.wait() for owner in self._owners], default=_LONGEST_SLEEP)
                self._asleep = True
                self._awake.wait(min(wait, _LONGEST_SLEEP))
                self._asleep = False
                return True
        return all([self._turn(owner, workers) for owner in ready])

    def _turn(self, owner: Owner, workers: Workers) -> bool:
        """Make a turn. False when this was the last turn of the last owner."""
        # PRD-47: "Producers of several streams that share their threads MUST deliver, fail, break and close
        # each by itself, as with threads of their own."
        try:
            if owner.turn(workers):
                return True
        except BaseException as error:  # noqa: BLE001 - it breaks one producer, not the thread
            owner.fall_apart(error)
            thread = threading.current_thread()
            threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, thread)))
        with self.lock:
            if owner in self._owners:
                self._owners.remove(owner)
                self._count_calls()
            if self._owners:
                owner.finish(None)
                return True
            owner.finish(self._thread)
            self._running, self._thread, self._workers = False, None, None
            self._times_ended += 1
            return False


class ProducerThreads:
    """Threads that several producers share, one producer for each stream.

        threads = ProducerThreads()
        with Producer("orders", threads=threads) as orders, Producer("clicks", threads=threads) as clicks:
            ...

    The threads start with the first put, and end when the last of the producers is closed; another put to
    another producer starts them again. One thread drives all producers and runs all callbacks, so none of
    the producers may be flushed or closed in a callback. Calls are made by as many threads as calls are under
    way: ``max_connections`` of each producer limits its own, and a stream that hangs takes nothing from the
    others. Producers with equal settings share a boto3 client. An error in one producer breaks that one only.
    """

    def __init__(self) -> None:
        self._shared = SharedThreads()


def shared(threads: ProducerThreads | None) -> SharedThreads:
    """Those of ``threads``; new ones if there are none to share."""
    return SharedThreads() if threads is None else threads._shared
