"""Stands for the AWS CLI in guides: the same commands and parameters, read with botocore's models.

Kinesis is really called, at the local server; a call to any other service is only checked.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import botocore.session
from botocore import xform_name
from botocore.validate import validate_parameters


def value_of(shape: Any, texts: list[str]) -> Any:
    if shape.type_name == "list":
        return texts
    return int(texts[0]) if shape.type_name == "integer" else texts[0]


def main(arguments: list[str]) -> None:
    service, command, *rest = arguments
    waiter = rest.pop(0) if command == "wait" else None
    options: dict[str, list[str]] = {}
    for argument in rest:
        if argument.startswith("--"):
            name = argument.removeprefix("--")
            options[name] = []
        else:
            options[name].append(argument)
    session = botocore.session.get_session()
    model = session.get_service_model(service)
    names = {xform_name(operation, "-"): operation for operation in model.operation_names}
    operation = model.operation_model(names["describe-stream" if waiter else command])
    given: dict[str, Any] = {}
    if archive := options.pop("zip-file", None):  # a parameter of the AWS CLI's own
        given["Content"] = {"ZipFile": Path(archive[0].removeprefix("fileb://")).read_bytes()}
    members = {xform_name(member, "-"): member for member in operation.input_shape.members}
    for name, texts in options.items():
        given[members[name]] = value_of(operation.input_shape.members[members[name]], texts)
    validate_parameters(given, operation.input_shape)
    if service == "kinesis":
        client = session.create_client("kinesis")
        if waiter:
            client.get_waiter(waiter.replace("-", "_")).wait(**given, WaiterConfig={"Delay": 1})
        else:
            answer = getattr(client, xform_name(names[command]))(**given)
            print(json.dumps({name: value for name, value in answer.items() if name != "ResponseMetadata"}))


if __name__ == "__main__":
    main(sys.argv[1:])
