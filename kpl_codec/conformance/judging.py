"""Makes the question for a program from a vector, and grades its answer.

    grade        what the program did                              is a record lost or wrong?
    -----------  ------------------------------------------------  --------------------------
    pass         what the vector says
    refused      an error for what is valid                        no: the caller is told
    unopened     delivered a frame as a plain record               no: the bytes are all there
    accepted     user records out of what is invalid               may be: nobody is told
    lost         fewer user records, and no error                  yes
    other-bytes  encoded the same user records as other bytes      no: every decoder reads them
    wrong        other user records or another result              yes
    failed       crash, hang, or an invalid answer                 yes

For an acceptable vector an error and the named result are both a pass. The result of a vector with an
error is any error: codes are specific to this library.
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

#: Kind of vector -> the members of its result a program has to give.
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


def check_vector(vector: Any) -> None:
    """Raises ValueError for a vector that cannot be asked or judged."""
    if not isinstance(vector, Mapping) or not isinstance(vector.get("id"), str):
        raise ValueError("a vector without an id")
    wrong = [name for name, right in _rules(vector).items() if not right]
    if wrong:
        raise ValueError(f"{vector['id']}: {', '.join(wrong)}")


def _rules(vector: Mapping[str, Any]) -> dict[str, bool]:
    """The members of a vector that are needed, and whether they are as they must be."""
    kind, asked, error = vector.get("kind"), vector.get("input"), vector.get("error")
    found = {
        "kind": kind == "decode" or (isinstance(kind, str) and kind in _RESULTS),
        "result": isinstance(vector.get("result"), str),
        "input": isinstance(asked, Mapping),
        "error": "error" not in vector or (isinstance(error, Mapping) and "code" in error),
    }
    if kind == "decode":
        records = vector.get("user_records")
        found["user_records"] = isinstance(records, list | None)
        found["plain"] = records is not None or bool(vector.get("plain")) or "error" in vector
    elif "error" not in vector:
        found |= {name: name in vector for name in _RESULTS.get(str(kind), ())}
    if kind == "encode" and isinstance(asked, Mapping):
        given = asked.get("user_records", [])
        found["user_records"] = isinstance(given, list) and all(
            isinstance(record, Mapping) and "data" in record for record in given
        )
    if kind == "hash-key-range":
        found |= {name: isinstance(vector.get(name, []), list) for name in ("inside", "outside")}
    if kind == "shard-map":
        found["lookups"] = isinstance(vector.get("lookups", {}), Mapping)
    return found


def question(vector: Mapping[str, Any]) -> dict[str, Any]:
    """What a program is asked about ``vector``."""
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

    def grade(name: str, detail: str = "") -> Judgement:
        return Judgement(vector["id"], vector["kind"], name, detail)

    if "failure" in answer:
        return grade("failed", f"{answer['failure']}: {str(answer.get('detail', ''))[-200:]}")
    # CNF-3: "For a vector whose result is acceptable the named result and an error MUST both be taken
    # for right."
    acceptable = vector["result"] == "acceptable"
    if vector["kind"] == "decode":
        return _judge_decode(vector, answer, acceptable, fields, grade)
    if "error" in answer:
        # Rows that were given before the error are part of the result.
        rows_right = answer.get("rows", vector.get("rows")) == vector.get("rows")
        if ("error" in vector and rows_right) or acceptable:
            return grade("pass")
        return grade("wrong" if "error" in vector else "refused", str(answer["error"])[:200])
    if "error" in vector:
        return grade("pass" if acceptable else "accepted", _expected_error(vector))
    given = vector["input"].get("user_records", [])
    if vector["kind"] == "encode" and len(given) == 1 and answer.get("data") == given[0]["data"]:
        return grade("pass", "a lone user record is sent bare, as the KPL does")
    found = answer.get("data")
    if vector["kind"] == "encode" and found != vector["data"] and _holds(found, given):
        return grade("other-bytes", "decode gives the same user records")
    for name in _RESULTS[vector["kind"]]:
        if answer.get(name) != vector[name]:
            return grade("wrong", f"{name} differs")
    return grade("pass")


def _judge_decode(
    vector: Mapping[str, Any], answer: Mapping[str, Any], acceptable: bool, fields: Sequence[str], grade: Any
) -> Judgement:
    result: Judgement
    expected = vector.get("user_records")
    if answer.get("plain"):
        result = grade("pass" if vector.get("plain") else "unopened")
    elif "error" in answer:
        right = "error" in vector or acceptable
        result = grade("pass" if right else "refused", str(answer["error"])[:200])
    elif not isinstance(answer.get("user_records"), list):
        result = grade("failed", "nonsense: neither user_records nor plain nor error")
    elif expected is not None:
        # CNF-5: "A program that names its fields in its hello MUST be graded by these fields alone."
        found, wanted = _only(fields, answer["user_records"]), _only(fields, expected)
        if found == wanted:
            result = grade(
                "pass", "" if answer["user_records"] == expected else "not all parts are delivered"
            )
        elif len(found) < len(wanted):
            of = f"{len(found)} of {len(wanted)} user records"
            result = grade("lost", of + differences(found, wanted))
        else:
            result = grade("wrong", "other user records" + differences(found, wanted))
    elif vector.get("plain"):
        result = grade("lost", f"a plain record became {len(answer['user_records'])} user records")
    elif not answer["user_records"]:
        result = grade("lost", f"nothing delivered, expected {vector['error']['code']}")
    elif acceptable:
        result = grade("pass", "accepted")
    else:
        result = grade("accepted", _expected_error(vector))
    return result


def _expected_error(vector: Mapping[str, Any]) -> str:
    why = ", ".join(vector.get("requirements", ()))  # published vectors have them all
    return f"expected {vector['error']['code']}{f' [{why}]' if why else ''}"


def _holds(data: Any, user_records: list[Any]) -> bool:
    """Whether ``data`` is an aggregated record of these user records."""
    try:
        found = [
            user_record(r.partition_key, r.data, r.explicit_hash_key, r.tags)
            for r in decode(bytes.fromhex(data))
        ]
    except (ValueError, TypeError):  # no hex, or a DecodeError
        return False
    return found == user_records


def differences(found: list[Any], expected: list[Any]) -> str:
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
