"""A stream as users write it: its name, or its ARN, which says the region, too.

    stream_of("orders").argument                                    # {"StreamName": "orders"}
    stream_of("arn:aws:kinesis:eu-west-1:123456789012:stream/orders").region      # "eu-west-1"

Everything that takes a stream takes both. Specification: spec/08-live-shard-map.md, MAP-22.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ..errors import KplError

_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_ARN: Final = re.compile(r"arn:aws[a-z-]*:kinesis:([a-z0-9-]+):\d+:stream/([a-zA-Z0-9_.-]{1,128})")


class StreamNameError(KplError, ValueError):
    """A text that is neither the name nor the ARN of a Kinesis stream, or an ARN of another region."""

    code = "stream-name"
    requirement = "MAP-22"
    name: str
    reason: str = "give its name, or its ARN (arn:aws:kinesis:REGION:ACCOUNT:stream/NAME)"
    text = "no stream can be read as {name!r}: {reason}"
    todo = "Give the name or the ARN of a stream."


class Stream(NamedTuple):
    """A stream; ``arn`` and ``region`` are None where only its name was given."""

    name: str
    arn: str | None = None
    region: str | None = None

    @property
    def argument(self) -> dict[str, str]:
        """What names it in a call. An ARN works for streams of other accounts, too."""
        return {"StreamARN": self.arn} if self.arn else {"StreamName": self.name}

    @property
    def argument_of_get_records(self) -> dict[str, str]:
        """What names it in GetRecords, which takes no name: the iterator has it."""
        return {"StreamARN": self.arn} if self.arn else {}


def stream_of(text: str) -> Stream:
    """The stream with this name or ARN. Raises StreamNameError."""
    if _NAME.fullmatch(text):
        return Stream(text)
    # MAP-22: "A stream MUST be taken by its name or its ARN wherever one is named, and an ARN is asked for in
    # its own region; what is neither is refused."
    match = _ARN.fullmatch(text)
    if match is None:
        raise StreamNameError(name=text)
    return Stream(match[2], text, match[1])
