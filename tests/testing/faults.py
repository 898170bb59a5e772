"""Faults that only our own tests need. A fault is a function of an `Exchange`: it may make a response itself,
change the request, send it on with ``exchange.forward()``, change the response, or end the connection with
``raise Cut``."""

from __future__ import annotations

from kpl_codec.testing.faults import Cut, Exchange, FaultFunction, HttpResponse


def cut_before() -> FaultFunction:
    """Reset the connection; the server never sees the call."""

    def cut_before(exchange: Exchange) -> HttpResponse:
        raise Cut

    return cut_before
