"""The vector files, loaded for tests, and each vector's input turned into arguments."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import kpl_codec as kpl

REPOSITORY = Path(__file__).parents[2]
VECTORS = REPOSITORY / "spec" / "vectors"

Vector = dict[str, Any]


class Written(NamedTuple):
    """What an encoder in the wild made of one case. ``outer_hash_keys``: the explicit hash key of each
    Kinesis record, None for none."""

    encoder: str
    case: str
    inputs: list[kpl.UserRecord]
    outputs: list[kpl.KinesisRecord]
    outer_hash_keys: list[str | None]


@cache
def wild() -> dict[str, list[Written]]:
    """The cases of `wild-encoders.jsonl`, by encoder."""
    found = defaultdict(list)
    for line in (VECTORS / "wild-encoders.jsonl").read_text().splitlines():
        fields = json.loads(line)
        inputs = [kpl.UserRecord(key, base64.b64decode(data), *more) for key, data, *more in fields["inputs"]]
        outputs = [
            kpl.KinesisRecord(key, base64.b64decode(frame), "1") for key, frame, *_ in fields["outputs"]
        ]
        hash_keys = [(more or [None])[0] for _, _, *more in fields["outputs"]]
        found[fields["encoder"]].append(
            Written(fields["encoder"], fields["case"], inputs, outputs, hash_keys)
        )
    return dict(found)


def files() -> list[Path]:
    return sorted(path for path in VECTORS.glob("*.json") if path.name != "schema.json")


@cache
def load() -> tuple[Vector, ...]:
    return tuple(vector for path in files() for vector in json.loads(path.read_text())["vectors"])


def frames() -> list[bytes]:
    """The data that the vectors open, in bytes."""
    data = (vector["input"].get("data") for vector in load())
    return [bytes.fromhex(text) for text in data if isinstance(text, str)]


def of_kind(kind: str) -> list[Vector]:
    return [vector for vector in load() if vector["kind"] == kind]


def user_record(fields: dict[str, Any]) -> kpl.UserRecord:
    return kpl.UserRecord(
        fields["partition_key"],
        bytes.fromhex(fields["data"]),
        fields.get("explicit_hash_key"),
        tuple(kpl.Tag(tag["key"], tag.get("value")) for tag in fields.get("tags", ())),
    )


def hash_key_range(ends: list[str] | None) -> kpl.HashKeyRange | None:
    return None if ends is None else kpl.HashKeyRange(int(ends[0]), int(ends[1]))


def facts(error: kpl.KplError, expected: dict[str, Any]) -> dict[str, Any]:
    """The facts of ``error`` that ``expected`` speaks of, as JSON would have them."""
    values = {"code": error.code, "requirement": error.requirement, **error.fields}
    found = {name: values.get(name) for name in expected}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
