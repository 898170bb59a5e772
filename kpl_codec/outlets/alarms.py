"""Ready alarms for the sentinel's metrics: templates with the stream's name filled in.

A test checks their metrics against `kpl_codec.sentinel.measures.METRICS`, and their syntax with cfn-lint,
python-hcl2 and a schema.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final, Literal

from ..errors import KplError

Form = Literal["cloudformation", "terraform", "prometheus-rules"]

_FILES: Final[dict[str, str]] = {
    "cloudformation": "alarms.yaml",
    "terraform": "alarms.tf",
    "prometheus-rules": "rules.yaml",
}


class NoStreamName(KplError, ValueError):
    """A text that cannot be the name of a Kinesis stream."""

    code = "stream-name"
    name: str
    text = "no name of a stream: {name!r}"


def alarms(form: Form, stream: str) -> str:
    """The alarms for ``stream`` (a name or an ARN) as text of that form. Raises NoStreamName."""
    name = stream.rpartition("/")[2]
    # SEN-26: "A name that no stream can have MUST be refused before it stands in a template."
    if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,128}", name):
        raise NoStreamName(name=name)
    text = files(__package__).joinpath("templates", _FILES[form]).read_text(encoding="utf-8")
    return text.replace("@STREAM@", name)
