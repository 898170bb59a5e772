"""Runs an HTTP server in a thread."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

from ..errors import KplError

Self = TypeVar("Self", bound="ServerThread")


class CannotListen(KplError, OSError):
    """No server can listen at this address and port."""

    code = "cannot-listen"
    address: str
    port: int
    reason: str
    text = "cannot listen at {address}, port {port}: {reason}"
    concerns = "Whoever runs the command. Nothing was written."
    todo = "Choose a free port, or an address of this machine."


class ServerThread:
    """A context manager that serves ``handler``, each request in a thread. ``port`` 0: any free port. The
    attribute ``port`` is the port in use. Raises CannotListen."""

    def __init__(self, handler: type[BaseHTTPRequestHandler], address: str, port: int) -> None:
        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
            request_queue_size = 128

        try:
            self._server = Server((address, port), handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise CannotListen(address=address, port=port, reason=reason) from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self: Self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
