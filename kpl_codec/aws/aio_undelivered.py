"""Calls ``on_undelivered`` of the asyncio producer: in a task, and a plain function in another thread."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

from ..producer import Pending
from .one_lock import WouldDeadlock
from .undelivered import NOT_IN_HOOK, SLOW, OnUndelivered, Undelivered, log_not_called


class AsyncUndelivered(Undelivered):
    """``give`` gives user records their results; ``carefully`` runs a step that must not raise."""

    def __init__(
        self,
        function: OnUndelivered | None,
        clock: Callable[[], float],
        give: Callable[[list[Pending]], None],
        carefully: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__(function, clock)
        self._give, self._carefully = give, carefully
        self._task: asyncio.Task[None] | None = None
        self._next_look: asyncio.TimerHandle | None = None

    @property
    def is_here(self) -> bool:
        """Whether this task is the one that calls it."""
        return self._task is not None and asyncio.current_task() is self._task

    def may_wait(self, method: str) -> None:
        """Raises WouldDeadlock where this task must not wait for the producer."""
        if self.is_here:
            raise WouldDeadlock(code="in-callback", method=method, instead=NOT_IN_HOOK)

    def start(self) -> None:
        """Call it for those that wait."""
        if self.may_start:
            self._task = asyncio.get_running_loop().create_task(self._call())
            if self._next_look is None:
                self._look_later()

    async def ended(self) -> None:
        """Wait until nobody calls it any more."""
        while self._task is not None:
            await asyncio.wait([self._task])
        if self._next_look is not None:
            self._next_look.cancel()

    def _look_later(self) -> None:
        self._next_look = asyncio.get_running_loop().call_later(SLOW, self._look)

    def _look(self) -> None:
        self._next_look = None
        if self._task is not None:
            self._look_later()
            self._carefully(self.tell)

    async def _call(self) -> None:
        try:
            while batch := self.next(self):
                left = iter(batch)
                try:
                    if inspect.iscoroutinefunction(self.function):
                        for pending in left:
                            await self.finish(self.call(pending.result))
                    else:  # it may take long: not in the event loop
                        for given in await asyncio.to_thread(self.call_all, left):
                            await self.finish(given)
                except asyncio.CancelledError:
                    rest = self.next(self)
                    batch += rest
                    log_not_called(len([*left, *rest]))
                    raise
                finally:
                    self.release(batch)
                    self._give(batch)
                    self._carefully(self.tell)
        finally:
            self.caller = self._task = None
            self.start()  # if it was the log that has raised
