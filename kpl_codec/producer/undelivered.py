"""The caller's on_undelivered, which gets what was not delivered before its future has a result.

Specification: spec/05-producer.md, PRD-64 and PRD-65.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from ..errors import place_of
from .process import StreamLog, call
from .record import Pending
from .results import DeliveryError


class UndeliveredCallback:
    """The caller's on_undelivered, and the user records that wait for it. ``function`` None: there is none.

    ``held``: user records whose futures wait until the function has returned; ``waiting``: those of them for
    which it was not called yet. ``caller``: the thread or task that calls it now. ``called_at``: when the
    call under way began.
    """

    def __init__(
        self,
        function: Callable[[DeliveryError], object] | None,
        end_call: Callable[[object], object],
        clock: Callable[[], float],
        log: StreamLog,
    ) -> None:
        self.function, self._end_call, self._log = function, end_call, log
        self.held: set[Pending] = set()
        self.waiting: list[Pending] = []
        self.caller: object = None
        self.called_at: float | None = None
        self._clock = clock
        self._raised = deque[str]()

    def hold(self, ended: list[Pending]) -> list[Pending]:
        """Hold the user records that were not delivered. Returns the others."""
        # PRD-64: "on_undelivered MUST be called exactly once for each user record that ends without being
        # delivered, with its DeliveryError, before its future has a result."
        if self.function is None:
            return ended
        failed = [pending for pending in ended if isinstance(pending.result, DeliveryError)]
        self.waiting += failed
        self.held.update(failed)
        return [pending for pending in ended if pending not in self.held] if failed else ended

    def call(self, error: DeliveryError) -> None:
        """Call the function. ``end_call`` gets what it returns, and waits for it if it is an awaitable."""
        assert self.function is not None
        self.called_at = self._clock()
        # PRD-65: "Whatever on_undelivered raises, and however long it takes, MUST NOT cost another user
        # record its delivery or its result; what it raises MUST be logged."
        try:
            self._end_call(call(self.function, error))
        except BaseException as raised:  # noqa: BLE001 - see above
            # By its place, without its text, which may repeat data.
            self._raised.append(place_of(raised))
        finally:
            self.called_at = None

    def log(self) -> None:
        """Log the errors that the function has raised."""
        places = [self._raised.popleft() for _ in range(len(self._raised))]  # others may come meanwhile
        for place, count in Counter(places).items():
            self._log.user_records(count, "on_undelivered failed for %s: %s", place)
