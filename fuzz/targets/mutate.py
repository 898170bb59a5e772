"""Changes a JSON document as a hostile or careless sender would."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

_NUMBERS = (0, -1, 1, 2**31, 2**63, 2**128, 2**128 - 1, -(2**200), 1.5, 1e308, float("nan"), float("inf"))
_TEXTS = (
    "", "a", "0", "-1", "007", "1e3", str(2**128), "9" * 400, "\ud800", "\u0000", "é", "٣", "x" * 300, "true",
    "shardId-000000000000", "shardId-000000000001", "2026-01-01T00:00:00Z", "AAAA", "====",
)  # fmt: skip
_OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [{}], {"": None})


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) under ``value``."""
    pending = [value]
    while pending:
        value = pending.pop()
        items: Any = ()
        if isinstance(value, dict):
            items = value.items()
        elif isinstance(value, list):
            items = enumerate(value)
        for key, item in items:
            found.append((value, key))
            pending.append(item)
    return found


def _hostile(chance: random.Random) -> Any:
    return deepcopy(chance.choice(chance.choice((_NUMBERS, _TEXTS, _OTHERS))))


def changed(document: bytes, seed: int) -> bytes | None:
    """``document`` with one to four members changed, moved, taken away or doubled; None if it is no JSON."""
    try:
        root = [json.loads(document)]
    except (ValueError, RecursionError):
        return None
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        places = _places(root, [])
        container, key = chance.choice(places)
        if container is root:
            root[0] = _other(chance, root[0], places)
        elif chance.randrange(5) == 0:
            del container[key]
        elif chance.randrange(5) == 0 and isinstance(container, list) and len(container) < 100:
            container.insert(key, deepcopy(container[key]))
        elif chance.randrange(5) == 0 and isinstance(container, dict):
            container[str(_hostile(chance))] = container.pop(key)
        else:
            container[key] = _other(chance, container[key], places)
    return json.dumps(root[0]).encode()


def _other(chance: random.Random, value: Any, places: list[tuple[Any, Any]]) -> Any:
    """What may stand in the place of ``value``."""
    kind = chance.randrange(4)
    if kind == 0:
        container, key = chance.choice(places)
        return deepcopy(container[key])
    if kind == 1 and isinstance(value, str):
        at = chance.randrange(len(value) + 1)
        return value[:at] + chance.choice(_TEXTS) + value[at + chance.randrange(3) :]
    if kind == 1 and isinstance(value, int | float):
        return value + chance.choice((1, -1, 2**32))
    return [value] if kind == 2 and chance.randrange(2) else _hostile(chance)
