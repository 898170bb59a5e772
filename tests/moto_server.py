"""Services of AWS on this machine, by moto: S3, STS, IAM, Glue, DynamoDB, CloudWatch."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def moto_server() -> Iterator[str]:
    """A running server with nothing in it; gives its URL.

    All servers of one process share one store, so a second one, begun while the first runs, would empty it.
    """
    from moto.server import ThreadedMotoServer  # half a second, which few processes need

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    urllib.request.urlopen(f"{url}/moto-api/reset", data=b"").close()
    try:
        yield url
    finally:
        server.stop()
        assert server._server is not None
        server._server.server_close()  # moto leaves its socket open
