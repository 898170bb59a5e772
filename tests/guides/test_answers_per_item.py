"""Calls of AWS that answer per item: a 200 may say that some items failed. Law: whoever makes such a call, in
the package or in a program of a page, reads the member of the answer that lists these."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import botocore.session
from botocore import xform_name

from .blocks import blocks

REPOSITORY = Path(__file__).parents[2]
SERVICES = ("dynamodb", "events", "firehose", "glue", "kinesis", "lambda", "s3", "sns", "sqs")
#: Members of answers that list, or count, the items that failed.
FAILED = re.compile("Errors|Failed|Failed(Record|Put|Entry)?Count|FailedEntries|Unprocessed.*")


def answers_per_item() -> dict[str, set[str]]:
    """By the method of boto3, the members of its answer that say which items failed."""
    session, found = botocore.session.get_session(), dict[str, set[str]]()
    for service in SERVICES:
        model = session.get_service_model(service)
        for operation in map(model.operation_model, model.operation_names):
            members = operation.output_shape.members if operation.output_shape else {}
            items = [getattr(getattr(shape, "member", None), "members", {}) for shape in members.values()]
            if failed := {
                *filter(FAILED.fullmatch, members),
                *("ErrorCode" for item in items if "ErrorCode" in item),
            }:
                found.setdefault(xform_name(operation.name), set()).update(failed)
    return found


def programs() -> Iterator[tuple[str, list[str]]]:
    """The folders of the package, and the programs of the pages, with their names."""
    for folder in sorted(path for path in (REPOSITORY / "kpl_codec").iterdir() if path.is_dir()):
        yield folder.name, [path.read_text() for path in sorted(folder.rglob("*.py"))]
    for path in [REPOSITORY / "README.md", *sorted((REPOSITORY / "spec" / "guides").glob("*.md"))]:
        for block in blocks(path.read_text()):
            if block.language == "python":
                yield f"{path.name}:{block.line}", [block.text]


def unread(texts: list[str], members: dict[str, set[str]]) -> Iterator[str]:
    """The calls of whose answer no member that lists failures is named in the same program."""
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    read = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            failed = members.get(node.func.attr, set())
            if failed and not failed & read:
                yield f"{node.func.attr} answers {' or '.join(sorted(failed))}"


def test_what_a_200_says_of_single_items_is_read() -> None:
    members = answers_per_item()
    assert {"put_records", "delete_objects", "send_message_batch", "batch_write_item"} <= members.keys()
    found = {name: [*unread(texts, members)] for name, texts in programs()}
    assert not {name: calls for name, calls in found.items() if calls}
