"""Stands for the AWS CLI in guides: the same commands and parameters, read with botocore's models.

Kinesis is really called, at the local server; a call to any other service is only checked.
"""

from __future__ import annotations

import base64
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import botocore.session
import jmespath
from botocore import xform_name
from botocore.validate import validate_parameters


def value_of(shape: Any, texts: list[str]) -> Any:
    if shape.type_name == "list":
        return [value_of(shape.member, [text]) for text in texts]
    if shape.type_name in ("integer", "long"):
        return int(texts[0])
    if shape.type_name == "boolean":
        return True
    if shape.type_name == "blob":
        if texts[0].startswith("fileb://"):
            return Path(texts[0].removeprefix("fileb://")).read_bytes()
        return base64.b64decode(texts[0], validate=True)
    if shape.type_name == "structure":
        if texts[0].startswith("{"):
            return json.loads(texts[0])
        pairs = (part.partition("=") for part in texts[0].split(","))
        return {name: value_of(shape.members[name], [text]) for name, _, text in pairs}
    return texts[0]


def printable(value: Any) -> Any:
    """As version 2 of the AWS CLI prints it."""
    if isinstance(value, dict):
        return {name: printable(inner) for name, inner in value.items() if name != "ResponseMetadata"}
    if isinstance(value, list):
        return [printable(inner) for inner in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else value


def main(arguments: list[str]) -> None:
    service, command, *rest = arguments
    waits = command == "wait"
    if waits:
        waiter, *rest = rest
        command = "describe-stream"
    options: dict[str, list[str]] = {}
    name = ""
    for argument in rest:
        if argument.startswith("--"):
            name = argument.removeprefix("--")
            options[name] = []
        else:
            options[name].append(argument)
    query, output = options.pop("query", None), options.pop("output", ["json"])
    archive = options.pop("zip-file", None)
    session = botocore.session.get_session()
    model = session.get_service_model(service)
    names = {xform_name(operation, "-"): operation for operation in model.operation_names}
    operation = model.operation_model(names[command])
    members = {xform_name(member, "-"): member for member in operation.input_shape.members}
    given = {
        members[name]: value_of(operation.input_shape.members[members[name]], texts)
        for name, texts in options.items()
    }
    if archive:  # a parameter of the AWS CLI's own
        given["Content"] = {"ZipFile": Path(archive[0].removeprefix("fileb://")).read_bytes()}
    validate_parameters(given, operation.input_shape)
    answer: Any = {}
    if service == "kinesis":
        client = session.create_client("kinesis")
        if waits:
            client.get_waiter(waiter.replace("-", "_")).wait(**given, WaiterConfig={"Delay": 1})
            return
        answer = printable(getattr(client, xform_name(names[command]))(**given))
    if query:
        answer = jmespath.search(query[0], answer)
    if output == ["text"]:
        print("\t".join(answer) if isinstance(answer, list) else answer)
    else:
        print(json.dumps(answer, indent=4))


if __name__ == "__main__":
    main(sys.argv[1:])
