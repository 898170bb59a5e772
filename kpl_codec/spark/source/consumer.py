"""Enhanced fan-out in the source: the consumer that the options name, found or registered on the driver.

Tasks read with SubscribeToShard as that consumer. Planning polls: a shard has only one subscription per
consumer, and the tasks need it. Offsets do not say how they were made, so a query may change its consumer
type, and its consumer, whenever it starts.
Specification: spec/11-enhanced-fan-out.md, EFO-7 to EFO-10.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...aws.stream_consumer import StreamConsumers
from .option_table import changes_nothing
from .positions import OptionError

_ARN: Final = re.compile(
    r"arn:aws[a-z-]*:kinesis:[a-z0-9-]*:\d*:stream/([a-zA-Z0-9_.-]+)/consumer/[^:/]+:\d+"
)


@dataclass(frozen=True, slots=True)
class Consumer:
    """``name``: of a consumer that is registered if it is not there; or ``arn``, of one that is there.
    ``deregister`` when the query ends."""

    name: str | None = None
    arn: str | None = None
    deregister: bool = False

    def find(self, client: Any, stream: str, patience: float) -> str:
        """The ARN of the consumer, once it is active. ``stream``: name or ARN. Raises StreamUnavailable."""
        consumers = StreamConsumers(client, patience=patience)
        return consumers.active(stream, self.arn or str(self.name))

    def end(self, client: Any, arn: str) -> None:
        """The query has ended."""
        # EFO-8: "A consumer MUST be deregistered only where the options ask for it, and never one that was
        # given by its ARN."
        if self.deregister:
            StreamConsumers(client, patience=60.0).deregister(arn)


def consumer_option(values: Mapping[str, Any], stream_name: str) -> Consumer | None:
    """The consumer that the options name, None to poll. Raises OptionError."""
    glue, subscribes = values["fanoutConsumerARN"], values["consumerType"]
    name, arn = values["consumerName"], values["consumerArn"] or glue
    deregister = values["requireConsumerDeregistration"]
    if not (glue if subscribes is None else subscribes):
        if name or arn:
            changes_nothing("consumerName" if name else "consumerArn", "consumerType is not efo")
        return None
    if (name is None) == (arn is None):
        raise OptionError(option="consumerName", value=name, expected="consumerName or consumerArn with efo")
    if name is None and deregister:
        expected = "false: a consumer that is given by consumerArn is not the query's"
        raise OptionError(option="requireConsumerDeregistration", value=True, expected=expected)
    if arn is not None:
        match = _ARN.fullmatch(arn)
        if match is None or match[1] != stream_name:
            expected = f"arn:aws:kinesis:REGION:ACCOUNT:stream/{stream_name}/consumer/NAME:TIME"
            raise OptionError(option="consumerArn", value=arn, expected=expected)
        return Consumer(arn=arn)
    if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,128}", name):
        raise OptionError(option="consumerName", value=name, expected="1 to 128 of a-z A-Z 0-9 _ . -")
    return Consumer(name, deregister=deregister)
