"""Questions and answers as lines of a name and a value: section 9.2 of spec/09-conformance.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .serving import user_record

#: The last line of every answer.
END = "end"


def question_lines(asked: Mapping[str, Any]) -> str | None:
    """The question of `judging.question` as lines; None for one that they cannot ask."""
    if asked["op"] == "hello":
        return f"hello {asked['protocol']}\n"
    if asked["op"] == "decode":
        return f"decode {asked['data']}\n"
    if asked["op"] == "encode" and not any("tags" in record for record in asked["user_records"]):
        last = " ".join(["encode", *map(str, filter(None, [asked.get("max_size")]))])
        return "".join(f"{line}\n" for line in (*record_lines(asked["user_records"]), last))
    return None


def record_lines(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for record in records:
        for name in ("partition_key", "explicit_hash_key"):
            if record.get(name) is not None:
                yield f"{name} {record[name].encode('utf-8', 'surrogatepass').hex()}"
        yield f"data {record['data']}"


def answer_of(lines: Iterable[str], op: str) -> dict[str, Any]:
    """The answer that these lines are, without the last. Raises ValueError for lines that are none."""
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
    """A key as text; as bytes where it is not UTF-8."""
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return key
