"""Ready alarms for the watch's metrics: templates with the stream's name filled in."""

from __future__ import annotations

from importlib.resources import files
from typing import Final, Literal

from ..shards.stream import stream_of

Form = Literal["cloudformation", "terraform", "prometheus-rules"]

#: Each form's file.
FORMS: Final[dict[Form, str]] = {
    "cloudformation": "alarms.yaml",
    "terraform": "alarms.tf",
    "prometheus-rules": "rules.yaml",
}


def alarms(form: Form, stream: str) -> str:
    """The alarms for ``stream`` (a name or an ARN) as text of that form. Raises StreamNameError."""
    # WCH-26: "A name that no stream can have MUST be refused before it stands in a template."
    name = stream_of(stream).name
    text = files(__package__).joinpath("templates", FORMS[form]).read_text(encoding="utf-8")
    return text.replace("@STREAM@", name)
