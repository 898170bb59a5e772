"""Whatever users may call says what it does, and names what it raises itself."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

PUBLIC = ("", ".adapters", ".aws", ".aws_lambda", ".findings", ".producer", ".watch")


def functions(thing: Any) -> Iterator[Any]:
    """``thing`` if it is a function, or its public methods and properties if it is a class of ours."""
    if inspect.isfunction(thing):
        yield thing
    elif inspect.isclass(thing) and thing.__module__.startswith("kpl_codec."):
        for name, member in vars(thing).items():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if inspect.isfunction(function) and not name.startswith("_"):
                yield function


def raised(function: Any) -> set[str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    return {
        call.func.id
        for call in calls
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id[0].isupper()
    }


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names_say_what_they_do(package: str) -> None:
    module = import_module(f"kpl_codec{package}")
    own = [
        name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__
    ]
    for name in getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
        thing = getattr(module, name)
        if inspect.isclass(thing):
            assert inspect.getdoc(thing), name
        for function in functions(thing):
            where = f"{name}: {function.__qualname__}"
            inherited = inspect.getdoc(getattr(thing, function.__name__, function))
            assert inherited, where
            said = inherited + (inspect.getdoc(thing) or "")
            assert all(error in said for error in raised(function)), where
