"""A local Lambda Runtime API: hands events to a runtime client and keeps what it answers.

The four calls of https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html, on 127.0.0.1.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from kpl_codec.testing.serving import ServerThread

_PREFIX = "/2018-06-01/runtime"


class Answer(NamedTuple):
    """``kind``: response, error or init-error; ``body``: what the client posted, parsed; ``size``: bytes."""

    kind: str
    body: Any
    size: int


class RuntimeApi:
    """The server. ``send`` an event, then wait for the ``answer``."""

    def __init__(self) -> None:
        self._events: queue.Queue[bytes | None] = queue.Queue()
        self._answers: queue.Queue[Answer] = queue.Queue()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                assert self.path == f"{_PREFIX}/invocation/next"
                event = api._events.get()
                if event is None:
                    self.close_connection = True
                    return
                self.send_response(200)
                self.send_header("Lambda-Runtime-Aws-Request-Id", "8476a536-e9f4-11e8-9739-2dfe598c3fcd")
                # The native client reads these two unchecked: without them it dies by a signal.
                self.send_header("Content-Type", "application/json")
                self.send_header("Lambda-Runtime-Trace-Id", "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700")
                self.send_header("Lambda-Runtime-Deadline-Ms", str(int((time.time() + 30) * 1000)))
                self.send_header(
                    "Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-2:1:function:f"
                )
                self._finish(event)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                kind = "init-error" if self.path.endswith("/init/error") else self.path.rpartition("/")[2]
                self.send_response(202)
                self._finish(b"")
                api._answers.put(Answer(kind, json.loads(body), len(body)))

            def _finish(self, body: bytes) -> None:
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ServerThread(Handler, "127.0.0.1", 0).__enter__()
        self.address = f"127.0.0.1:{self._server.port}"

    def send(self, event: Any) -> None:
        self._events.put(json.dumps(event).encode())

    def answer(self, timeout: float) -> Answer | None:
        try:
            return self._answers.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self) -> None:
        self._events.put(None)
        self._server.__exit__()


class Function:
    """One function in one runtime process: ``python -m awslambdaric <handler>``."""

    def __init__(
        self, handler: str, task_root: str, environment: dict[str, str], python: str = sys.executable
    ):
        self.api = RuntimeApi()
        # What the service sets; nothing of ours but what the caller gives.
        variables = {
            "AWS_LAMBDA_RUNTIME_API": self.api.address,
            "AWS_LAMBDA_FUNCTION_NAME": "f",
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128",
            "AWS_REGION": "us-east-2",
            "AWS_DEFAULT_REGION": "us-east-2",
            "LAMBDA_TASK_ROOT": task_root,
            "POWERTOOLS_SERVICE_NAME": "f",
            **environment,
        }
        self._process = subprocess.Popen(
            [python, "-m", "awslambdaric", handler], cwd=task_root, env=variables,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def invoke(self, event: Any, timeout: float = 60.0) -> Answer:
        """Give the function one event and wait for its answer."""
        self.api.send(event)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self._process.poll() is None:
            answer = self.api.answer(0.2)
            if answer is not None:
                return answer
        raise AssertionError(f"no answer, process {self._process.poll()}: {self.stop()}")

    def __enter__(self) -> Function:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.stop()

    def stop(self) -> str:
        """End the process; gives what it printed."""
        self._process.kill()
        printed, _ = self._process.communicate(timeout=60)
        self.api.close()
        return printed
