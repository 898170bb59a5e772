"""A local Lambda Runtime API: hands events to a runtime client and keeps what it answers.

The four calls of https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html, on 127.0.0.1.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

from kpl_codec.testing.serving import ServerThread

_PREFIX = "/2018-06-01/runtime"


class Answer(NamedTuple):
    """``kind``: response, error or init-error; ``body``: what the client posted, parsed; ``size``: bytes;
    ``effects``: the lines that this invocation had written to $SIDE_EFFECTS then."""

    kind: str
    body: Any
    size: int
    effects: list[str]


def run_function(
    events: Iterable[Any],
    handler: str,
    task_root: str,
    side_effects: Path,
    python_path: str,
    python: str = sys.executable,
) -> tuple[list[Answer], str]:
    """The answers of one function in one runtime process, ``python -m awslambdaric HANDLER``, to ``events``
    one after the other; and what it printed. It is killed when there is no event more."""
    waiting = iter(events)
    answers: list[Answer] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            assert self.path == f"{_PREFIX}/invocation/next"
            event = next(waiting, None)
            if event is None:
                process.kill()
                return
            self.send_response(200)
            self.send_header("Lambda-Runtime-Aws-Request-Id", "8476a536-e9f4-11e8-9739-2dfe598c3fcd")
            # The native client reads these two unchecked: without them it dies by a signal.
            self.send_header("Content-Type", "application/json")
            self.send_header("Lambda-Runtime-Trace-Id", "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700")
            self.send_header("Lambda-Runtime-Deadline-Ms", str(int((time.time() + 30) * 1000)))
            self.send_header("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-2:1:function:f")
            self._finish(json.dumps(event).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kind = "init-error" if self.path.endswith("/init/error") else self.path.rpartition("/")[2]
            effects = side_effects.read_text().splitlines() if side_effects.exists() else []
            before = sum(len(answer.effects) for answer in answers)
            answers.append(Answer(kind, json.loads(body), len(body), effects[before:]))
            self.send_response(202)
            self._finish(b"")

        def _finish(self, body: bytes) -> None:
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    with ServerThread(Handler, "127.0.0.1", 0) as server:
        # What the service sets; nothing of ours but the path and the file.
        variables = {
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{server.port}",
            "AWS_LAMBDA_FUNCTION_NAME": "f",
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128",
            "AWS_REGION": "us-east-2",
            "AWS_DEFAULT_REGION": "us-east-2",
            "LAMBDA_TASK_ROOT": task_root,
            "PYTHONPATH": python_path,
            "SIDE_EFFECTS": str(side_effects),
        }
        process = subprocess.Popen(
            [python, "-m", "awslambdaric", handler], cwd=task_root, env=variables,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            printed, _ = process.communicate(timeout=120)
        finally:
            process.kill()
    return answers, printed
