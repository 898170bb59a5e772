"""Whatever users may call says what it does, and names what it raises itself."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import textwrap
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import kpl_codec

from .every import every
from .test_surface import OBJECTS, PUBLIC, functions

#: Names of errors that callers can catch.
CATCHABLE = {name.rpartition(":")[2] for name in OBJECTS} | set(dir(builtins))


def raised(function: Any) -> set[str]:
    """The errors that callers can name and that the function raises itself, not one that it returns."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except OSError:  # Hypothesis makes a function of each strategy
        return set()
    nodes = [*ast.iter_child_nodes(tree)]
    names = set()
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes += ast.iter_child_nodes(node)
        match node:
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name))):
                names.add(name)
    return names & CATCHABLE


def test_full_names_in_docstrings_exist() -> None:
    """A name in single backticks that begins with the package is one that can be imported."""
    for path in Path(kpl_codec.__file__).parent.rglob("*.py"):
        for name in re.findall(r"(?<!`)`(kpl_codec(?:\.\w+)+)`(?!`)", path.read_text()):
            if not name.startswith("kpl_codec._speedups"):  # it is not there in pure Python
                assert resolve_name(name), path


@every("package", [*PUBLIC, ".findings", ".watch"])
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
