"""Grades what published packages answer about the vectors (`packages` has the form of questions and answers).
Section 12.3 of spec/12-implementations.md says what the grades mean, and has the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kpl_codec import UserRecord, decode

GRADES = ("pass", "refused", "unopened", "accepted", "lost", "other-bytes", "wrong", "failed")
#: The parts of a user record that are compared. Tags are not: no published package delivers them.
FIELDS = ("partition_key", "explicit_hash_key", "data")

Answer = dict[str, Any]


def run(ask: Callable[[Answer], Answer], vectors: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """How many vectors got which grade, by operation and grade; and how many were not asked."""
    counts = Counter[tuple[str, str]]()
    for vector in vectors:
        if vector["kind"] in ("decode", "encode"):
            answer = ask({"op": vector["kind"], **vector["input"]})
            if not answer.get("unsupported"):
                counts[vector["kind"], grade(vector, answer)] += 1
                continue
        counts["", "not asked"] += 1
    return counts


def grade(vector: Mapping[str, Any], answer: Answer) -> str:
    # An acceptable result: implementations may differ, the result of the vector and an error are both right.
    invalid, acceptable = "error" in vector, vector["result"] == "acceptable"
    if "error" in answer:
        return "pass" if invalid or acceptable else "refused"
    if vector["kind"] == "decode":
        return _grade_of_decode(vector, answer, acceptable)
    if invalid:
        return "pass" if acceptable else "accepted"
    data, user_records = answer["data"], vector["input"]["user_records"]
    if data == vector["data"] or (len(user_records) == 1 and data == user_records[0]["data"]):
        return "pass"  # a single user record may be sent bare, as the KPL does
    try:
        same = [of_user_record(record) for record in decode(bytes.fromhex(data))] == user_records
    except ValueError:  # a DecodeError, too
        same = False
    return "other-bytes" if same else "wrong"


def _grade_of_decode(vector: Mapping[str, Any], answer: Answer, acceptable: bool) -> str:
    if answer.get("plain"):
        return "pass" if vector.get("plain") else "unopened"
    if not isinstance(answer.get("user_records"), list):
        return "failed"
    theirs = [*map(_compared, answer["user_records"])]
    if vector.get("plain"):
        return "lost"
    if vector.get("user_records") is None:
        return "lost" if not theirs else "pass" if acceptable else "accepted"
    ours = [*map(_compared, vector["user_records"])]
    return "pass" if theirs == ours else "lost" if len(theirs) < len(ours) else "wrong"


def _compared(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name.removesuffix("_bytes") in FIELDS}


def table(results: Mapping[str, Counter[tuple[str, str]]]) -> str:
    """Of each program (name and version) and operation how many vectors got which grade, as Markdown."""
    there = {grade for counts in results.values() for _, grade in counts}
    heads = [grade for grade in GRADES if grade in there]
    lines = ["| | " + " | ".join([*heads, "not asked"]) + " |", "|---" * (len(heads) + 2) + "|"]
    for name, counts in results.items():
        for operation in ("decode", "encode"):
            cells = [str(counts[operation, grade] or "") for grade in heads]
            # What was not asked is of no operation: it stands once.
            cells.append(str(counts["", "not asked"] or "") if operation == "decode" else "")
            lines.append(f"| {name}, {operation} | " + " | ".join(cells) + " |")
    return "\n".join(" ".join(line.split()) for line in lines)


def of_user_record(record: UserRecord) -> Answer:
    """A user record that `decode` gives, in the form of the vectors."""
    tags = [(tag.key, tag.value) for tag in record.tags]
    return user_record(record.partition_key, record.data, record.explicit_hash_key, tags)


def user_record(partition_key: Any, data: bytes, explicit_hash_key: Any = None, tags: Any = ()) -> Answer:
    """A user record in the form of the vectors. A key in bytes is one that is not UTF-8."""
    record: Answer = {"data": data.hex()}
    for name, key in (("partition_key", partition_key), ("explicit_hash_key", explicit_hash_key)):
        if isinstance(key, bytes):
            record[name], record[f"{name}_bytes"] = None, key.hex()
        elif key is not None or name == "partition_key":
            record[name] = key
    if tags:
        record["tags"] = [{"key": k} if v is None else {"key": k, "value": v} for k, v in tags]
    return record
