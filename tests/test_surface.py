"""The public surface: what it gives has a public type, and options are given by name."""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any

#: Packages whose ``__all__`` is public, and modules that are imported by their own name.
PUBLIC = (
    "", ".adapters", ".adapters.json_stream", ".arrow", ".aws", ".aws_lambda", ".aws_lambda.aio", ".captures",
    ".aws.only", ".aws.queues", ".aws_lambda.aio_queues", ".aws_lambda.firehose", ".aws_lambda.queues",
    ".deaggregation", ".deaggregation.kcl", ".producer", ".shards",
    ".shards.live_shard_map", ".spark", ".testing.faults", ".testing.local_kinesis", ".testing.strategies",
    ".findings", ".report.model", ".validation",
)  # fmt: skip
#: Functions that take more by position: a put takes what a record is made of; the others are containers.
POSITIONAL = {"Producer.put", "AsyncProducer.put", "Counts.__init__", "HashKeyAllocator.__init__"}


def public() -> dict[str, Any]:
    """Public objects by name."""
    found = {}
    for package in PUBLIC:
        module = import_module(f"kpl_codec{package}")
        named = getattr(module, "__all__", None) or [
            name
            for name, thing in vars(module).items()
            if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__
        ]
        found.update({f"kpl_codec{package}:{name}": getattr(module, name) for name in named})
    return found


OBJECTS = public()


class Elsewhere:
    """A type of another library."""

    def __class_getitem__(cls, _item: object) -> type[Elsewhere]:
        return cls


class Names(dict[str, Any]):
    """What names in annotations mean, those imported for type checkers too; others are of elsewhere."""

    def __init__(self, module: str) -> None:
        super().__init__({**vars(builtins), **vars(sys.modules[module])})
        self._module = sys.modules[module]

    def __missing__(self, name: str) -> Any:
        if name.startswith("__"):
            raise KeyError(name)
        for node in ast.walk(ast.parse(inspect.getsource(self._module))):
            if isinstance(node, ast.ImportFrom) and node.level and name in {a.name for a in node.names}:
                package = self._module.__package__
                return getattr(import_module("." * node.level + (node.module or ""), package), name)
        return Elsewhere


def functions(thing: Any) -> Iterator[Any]:
    if inspect.isfunction(thing):
        yield thing
    elif inspect.isclass(thing):
        for name, member in vars(thing).items():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            # What overrides a method of another library is for that library to call.
            others = [base for base in thing.__mro__ if not base.__module__.startswith("kpl_codec.")]
            theirs = name != "__init__" and any(name in vars(base) for base in others)
            if inspect.isfunction(function) and not theirs and (name[0] != "_" or name == "__init__"):
                yield function


def types_in(hint: Any) -> Iterator[type]:
    if inspect.isclass(hint) and hint.__module__.startswith("kpl_codec."):
        yield hint
    for inner in typing.get_args(hint):
        yield from types_in(inner)


def test_what_a_public_function_gives_is_public() -> None:
    exported = [thing for thing in OBJECTS.values() if inspect.isclass(thing)]
    offenders = []
    for name, thing in OBJECTS.items():
        hints = [
            typing.get_type_hints(function, {}, Names(function.__module__)).get("return")
            for function in functions(thing)
            if function.__module__.startswith("kpl_codec.")
        ]
        if inspect.isclass(thing) and thing.__module__.startswith("kpl_codec."):
            attributes = typing.get_type_hints(thing, {}, Names(thing.__module__))
            hints += [hint for attribute, hint in attributes.items() if not attribute.startswith("_")]
        for given in {given for hint in hints for given in types_in(hint)}:
            if given not in exported:
                offenders.append(f"{name} gives {given.__module__}.{given.__name__}")
    assert not offenders, "\n".join(offenders)


def test_options_are_given_by_name() -> None:
    """At most one parameter with a default may be given by position, and no switch."""
    offenders = []
    for name, thing in OBJECTS.items():
        for function in functions(thing):
            if not function.__module__.startswith("kpl_codec.") or is_dataclass(thing):
                continue
            options = [
                parameter
                for parameter in inspect.signature(function).parameters.values()
                if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
                and parameter.default is not parameter.empty
            ]
            switches = [option.name for option in options if isinstance(option.default, bool)]
            if function.__qualname__ not in POSITIONAL and (len(options) > 1 or switches):
                offenders.append(f"{name}: {function.__qualname__}: {[option.name for option in options]}")
    assert not offenders, "\n".join(offenders)
