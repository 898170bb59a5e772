"""Errors are facts: declared fields, nothing else, through pickle too."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any, get_type_hints

import pytest

import kpl_codec
from kpl_codec import errors

from .every import every
from .examples import load_modules


def _classes() -> list[type[errors.KplError]]:
    load_modules()

    def below(cls: type[errors.KplError]) -> Iterator[type[errors.KplError]]:
        for sub in cls.__subclasses__():
            if sub.__module__.startswith("kpl_codec."):
                yield sub
                yield from below(sub)

    return sorted(set(below(errors.KplError)), key=lambda cls: cls.__qualname__)


CLASSES = _classes()


def _example(cls: type[errors.KplError], number: int = 0) -> dict[str, Any]:
    """A value for every required field: another for each number."""
    values = {str: "xy"[number], int: 7 + number, tuple[str, ...]: ("a", "b")[number:]}
    hints = get_type_hints(cls, None, {"Any": Any}) if cls.__module__ == errors.__name__ else {}
    return {name: values.get(hints.get(name), "xy"[number]) for name in sorted(cls._required)}


@every("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_says_pickles_compares_and_refuses_other_fields(cls: type[errors.KplError]) -> None:
    fields = _example(cls)
    error = cls(**fields)
    assert {pickle.loads(pickle.dumps(error)), error} == {error}
    for name, value in _example(cls, 1).items():
        assert cls(**{**fields, name: value}) != error
    assert error != errors.KplError()
    told = f"{error.describe()} [{error.requirement}]" if error.requirement else error.describe()
    assert str(error) == told
    assert told
    assert "None" not in told
    assert repr(error) == f"{cls.__name__}({', '.join(f'{n}={v!r}' for n, v in error.fields.items())})"
    for name, value in fields.items():
        assert getattr(error, name) == value
    for text in (cls.text, *cls.texts.values()):
        named = {name for _, name, _, _ in Formatter().parse(text) if name}
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
        "index 5 is outside partition_key_table, whose length is 2 (at byte 9, user record 1, "
        "sequence number 7, shardId-000000000000) [MSG-7]"
    )
    assert error.sequence_number is None
    full = errors.AggregateFull(field="data", size=5, max_size=4).at(record_index=3)
    assert (type(full), full.record_index, full.max_size) == (errors.AggregateFull, 3, 4)


PLACED = [cls for cls in CLASSES if issubclass(cls, errors.DecodeError | errors.EncodeError)]


@every("cls", PLACED, ids=lambda cls: cls.__name__)
def test_every_part_of_the_place_can_stand_alone(cls: type[errors.KplError]) -> None:
    places = {
        "offset": (9, "at byte 9"), "record_index": (1, "at user record 1"),
        "sequence_number": ("7", "at sequence number 7"), "shard_id": ("s", "at s"),
    }  # fmt: skip
    plain = cls(**_example(cls))
    for name, (value, told) in places.items():
        if name in cls._names - cls._required:
            there = cls(**_example(cls), **{name: value})
            assert str(there) == str(plain).replace(plain.describe(), f"{plain.describe()} ({told})")


def test_a_text_says_where_it_is_from() -> None:
    refused = errors.ShardMapError(code="empty", reason="r", shard_ids=())
    sourced = errors.ShardMapError(code="empty", reason="r", shard_ids=(), source="file")
    assert sourced.describe() == f"file: {refused.describe()}"
    assert refused.describe().startswith("invalid listing of shards (")
    disguised = errors.NotAggregated(offset=0, length=3, disguise="base64")
    assert str(disguised).startswith("an aggregated record encoded as base64: ")


#: Folders whose texts reach programs that use the library; those of the other features reach commands.
_LIBRARY = {
    "adapters", "arrow", "aws", "aws_lambda", "captures", "compat", "deaggregation", "format", "kcl",
    "ledger", "producer", "shards", "spark",
}  # fmt: skip
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def test_no_text_of_the_library_advises_a_command_s_option() -> None:
    """A program that reads "give --profile" has nothing to give it to. A whole command may be named. Modules
    of commands have "command" in their names."""
    package = Path(kpl_codec.__file__).parent
    library = [file for name in _LIBRARY for file in (package / name).rglob("*.py")]
    for path in [*package.glob("*.py"), *(file for file in library if "command" not in file.stem)]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {
            ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, _DOCUMENTED)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and node.value not in docstrings
            ):
                text = re.sub("#!/bin/sh.*", "", node.value, flags=re.DOTALL)
                named = re.search(r"kpl-codec|aws kinesis|of a command", text)
                assert named or not re.search(r"(^|\W)--[a-z]", text), (path, text)
