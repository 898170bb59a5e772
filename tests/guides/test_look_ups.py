"""A look-up that finds nothing. Law: a program of a page compares its None, or raises. It never hands it on,
as None means "by default" to whoever takes it: a query began from the oldest record again."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from .test_answers_per_item import programs

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _may_be_none(call: ast.Call) -> bool:
    match call:
        case ast.Call(func=ast.Attribute(attr="get" | "getenv"), args=[_], keywords=[]):
            return True
        case ast.Call(func=ast.Attribute(attr="match" | "search" | "fullmatch")):
            return True
        case (
            ast.Call(func=ast.Name(id="next"), args=[_, _])
            | ast.Call(func=ast.Name(id="getattr"), args=[_, _, ast.Constant(value=None)])
        ):
            return True
    return False


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below, without those of other functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _FUNCTION):
            yield child
            yield from _within(child)


def _ends(body: list[ast.stmt]) -> bool:
    """Whether a block always ends in a return or an error."""
    match body[-1]:
        case ast.Return() | ast.Raise():
            return True
        case ast.With(body=inner) | ast.AsyncWith(body=inner):
            return _ends(inner)
        case ast.If(body=inner, orelse=[_, *_] as other):
            return _ends(inner) and _ends(other)
        case ast.Try(body=inner, handlers=handlers):
            return all(map(_ends, [inner, *(handler.body for handler in handlers)]))
        case ast.While(test=ast.Constant(value=True)):
            return True
    return False


def handed_on(text: str) -> Iterator[str]:
    tree = ast.parse(text)
    for parent in ast.walk(tree):
        compares = isinstance(parent, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.If, ast.NamedExpr))
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, ast.Call) and _may_be_none(child) and not compares:
                yield ast.unparse(child)
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            returns = [node for node in _within(parent) if isinstance(node, ast.Return) and node.value]
            if returns and not _ends(parent.body):
                yield f"{parent.name} may end without a value"


def test_a_program_hands_on_no_none_of_a_look_up() -> None:
    pages = ((name, texts) for name, texts in programs() if ":" in name)
    found = {name: [one for text in texts for one in handed_on(text)] for name, texts in pages}
    assert len(found) > 50
    assert not {name: calls for name, calls in found.items() if calls}


@pytest.mark.parametrize(
    "text",
    [
        "query.options(startingPosition=positions.get('orders'))",
        "start = os.environ.get('START')",
        "f(next((p for p in places), None))",
        "def last_offset(lines):\n    for line in lines:\n        if line:\n            return line",
    ],
)
def test_one_that_does_is_found(text: str) -> None:
    assert [*handed_on(text)]
