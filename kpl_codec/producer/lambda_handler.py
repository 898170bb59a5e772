"""The decorator for handlers of AWS Lambda that put user records.

Specification: spec/05-producer.md, PRD-93.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar

from ..base.arguments import check_arguments
from .results import DeliveryError

if TYPE_CHECKING:
    from .async_producer import AsyncProducer
    from .driver import Driver
    from .threads import Producer

_Handler = TypeVar("_Handler", bound=Callable[..., Any])


def delivers(producer: Producer | AsyncProducer) -> Callable[[_Handler], _Handler]:
    """A decorator for a handler of AWS Lambda that puts: it starts the producer, and waits when the handler
    returns or raises, because Lambda stops the process then.

    The handler of a Producer is a plain function. That of an AsyncProducer is the coroutine function that
    `kpl_codec.aws_lambda.aio.run` runs. Raises TypeError for the other kind, and for what is no producer. The
    decorated handler raises the first DeliveryError of the invocation, if the handler itself has raised
    nothing; and ProducerClosed.
    """
    check_arguments("delivers", {"producer": producer})

    # PRD-93: "In Lambda, which stops a process when it has the handler's answer, each user record that an
    # invocation has put MUST have its result before, and the invocation MUST fail if one was not delivered."
    def decorate(handler: _Handler) -> _Handler:
        is_async = iscoroutinefunction(producer.put)
        if iscoroutinefunction(handler) is not is_async:
            wanted = "a coroutine function, as aio.run takes one" if is_async else "a plain function"
            raise TypeError(f"delivers({type(producer).__name__}): give {wanted} as the handler")

        @wraps(handler)
        def delivering(*arguments: Any, **named: Any) -> Any:
            producer._start()
            with _raises_undelivered(producer._driver):
                try:
                    return handler(*arguments, **named)
                finally:
                    producer.flush()

        @wraps(handler)
        async def delivering_async(*arguments: Any, **named: Any) -> Any:
            await producer._start()  # type: ignore[misc]
            with _raises_undelivered(producer._driver):
                try:
                    return await handler(*arguments, **named)
                finally:
                    await producer.flush()  # type: ignore[misc]

        return delivering_async if is_async else delivering  # type: ignore[return-value]

    return decorate


@contextmanager
def _raises_undelivered(driver: Driver) -> Iterator[None]:
    """Raise the first error of the user records that end in this block without being delivered."""
    errors: list[DeliveryError] = []
    driver.watchers[id(errors)] = errors
    try:
        yield
    finally:
        del driver.watchers[id(errors)]
    if errors:
        raise errors[0]
