"""The shard map with boto3: fetched once, or kept up to date by a thread.

    shard_map = fetch_shard_map(client, "orders")                      # once
    lineage = fetch_lineage(client, "orders")                          # with the closed shards

    with StreamShardMap(client, "orders") as live:                     # keeps itself right
        live.wait_ready(10)
        live.predict(hash_key)                                         # never waits
        live.invalidate(sent_at, predicted_shard_id)                   # never waits

The rules are in `kpl_codec.shards.live_shard_map`; this module has the calls, the clock and the thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ..format.hash_keys import HashKeyRange
from ..shards.lineage import Lineage
from ..shards.live_shard_map import LiveShardMap, MapChanged, RefreshFailed, State
from ..shards.shard_map import ShardMap
from .calls import CALL_ERRORS, failure_of, send, stream_for
from .shard_map_base import LiveShardMapView


def run_refresh(
    live: LiveShardMap, client: Any, clock: Callable[[], float] = time.monotonic
) -> MapChanged | RefreshFailed | None:
    """Make every call that ``live`` wants now. Returns the event of the refresh, None if there was no
    call."""
    outcome: MapChanged | RefreshFailed | None = None
    while (request := live.next_request(clock())) is not None:
        try:
            answer = send(client, request)
        except CALL_ERRORS as error:
            outcome = live.fail(request, failure_of(error), clock()) or outcome
        else:
            outcome = live.receive(request, answer, clock()) or outcome
    return outcome


def _fetch(client: Any, live: LiveShardMap, timeout: float, sleep: Callable[[float], None]) -> LiveShardMap:
    stream_for(client, live.stream)
    end = time.monotonic() + timeout
    live.refresh(time.monotonic())
    while True:
        outcome = run_refresh(live, client)
        if isinstance(outcome, MapChanged):
            return live
        retry_at = live.timer()
        if live.error is not None and (live.error.permanent or retry_at is None or retry_at > end):
            raise live.error
        if retry_at is not None:
            sleep(max(0.0, retry_at - time.monotonic()))


def fetch_shard_map(
    client: Any,
    stream: str,
    *,
    closed: bool = False,
    timeout: float = 30.0,
    sleep: Callable[[float], None] = time.sleep,
) -> ShardMap:
    """The stream's shard map now, with its distribution strategy if the role may read it.

    ``client``: a boto3 Kinesis client; ``stream``: a name or an ARN. ``closed``: also the closed shards that
    still hold records. Retries with backoff for ``timeout`` seconds. Raises StreamUnavailable: at once if a
    retry cannot help, else with the last error.
    """
    live = LiveShardMap(stream, shard_filter="FROM_TRIM_HORIZON" if closed else "AT_LATEST")
    shard_map = _fetch(client, live, timeout, sleep).shard_map
    assert shard_map is not None
    return shard_map


def fetch_lineage(
    client: Any,
    stream: str,
    *,
    timeout: float = 30.0,
    sleep: Callable[[float], None] = time.sleep,
) -> Lineage:
    """The lineage of all shards that still hold records. Raises StreamUnavailable."""
    live = LiveShardMap(stream, shard_filter="FROM_TRIM_HORIZON")
    return _fetch(client, live, timeout, sleep).lineage


class StreamShardMap(LiveShardMapView):
    """A `LiveShardMap` with a thread that makes its calls. All methods are thread-safe.

    ``settings`` are those of `LiveShardMap`. Times are of ``clock``, time.monotonic by default.
    """

    def __init__(
        self, client: Any, stream: str, *, clock: Callable[[], float] = time.monotonic, **settings: Any
    ) -> None:
        super().__init__(client, stream, clock=clock, **settings)
        self._changed = threading.Condition()
        self._closing = False
        self._ended = False
        self._crash: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"kpl-codec shard map {self._live.stream}", daemon=True
        )

    def start(self) -> StreamShardMap:
        """Start. The first refresh runs in the background; see `wait_ready`."""
        self._live.refresh(self._clock())
        self._thread.start()
        return self

    def close(self) -> None:
        """End the thread, after a call that is under way."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            # Not `join`: a signal handler may have interrupted a method that holds the lock.
            self._changed.wait_for(lambda: self._ended or not self._thread.is_alive())

    def __enter__(self) -> StreamShardMap:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def hash_key_range(self, shard_id: str) -> HashKeyRange | None:
        """The range of a shard that is open, or was closed recently."""
        with self._changed:
            return self._live.hash_key_range(shard_id, self._clock())

    def invalidate(self, seen_at: float, predicted_shard: str | None) -> bool:
        """Report that a record sent at ``seen_at`` (same clock) is on another shard than
        ``predicted_shard``."""
        with self._changed:
            believed = self._live.invalidate(seen_at, predicted_shard, self._clock())
            if believed:
                self._changed.notify_all()
            return believed

    def refresh(self) -> bool:
        """Ask for a routine refresh (also after a permanent error). Returns whether one starts."""
        with self._changed:
            starts = self._live.refresh(self._clock())
            if starts:
                self._changed.notify_all()
            return starts

    def wait_ready(self, timeout: float | None = None) -> ShardMap:
        """Wait until the map is READY.

        Raises StreamUnavailable at once for a permanent error, and TimeoutError after ``timeout``
        seconds with the last StreamUnavailable as its cause; RuntimeError once it is closed.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                if self._live.state is State.READY:
                    assert self._live.shard_map is not None
                    return self._live.shard_map
                if self._crash is not None:
                    raise RuntimeError("the shard map's thread has crashed") from self._crash
                if self._live.permanent_error is not None:
                    raise self._live.permanent_error
                if self._closing:
                    raise RuntimeError("the shard map is closed")
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"no shard map of {self._live.stream}") from self._live.error
                self._changed.wait(left)

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:
            # A bug: every waiting caller must get an error.
            with self._changed:
                self._crash = error
            raise
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _turn(self) -> bool:
        """One call, or one sleep. False when closing."""
        with self._changed:
            if self._closing:
                return False
            request = self._live.next_request(self._clock())
            if request is None:
                timer = self._live.timer()
                self._changed.wait(None if timer is None else max(0.0, timer - self._clock()))
                return True
        try:
            answer = send(self._client, request)
        except CALL_ERRORS as error:
            with self._changed:
                self._live.fail(request, failure_of(error), self._clock())
                self._changed.notify_all()
        else:
            with self._changed:
                self._live.receive(request, answer, self._clock())
                self._changed.notify_all()
        return True
