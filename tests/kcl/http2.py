"""HTTP/2 in front of local servers that speak HTTP/1.1: the KCL for Java speaks nothing else."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

#: The largest response of a service: GetRecords gives 10 MiB at most, which base64 makes longer.
_LARGEST = 32 << 20


def at_trim_horizon(content: bytes) -> bytes:
    """A response of ListShards with the shards that were open when the oldest record was put. kinesis-local
    gives the children, too; the KCL does not begin with a listing that has a hash key twice."""
    listing = json.loads(content)
    listing["Shards"] = [shard for shard in listing["Shards"] if not shard.get("ParentShardId")]
    return json.dumps(listing).encode()


@contextmanager
def http2_proxy(servers: dict[str, str]) -> Iterator[str]:
    """``servers``: URLs by what the name of an operation begins with, as ``DynamoDB``. Gives its URL."""
    import hypercorn.asyncio
    import hypercorn.config
    from hypercorn.middleware import AsyncioWSGIMiddleware

    def forward(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        url = next(url for begins, url in servers.items() if target.startswith(begins))
        body = environ["wsgi.input"].read()
        sent = {"X-Amz-Target": target, "Content-Type": environ["CONTENT_TYPE"]}
        sent["Authorization"] = environ.get("HTTP_AUTHORIZATION", "")
        sent["X-Amz-Date"] = environ.get("HTTP_X_AMZ_DATE", "")
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        try:
            connection.request("POST", "/", body, sent)
            response = connection.getresponse()
            content = response.read()
            if target.endswith("ListShards") and b"AT_TRIM_HORIZON" in body:
                content = at_trim_horizon(content)
        finally:
            connection.close()
        kept = ("content-type", "x-amzn-requestid", "x-amzn-errortype")
        headers = [(name, value) for name, value in response.getheaders() if name.lower() in kept]
        start_response(
            f"{response.status} {response.reason}", [*headers, ("Content-Length", str(len(content)))]
        )
        return [content]

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    config = hypercorn.config.Config()
    config.bind = [f"fd://{listener.detach()}"]  # hypercorn closes it
    config.accesslog = config.errorlog = None
    loop, ended = asyncio.new_event_loop(), asyncio.Event()
    app = AsyncioWSGIMiddleware(forward, _LARGEST)
    serve = hypercorn.asyncio.serve(app, config, shutdown_trigger=ended.wait)  # type: ignore[arg-type]
    thread = threading.Thread(target=loop.run_until_complete, args=[serve], name="HTTP/2", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(60)
        loop.close()
