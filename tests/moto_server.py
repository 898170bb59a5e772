"""Services of AWS on this machine, by moto: S3, STS, IAM, Glue, DynamoDB, CloudWatch."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from moto.server import ThreadedMotoServer


@contextmanager
def moto_server() -> Iterator[str]:
    """A running server; gives its URL. All servers of one process have the same buckets, tables and so on."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()
        assert server._server is not None
        server._server.server_close()  # moto leaves its socket open
