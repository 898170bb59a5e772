"""The loop of a program in Python: `serve("my-codec", "1.0", {"decode": ...})`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

PROTOCOL = 1
#: The parts of a user record that a program may give.
FIELDS = ("partition_key", "explicit_hash_key", "data")

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def serve(name: str, version: str, operations: Mapping[str, Answer]) -> None:
    """Answer questions until the input ends. An exception of an operation becomes an error answer."""
    out = sys.stdout
    sys.stdout = sys.stderr  # output of an implementation must not mix with the answers
    answer: dict[str, Any]
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["op"] == "hello":
            answer = {"name": name, "version": version, "protocol": PROTOCOL, "ops": sorted(operations)}
        else:
            try:
                answer = operations[asked["op"]](asked)
            except Exception as error:  # noqa: BLE001 - whatever it raises is the observation
                answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps({"id": asked.get("id"), **answer}), file=out, flush=True)


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
