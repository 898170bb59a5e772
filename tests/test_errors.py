"""Errors are facts: declared fields, nothing else, through pickle too."""

from __future__ import annotations

import pickle
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from string import Formatter
from typing import Any, get_type_hints

import pytest

import kpl_codec
from kpl_codec import errors

#: Modules that start something when they are imported, need a package of another extra, or are switched off.
_NOT_IMPORTED = (
    "kpl_codec.spark.job", "kpl_codec.conformance.program_", "kpl_codec.__main__", "kpl_codec._speedups",
)  # fmt: skip


def _classes() -> list[type[errors.KplError]]:
    for found in pkgutil.walk_packages(kpl_codec.__path__, "kpl_codec."):
        if not found.name.startswith(_NOT_IMPORTED) and not found.name.endswith("__main__"):
            import_module(found.name)

    def below(cls: type[errors.KplError]) -> Iterator[type[errors.KplError]]:
        for sub in cls.__subclasses__():
            if sub.__module__.startswith("kpl_codec."):
                yield sub
                yield from below(sub)

    return sorted(set(below(errors.KplError)), key=lambda cls: cls.__qualname__)


CLASSES = _classes()


def _example(cls: type[errors.KplError]) -> dict[str, Any]:
    """A value for every required field."""
    values = {str: "x", int: 7, tuple[str, ...]: ("a", "b")}
    hints = get_type_hints(cls, None, {"Any": Any}) if cls.__module__ == errors.__name__ else {}
    return {name: values.get(hints.get(name), "x") for name in sorted(cls._required)}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_says_pickles_and_refuses_other_fields(cls: type[errors.KplError]) -> None:
    fields = _example(cls)
    error = cls(**fields)
    assert pickle.loads(pickle.dumps(error)) == error
    assert str(error)
    assert repr(error).startswith(cls.__name__)
    for name, value in fields.items():
        assert getattr(error, name) == value
    named = {name for _, name, _, _ in Formatter().parse(cls.text) if name}
    assert named <= cls._names | {"code"}, "the text names what is no field"
    with pytest.raises(TypeError, match="nonsense"):
        cls(**fields, nonsense=1)
    for name in fields:
        with pytest.raises(TypeError, match=name):
            cls(**{other: value for other, value in fields.items() if other != name})
    with pytest.raises(TypeError):
        cls("positional")  # type: ignore[call-arg]


def test_the_place_is_added_and_the_type_stays() -> None:
    error = errors.IndexOutOfTable(index=5, table="partition_key_table", size=2, offset=9, record_index=1)
    there = error.at(sequence_number="7", shard_id="shardId-000000000000")
    assert (there.table, there.size, there.sequence_number) == ("partition_key_table", 2, "7")
    assert str(there) == (
        "index 5 into partition_key_table, which has 2 entries (at byte 9, user record 1, sequence number 7, "
        "shardId-000000000000) [MSG-7]"
    )
    assert error.sequence_number is None
    full = errors.AggregateFull(field="data", size=5, max_size=4).in_group(3)
    assert (type(full), full.group_index, full.max_size) == (errors.AggregateFull, 3, 4)
