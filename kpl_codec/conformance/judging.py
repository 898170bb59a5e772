"""Makes the question for a program from a vector, and grades its answer, as section 9.3 of
spec/09-conformance.md says. The result of a vector with an error is any error: codes are specific to this
library.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..format.codec import decode
from .serving import FIELDS, user_record

GRADES = ("pass", "refused", "unopened", "accepted", "lost", "other-bytes", "wrong", "failed")

#: Grades of which a user record is lost, or delivered wrong.
LOSSES = frozenset({"lost", "wrong", "failed"})

#: The members of its result that a program has to give, by kind of vector.
_RESULTS = {
    "encode": ("data",),
    "hash-key": ("hash_key",),
    "hash-key-text": ("hash_key",),
    "hash-key-range": ("inside",),
    "shard-map": ("open_shards", "lookups", "unknown_parents"),
    "placement": ("verdict", "expected_shard_id", "in_range"),
    "deaggregate": ("rows",),
    "schema-frame": ("schema_version_id", "payload"),
}


class Judgement(NamedTuple):
    """``grade`` is one of GRADES; ``detail`` says what was seen, without record data."""

    vector_id: str
    kind: str
    grade: str
    detail: str = ""


def question(vector: Mapping[str, Any]) -> dict[str, Any]:
    asked = {"op": vector["kind"], "id": vector["id"], **vector["input"]}
    if vector["kind"] == "shard-map":
        asked["probes"] = list(vector.get("lookups", {}))
    elif vector["kind"] == "hash-key-range":
        asked["probes"] = [*vector.get("inside", []), *vector.get("outside", [])]
    elif vector["kind"] == "decode":
        asked.pop("hash_key_range", None)  # of interest to the KCL only
    return asked


def judge(vector: Mapping[str, Any], answer: Mapping[str, Any], fields: Sequence[str] = FIELDS) -> Judgement:
    """The grade of ``answer`` to `question` of ``vector``. ``fields``: those of `FIELDS` that it gives."""
    return Judgement(vector["id"], vector["kind"], *_graded(vector, answer, fields))


def _graded(vector: Mapping[str, Any], answer: Mapping[str, Any], fields: Sequence[str]) -> tuple[str, str]:
    kind, invalid = vector["kind"], "error" in vector
    # CNF-3: "For a vector whose result is acceptable the named result and an error MUST both be taken
    # for right."
    acceptable = vector["result"] == "acceptable"
    if "failure" in answer:
        return "failed", f"{answer['failure']}: {str(answer.get('detail', ''))[-200:]}"
    if "error" in answer:
        # Rows that were given before the error are part of the result.
        right = acceptable or (invalid and answer.get("rows", vector.get("rows")) == vector.get("rows"))
        return "pass" if right else "wrong" if invalid else "refused", str(answer["error"])[:200]
    if kind == "decode":
        return _decoded(vector, answer, acceptable, fields)
    if invalid:
        return "pass" if acceptable else "accepted", _expected_error(vector)
    if kind == "encode":
        found, given = answer.get("data"), vector["input"]["user_records"]
        if len(given) == 1 and found == given[0]["data"]:
            return "pass", "a lone user record is sent bare, as the KPL does"
        if found != vector["data"] and _holds(found, given):
            return "other-bytes", "decode gives the same user records"
    wrong = [name for name in _RESULTS[kind] if answer.get(name) != vector[name]]
    return ("wrong", f"{wrong[0]} differs") if wrong else ("pass", "")


def _decoded(
    vector: Mapping[str, Any], answer: Mapping[str, Any], acceptable: bool, fields: Sequence[str]
) -> tuple[str, str]:
    found, expected = answer.get("user_records"), vector.get("user_records")
    if answer.get("plain"):
        return "pass" if vector.get("plain") else "unopened", ""
    if not isinstance(found, list):
        return "failed", "nonsense: neither user_records nor plain nor error"
    if vector.get("plain"):
        return "lost", f"a plain record became {len(found)} user records"
    if expected is None and not found:
        return "lost", f"nothing delivered, expected {vector['error']['code']}"
    if expected is None:
        return ("pass", "accepted") if acceptable else ("accepted", _expected_error(vector))
    # CNF-5: "A program that names its fields in its hello MUST be graded by these fields alone."
    given, wanted = _only(fields, found), _only(fields, expected)
    if given == wanted:
        return "pass", "" if found == expected else "not all parts are delivered"
    if len(given) < len(wanted):
        return "lost", f"{len(given)} of {len(wanted)} user records{_differences(given, wanted)}"
    return "wrong", f"other user records{_differences(given, wanted)}"


def _expected_error(vector: Mapping[str, Any]) -> str:
    why = ", ".join(vector.get("requirements", ()))  # published vectors have them all
    return f"expected {vector['error']['code']}{f' [{why}]' if why else ''}"


def _holds(data: Any, user_records: list[Any]) -> bool:
    try:
        found = [
            user_record(r.partition_key, r.data, r.explicit_hash_key, r.tags)
            for r in decode(bytes.fromhex(data))
        ]
    except (ValueError, TypeError):  # no hex, or a DecodeError
        return False
    return found == user_records


def _differences(found: list[Any], expected: list[Any]) -> str:
    """Which parts of user records differ, and of how many: "; partition_key of 2, data of 1"."""
    wrong = Counter(
        name
        for one, other in zip(found, expected, strict=False)
        for name in FIELDS
        if not isinstance(one, Mapping) or one.get(name) != other.get(name)
    )
    said = ", ".join(f"{name} of {count}" for name, count in wrong.items())
    return f"; {said} differs" if said else ""


def _only(fields: Sequence[str], records: list[Any]) -> list[Any]:
    """The user records with these fields, as text or as bytes; no tags."""
    return [
        {name: value for name, value in record.items() if name.removesuffix("_bytes") in fields}
        if isinstance(record, dict)
        else record
        for record in records
    ]
