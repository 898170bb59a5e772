"""The public surface: what it gives has a public type, and options are given by name."""

from __future__ import annotations

import ast
import builtins
import inspect
import pydoc
import re
import sys
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import kpl_codec
from kpl_codec.base.values import Value

from .every import every

ROOT = Path(__file__).parents[1]

#: What is promised (spec/guides/versions.md): the ``__all__`` of these modules, or what they define.
PUBLIC = (
    "", ".adapters", ".arrow", ".audit", ".aws", ".aws.aio", ".aws_lambda", ".aws_lambda.aio",
    ".aws_lambda.parser", ".aws_lambda.powertools", ".kcl", ".producer",
    ".schema_registry", ".spark", ".validate", ".testing.faults", ".testing.local_kinesis",
    ".testing.strategies",
)  # fmt: skip
#: Functions that take more by position: a put takes what a record is made of.
PUTS = {"Producer.put", "Producer.check", "AsyncProducer.put", "AsyncProducer.check"}
#: What a public object holds for the library's own use. (Users read `Validation.summary`.)
OWN_USE = {"Report", "Location"}


def names_of(package: str) -> dict[str, Any]:
    """The public names of a module."""
    module = import_module(f"kpl_codec{package}")
    named = getattr(module, "__all__", None) or [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__
    ]
    return {name: getattr(module, name) for name in named}


def test_versions_md_lists_where_to_import_from() -> None:
    page = (ROOT / "spec/guides/versions.md").read_text()
    table = page.partition("\n## Where to import from\n")[2].partition("\n## ")[0]
    listed = [
        path for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for path in row.split("`")[1::2]
    ]
    # A package of the same names as another library's: its names are not ours to choose.
    assert sorted(listed) == sorted(f"kpl_codec{path}" for path in (*PUBLIC, ".compat.aws_kinesis_agg"))


@every("package", PUBLIC)
def test_dir_shows_what_is_public(package: str) -> None:
    module = import_module(f"kpl_codec{package}")
    assert {name for name in dir(module) if not name.startswith("_")} == {*module.__all__} - {"__version__"}


#: Public objects by module and name.
OBJECTS = {f"kpl_codec{p}:{name}": thing for p in PUBLIC for name, thing in names_of(p).items()}


@every("name", [name for name, thing in OBJECTS.items() if inspect.isclass(thing)])
def test_help_says_what_each_field_of_a_tuple_is(name: str) -> None:
    """What NamedTuple writes by itself says nothing."""
    text = pydoc.render_doc(OBJECTS[name], renderer=pydoc.plaintext)
    assert not re.search("Alias for field number|Create new instance of", text)


def test_all_public_records_have_one_shape() -> None:
    """All are values, which do the same under the same names, but the tuples that versions.md lists."""
    page = (ROOT / "spec/guides/versions.md").read_text()
    table = page.partition("named tuples instead")[2].partition("\n## ")[0]
    classes = {thing.__name__: thing for thing in OBJECTS.values() if inspect.isclass(thing)}
    assert {name for name, thing in classes.items() if issubclass(thing, tuple)} == {
        *re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    }
    shapes: dict[frozenset[str], list[str]] = {}
    for name, thing in classes.items():
        if issubclass(thing, Value):
            shapes.setdefault(frozenset(n for n in dir(thing) if n[:2] == "__"), []).append(name)
    assert len(shapes) == 1, [(sorted(s - frozenset.intersection(*shapes)), n) for s, n in shapes.items()]


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
                return getattr(
                    import_module("." * node.level + (node.module or ""), package), name, Elsewhere
                )
        return Elsewhere


def meanings(thing: Any) -> dict[str, Any]:
    """What the annotations of one of our classes or functions mean."""
    if not thing.__module__.startswith("kpl_codec."):
        return {}
    names = Names(thing.__module__)
    texts = {
        name: getattr(given, "__forward_arg__", given)  # of a NamedTuple
        for name, given in inspect.get_annotations(thing).items()
    }
    return {name: eval(text, {}, names) if isinstance(text, str) else text for name, text in texts.items()}


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
        hints = [meanings(function).get("return") for function in functions(thing)]
        for base in thing.__mro__ if inspect.isclass(thing) else ():
            hints += [hint for attribute, hint in meanings(base).items() if not attribute.startswith("_")]
        for given in {given for hint in hints for given in types_in(hint)}:
            if given not in exported and given.__name__ not in OWN_USE:
                offenders.append(f"{name} gives {given.__module__}.{given.__name__}")
    assert not offenders, "\n".join(offenders)


def test_what_readme_and_guides_import_is_public() -> None:
    line = re.compile(r"^ *from kpl_codec([\w.]*) import ([^(\n#]+)", re.MULTILINE)
    pages = [ROOT / "README.md", *(ROOT / "spec/guides").glob("*.md")]
    pages += (ROOT / "kpl_codec").rglob("templates/*.yaml")
    imports = [
        (module, name)
        for page in pages
        for module, names in line.findall(page.read_text())
        for name in (part.split()[0] for part in names.split(","))
        if not module.startswith(".compat.")  # promises what aws_kinesis_agg has
    ]
    assert len(imports) > 20
    for module, name in imports:
        assert f"kpl_codec{module}:{name}" in OBJECTS or f"{module}.{name}" in PUBLIC, (module, name)


def test_words_are_literals() -> None:
    files = (ROOT / "kpl_codec").rglob("*.py")
    assert [path for path in files if re.search(r"^ *(from|import) enum\b", path.read_text(), re.M)] == []


def test_every_error_can_be_imported_from_the_top() -> None:
    found = {name for name, thing in names_of(".errors").items() if isinstance(thing, type)}
    missing = found - {*kpl_codec.__all__, "OwnText"}
    assert not missing, "__all__ of kpl_codec/__init__.py has every error"


#: What only a test, or only this library, sets: by a name with an underscore, or by a function of no public
#: module.
INNER = {"clock", "sleep", "now", "chance", "streams", "read_ahead", "dictionaries"}


def parameters_of(function: Any) -> Iterator[str]:
    """The names that may be given, those of a TypedDict for ``**options``, too."""
    for parameter in inspect.signature(function).parameters.values():
        if more := re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation)):
            yield from Names(function.__module__)[more[1]].__annotations__  # with those of its bases
        else:
            yield parameter.name


def test_no_public_signature_has_a_tool_of_tests() -> None:
    offenders = []
    for name, thing in OBJECTS.items():
        for function in functions(thing):
            offenders += [
                f"{name}: {function.__qualname__}: {parameter}"
                for parameter in parameters_of(function)
                if parameter in INNER or parameter.startswith("_")
            ]
    assert not offenders, "\n".join(offenders)


#: Made for each record, where names take time; or only by this library. Client and stream come first in
#: each reader, and what to read is a list.
BY_POSITION = {
    "AggregatedRecord",
    "Attempt",
    "CallResult",
    "DeaggregatedRecord",
    "DefectiveFrame",
    "Delivery",
    "Drop",
    "Explanation",
    "ExplanationNode",
    "FaultRule",
    "Finding",
    "KclOutcome",
    "KinesisRecord",
    "OpenedBefore",
    "Placement",
    "Poison",
    "Put",
    "UserRecord",
    "Validation",
    "Writer",
    "fetch_records",
}


def test_what_has_no_order_is_given_by_name() -> None:
    """At most two arguments by position, of functions and of constructors: one with a default, no switch."""
    more: dict[str, list[str]] = {}
    offenders = []
    for thing in OBJECTS.values():
        called = [one for one in functions(thing) if one.__module__.startswith("kpl_codec.")]
        is_made = inspect.isclass(thing) and not issubclass(thing, BaseException)
        if is_made and not typing.is_typeddict(thing):
            called.append(thing)
        for function in called:
            taken = [
                one
                for one in inspect.signature(function).parameters.values()
                if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
                and one.name not in ("self", "cls")
            ]
            name = function.__qualname__.removesuffix(".__init__")
            options = [one for one in taken if one.default is not one.empty]
            switches = [one.name for one in options if isinstance(one.default, bool)]
            if len(taken) > 2:
                more[name] = [one.name for one in taken]
            is_own = inspect.isfunction(function) and not is_dataclass(thing) and name not in PUTS
            if is_own and (len(options) > 1 or switches):
                offenders.append(f"{name}: {[option.name for option in options]}")
    assert more.keys() == BY_POSITION | PUTS, more
    assert not offenders, "\n".join(offenders)


def test_asyncio_has_the_arguments_of_the_plain_functions() -> None:
    plain = names_of(".aws")
    for name, function in names_of(".aws.aio").items():
        both = [dict(inspect.signature(one).parameters) for one in (function, plain[name])]
        assert both[0] == both[1], name
