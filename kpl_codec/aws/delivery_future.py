"""The future that `Producer.put` gives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from ..producer import Delivery
from .producer_log import logger


class DeliveryFuture(Future[Delivery]):
    """A `concurrent.futures.Future` of a Delivery. It cannot be cancelled: the record is on its way.

    What a callback raises in the producer's thread is logged and goes no further, SystemExit and
    KeyboardInterrupt too.
    """

    def cancel(self) -> bool:
        return False

    def add_done_callback(self, fn: Callable[[Future[Delivery]], object]) -> None:
        super().add_done_callback(fn if self.done() else partial(_call_back, fn))


def _call_back(fn: Callable[[Future[Delivery]], object], future: Future[Delivery]) -> None:
    # PRD-38: "Whatever a callback raises MUST NOT cost another user record its result."
    try:
        fn(future)
    except BaseException:
        if threading.current_thread() is threading.main_thread():
            raise  # it was added when the record had ended: its caller's business
        logger.exception("a callback of a delivery failed")
