"""Starts a program and asks it one question at a time; to crash, hang or answer nonsense is an answer."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any, Literal

from ..errors import KplError
from .lines import END, answer_of, question_lines
from .serving import FIELDS, PROTOCOL


class ProgramError(KplError, RuntimeError):
    """The program cannot be used at all. ``code``: start, hello."""

    code: Literal["start", "hello"]
    requirement = "CNF-1"
    detail: str
    text = "conformance program unusable: {code}: {detail}"
    concerns = "Whoever runs the command. Nothing was written."
    todo = "Run it by hand; spec/09-conformance.md says what it must answer."


class Program:
    """A running program, as a context manager. ``timeout``: seconds that an answer may take. ``lines``: it
    speaks lines instead of JSON. ``hello``: its name, version and the operations it knows."""

    def __init__(self, command: Sequence[str], *, lines: bool = False, timeout: float = 20.0):
        self.command, self.timeout = list(command), timeout
        self._in_lines = lines
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None]
        self._errors: IO[bytes]
        self.hello: dict[str, Any] = {}

    def __enter__(self) -> Program:
        # CNF-1: "A program MUST answer every line it reads with one line, a JSON object that repeats the
        # question's id."
        answer = self.ask({"op": "hello", "protocol": PROTOCOL})
        ops, fields = answer.get("ops"), answer.get("fields", list(FIELDS))
        texts = isinstance(ops, list) and all(isinstance(one, str) for one in ops)
        known = isinstance(fields, list) and all(one in FIELDS for one in fields)
        if "failure" in answer or not texts or not known or "name" not in answer:
            self.close()
            raise ProgramError(code="hello", detail=f"{self.command[0]} answered {json.dumps(answer)[:500]}")
        self.hello = answer
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _start(self) -> subprocess.Popen[str]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it ends with this object
        try:
            process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                text=True, encoding="utf-8", errors="replace",
            )  # fmt: skip
        except OSError as error:
            raise ProgramError(code="start", detail=f"{self.command[0]}: {error}") from error
        answers = self._answers = queue.Queue()

        def read() -> None:
            assert process.stdout is not None
            answer = ""
            for line in process.stdout:
                answer += line
                if not self._in_lines or line.strip() == END:
                    answers.put(answer)
                    answer = ""
            answers.put(None)

        threading.Thread(target=read, daemon=True).start()
        return process

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The program's answer; or ``{"failure": "crash" | "hang" | "nonsense", "detail": ...}``."""
        # CNF-4: "A program that crashes, hangs or answers anything else MUST be started afresh for the
        # next question, and the vector counted as failed."
        asked = question_lines(question) if self._in_lines else json.dumps(question) + "\n"
        if asked is None:
            return {"unsupported": True}
        if self._process is None or self._process.poll() is not None:
            self._process = self._start()
        process = self._process
        assert process.stdin is not None
        try:
            process.stdin.write(asked)
            process.stdin.flush()
            answered = self._answers.get(timeout=self.timeout)
        except queue.Empty:
            self.close()
            return {"failure": "hang", "detail": f"no answer in {self.timeout} s"}
        except OSError:
            answered = None
        if answered is None:
            self.close()
            return {"failure": "crash", "detail": self._last_words()}
        try:
            # CNF-6: "An answer in lines MUST be graded as the same answer in JSON."
            if self._in_lines:
                return answer_of(answered.splitlines()[:-1], question["op"])
            answer = json.loads(answered)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict) and answer.get("id") == question.get("id"):
            return answer
        self.close()
        return {"failure": "nonsense", "detail": answered[:200]}

    def _last_words(self) -> str:
        """The end of what the process, which is gone, wrote to its standard error."""
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 500))
        return self._errors.read().decode(errors="replace")

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it is gone already
            process.stdin.close()
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
