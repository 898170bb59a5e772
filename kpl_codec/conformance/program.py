"""Both ends of the protocol of spec/09-conformance.md. `Program` starts a program and asks it one question at
a time, in JSON or in lines; a crash, a hang and nonsense count as answers. `serve` is the loop of a program
in Python.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Literal

from ..errors import KplError

PROTOCOL = 1
#: The parts of a user record that a program may return.
FIELDS = ("partition_key", "explicit_hash_key", "data")
#: The last line of every answer.
END = "end"
#: What a program did instead of an answer to hello, and why the system could not start it.
_FAILURES = {"crash": "it ended without an answer", "hang": "it hangs", "nonsense": "its answer is not JSON"}
_NOT_STARTED = {
    errno.ENOENT: "there is no such program; check its path, or give its interpreter and its file behind --",
    errno.EACCES: "it is not executable; run chmod +x, or give its interpreter and its file behind --",
}
AnswerFunction = Callable[[dict[str, Any]], dict[str, Any]]


class ProgramError(KplError, RuntimeError):
    """The program cannot be used at all. ``code``: start, hello."""

    code: Literal["start", "hello"]
    requirement = "CNF-1"
    detail: str
    text = "cannot test {detail}"
    concerns = "Whoever runs the command. Nothing was written."
    todo = "Run the program by hand; spec/09-conformance.md says what it must answer."


class Program:
    """A program that runs, as a context manager. ``timeout``: seconds that an answer may take. ``lines``: the
    program speaks lines instead of JSON. ``hello``: its name, version and the operations that it knows."""

    def __init__(self, command: Sequence[str], *, lines: bool = False, timeout: float = 20.0):
        self.command, self.timeout = list(command), timeout
        self._in_lines = lines
        self._process: Any = None
        self._errors: IO[bytes]
        self.hello: dict[str, Any] = {}

    def __enter__(self) -> Program:
        # CNF-1: "A program MUST answer every line it reads with one line, a JSON object that repeats the
        # question's id."
        answer = self.ask({"op": "hello", "protocol": PROTOCOL})
        ops, fields = answer.get("ops"), answer.get("fields", list(FIELDS))
        texts = isinstance(ops, list) and all(isinstance(one, str) for one in ops)
        of_ours = isinstance(fields, list) and all(one in FIELDS for one in fields)
        if "failure" in answer or not texts or not of_ours or "name" not in answer:
            self._stop()
            why = _FAILURES.get(str(answer.get("failure")), "its answer to hello is wrong")
            what = str(answer.get("detail", json.dumps(answer))).strip()[-120:]
            hint = "" if self._in_lines else "; if it answers in lines instead of JSON, give --lines"
            detail = f"{self.command[0]}: {why}{what and ': '}{what}{hint}"
            raise ProgramError(code="hello", detail=detail)
        self.hello = answer
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop()

    def _start(self) -> subprocess.Popen[str]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it ends with this object
        try:
            return subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                text=True, encoding="utf-8", errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._errors.close()
            why = _NOT_STARTED.get(error.errno or 0) or error.strerror
            raise ProgramError(code="start", detail=f"{self.command[0]}: {why}") from error

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The program's answer; or ``{"failure": "crash" | "hang" | "nonsense", "detail": ...}``."""
        # CNF-4: "A program that crashes, hangs or answers anything else MUST be started afresh for the
        # next question, and the vector counted as failed."
        text = question_lines(question) if self._in_lines else json.dumps(question) + "\n"
        if text is None:
            return {"unsupported": True}
        if self._process is None or self._process.poll() is not None:
            self._stop()
            self._process = self._start()
        process = self._process
        response, complete = "", False
        # The process's children must end, too: they may hold the pipe open.
        patience = threading.Timer(self.timeout, os.killpg, (process.pid, signal.SIGKILL))
        patience.start()
        try:
            with contextlib.suppress(OSError):  # it is gone already
                process.stdin.write(text)
                process.stdin.flush()
                for line in process.stdout:
                    response += line
                    if not self._in_lines or line.strip() == END:
                        complete = True
                        break
            late = patience.finished.is_set()
        finally:  # after Ctrl-C, too: this process would wait for it, and it would end others with that id
            patience.cancel()
        if late or not complete:
            crash = {"failure": "crash", "detail": self._stop()}
            return {"failure": "hang", "detail": f"no answer in {self.timeout} s"} if late else crash
        try:
            # CNF-6: "An answer in lines MUST be graded as the same answer in JSON."
            if self._in_lines:
                return answer_of(response.splitlines()[:-1], question["op"])
            answer = json.loads(response)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict) and answer.get("id") == question.get("id"):
            return answer
        self._stop()
        return {"failure": "nonsense", "detail": response.strip()[:200]}

    def _stop(self) -> str:
        """End the program, if it was started; the last line of its standard error, or 500 bytes of that."""
        process, self._process = self._process, None
        if process is None:
            return ""
        with contextlib.suppress(OSError):  # it is gone already
            process.stdin.close()
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        with self._errors as errors:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - 500))
            return errors.read().decode(errors="replace").strip().rpartition("\n")[2]


# -- lines ----------------------------------------------------------------------------------------


def question_lines(question: Mapping[str, Any]) -> str | None:
    """The question of `grading.question` as lines (section 9.2); None for a question that has no form in
    lines."""
    if question["op"] == "hello":
        return f"hello {question['protocol']}\n"
    if question["op"] == "decode":
        return f"decode {question['data']}\n"
    if question["op"] == "encode" and not any("tags" in record for record in question["user_records"]):
        last = " ".join(["encode", *map(str, filter(None, [question.get("max_size")]))])
        return "".join(f"{line}\n" for line in (*record_lines(question["user_records"]), last))
    return None


def record_lines(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for record in records:
        for name in ("partition_key", "explicit_hash_key"):
            if record.get(name) is not None:
                yield f"{name} {record[name].encode('utf-8', 'surrogatepass').hex()}"
        yield f"data {record['data']}"


def answer_of(lines: Iterable[str], op: str) -> dict[str, Any]:
    """An answer in lines (without the last, "end") as the same answer in JSON. Raises ValueError for lines
    that are no answer."""
    answer: dict[str, Any] = {"user_records": []} if op == "decode" else {}
    keys: dict[str, bytes] = {}
    for line in lines:
        name, _, value = line.partition(" ")
        if name in ("plain", "unsupported"):
            answer[name] = True
        elif name in ("ops", "fields"):
            answer[name] = value.split()
        elif name in ("name", "version", "error"):
            answer[name] = value
        elif name in ("partition_key", "explicit_hash_key"):
            keys[name] = bytes.fromhex(value)
        elif name != "data":
            raise ValueError(f"no line of an answer: {line[:40]!r}")
        elif op == "decode":
            key, hash_key = (_text(keys.get(name)) for name in ("partition_key", "explicit_hash_key"))
            answer["user_records"].append(user_record(key, bytes.fromhex(value), hash_key))
            keys = {}
        else:
            answer["data"] = bytes.fromhex(value).hex()
    return answer


def _text(key: bytes | None) -> str | bytes | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return key


# -- a program in Python --------------------------------------------------------------------------


def serve(name: str, version: str, operations: Mapping[str, AnswerFunction]) -> None:
    """Answer questions until the input ends. An exception of an operation becomes an error answer."""
    out = sys.stdout
    sys.stdout = sys.stderr  # output of an implementation must not mix with the answers
    answer: dict[str, Any]
    for line in sys.stdin:
        question = json.loads(line)
        if question["op"] == "hello":
            answer = {"name": name, "version": version, "protocol": PROTOCOL, "ops": sorted(operations)}
        else:
            try:
                answer = operations[question["op"]](question)
            except Exception as error:  # noqa: BLE001 - whatever it raises is the observation
                answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps({"id": question.get("id"), **answer}), file=out, flush=True)


def user_record(
    partition_key: Any, data: bytes, explicit_hash_key: Any = None, tags: Any = ()
) -> dict[str, Any]:
    record: dict[str, Any] = {"data": data.hex()}
    for name, key in (("partition_key", partition_key), ("explicit_hash_key", explicit_hash_key)):
        if isinstance(key, bytes):  # some implementations return keys that are not text
            record[name], record[f"{name}_bytes"] = None, key.hex()
        elif key is not None or name == "partition_key":
            record[name] = key
    if tags:
        record["tags"] = [
            {"key": key} if value is None else {"key": key, "value": value} for key, value in tags
        ]
    return record
