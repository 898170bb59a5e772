"""Laws of the programs of pages, and of the package: whoever calls AWS reads what a 200 says of single items;
whoever looks something up compares its None; a streaming query has a checkpoint."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import botocore.session
from botocore import xform_name

from .blocks import blocks

REPOSITORY = Path(__file__).parents[2]
SERVICES = ("dynamodb", "events", "firehose", "glue", "kinesis", "lambda", "s3", "sns", "sqs")
#: Members of answers that list, or count, the items that failed.
FAILED = re.compile("Errors|Failed|Failed(Record|Put|Entry)?Count|FailedEntries|Unprocessed.*")


def of_pages() -> dict[str, str]:
    """The programs of the pages, with their places."""
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "spec" / "guides").glob("*.md"))]
    every = [(path, block) for path in pages for block in blocks(path.read_text())]
    found = {f"{path.name}:{one.line}": one.text for path, one in every if one.language == "python"}
    assert len(found) > 80
    return found


# -- what a 200 says ------------------------------------------------------------------------------


def answers_per_item(methods: set[str]) -> dict[str, set[str]]:
    """By the method of boto3, of ``methods``, the members of its answer that say which items failed."""
    session, found = botocore.session.get_session(), dict[str, set[str]]()
    for service in SERVICES:
        model = session.get_service_model(service)
        for name in model.operation_names:
            method = xform_name(name)
            output = model.operation_model(name).output_shape if method in methods else None
            members = output.members if output else {}
            items = [getattr(getattr(shape, "member", None), "members", {}) for shape in members.values()]
            if failed := {
                *filter(FAILED.fullmatch, members),
                *("ErrorCode" for item in items if "ErrorCode" in item),
            }:
                found.setdefault(method, set()).update(failed)
    return found


def called(text: str) -> set[str]:
    return {*re.findall(r"\.(\w+)\(", text)}


def test_what_a_200_says_of_single_items_is_read() -> None:
    """A member that lists failures is named in the same program, or folder of the package."""
    folders = [path for path in (REPOSITORY / "kpl_codec").iterdir() if path.is_dir()]
    found = {
        path.name: "".join(one.read_text() for one in path.rglob("*.py")) for path in folders
    } | of_pages()
    found["wrong"] = "client.put_records(Records=[])"
    members = answers_per_item(set().union(*map(called, found.values())))
    assert {"put_records", "delete_objects"} <= members.keys()
    unread = {
        name: {
            method
            for method in called(text) & members.keys()
            if not any(f'"{member}"' in text for member in members[method])
        }
        for name, text in found.items()
    }
    assert {name: methods for name, methods in unread.items() if methods} == {"wrong": {"put_records"}}


# -- a look-up that finds nothing -----------------------------------------------------------------


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


def handed_on(tree: ast.Module) -> Iterator[str]:
    for parent in ast.walk(tree):
        compares = isinstance(parent, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.If, ast.NamedExpr))
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, ast.Call) and _may_be_none(child) and not compares:
                yield ast.unparse(child)


def test_a_program_hands_on_no_none_of_a_look_up(tmp_path: Path) -> None:
    """None means "by default" to whoever takes it: a query began from the oldest record again."""
    for wrong in (
        "query.options(startingPosition=positions.get('orders'))",
        "start = os.environ.get('START')",
        "f(next((p for p in places), None))",
    ):
        assert [*handed_on(ast.parse(wrong))], wrong
    texts = of_pages()
    found = {name: [*handed_on(ast.parse(text))] for name, text in texts.items()}
    assert not {name: calls for name, calls in found.items() if calls}
    # RET503: a function that returns a value may also end without one.
    texts["wrong.md:1"] = "def last(lines):\n    for line in lines:\n        return line\n"
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "RET503", "-q"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    assert re.findall(r"[\w.-]+:\d+\.py", said) == ["wrong.md:1.py"], said


def test_a_streaming_query_has_a_checkpoint() -> None:
    """Killed and started again it goes on where it was."""
    texts = of_pages()
    queries = {name for name, text in texts.items() if "writeStream" in text}
    assert queries
    assert not {name for name in queries if "checkpointLocation" not in texts[name]}
