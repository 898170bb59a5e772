"""What an event, or the name of a caller's class, can write into logs and errors: no line of its own. What a
caller's function raises: its class and place, not its text."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec import adapters
from kpl_codec.aws_lambda import (
    Poison,
    aio,
    process_user_records,
    transform_user_records,
    user_records,
)
from kpl_codec.ledger.ledger import Ledger

from ..fuzz.test_from_outside import places
from .conftest import KINESIS_RECORDS, STREAM, load

#: What a caller's function puts into the texts of its exceptions.
SECRET = "card 4111"
HOSTILE = "\n2026-01-01 ERROR forged\x1b[31m\r\u2028\u202e"


class Forged(Exception):
    pass


Forged.__name__ = f"Forged{HOSTILE}"


def fail(*_: Any) -> Any:
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        raise Forged(SECRET) from error


async def fail_later(record: kpl.DeaggregatedRecord) -> None:
    fail()


def fail_on_poison(poison: Poison) -> None:
    raise Forged(str(poison), SECRET)


WAYS: dict[str, Callable[[Any], Any]] = {
    "handler": lambda event: process_user_records(event, fail),
    "hook": lambda event: process_user_records(
        event, fail, on_poison=fail_on_poison, after_failure="continue"
    ),
    "aio": lambda event: aio.run(aio.process_user_records(event, fail_later)),
    "ledger": lambda event: process_user_records(event, print, ledger=Ledger(lambda line: None)),
    "once": lambda event: process_user_records(event, print, once=lambda key, call: None),
    "once-fails": lambda event: process_user_records(event, print, once=fail),
    "poison": lambda event: process_user_records(event, print, on_poison=fail_on_poison),
    "report": lambda event: process_user_records(event, fail, policy="report"),
    "firehose": lambda event: transform_user_records(event, fail),
    "firehose-hook": lambda event: transform_user_records(event, fail, on_poison=fail_on_poison),
    "list": lambda event: [*user_records(event)],
}
DAMAGED = [
    *KINESIS_RECORDS[:2],
    kpl.KinesisRecord("a", KINESIS_RECORDS[1].data[:-1] + b"x", "9", "shardId-1"),
]
BASES = [
    adapters.to_lambda(DAMAGED, stream_arn=STREAM),
    adapters.to_firehose(DAMAGED, delivery_stream_arn=STREAM.replace("kinesis", "firehose")),
    load("pipes_kinesis.json")[:1],
    load("analytics_stream.json"),
]


def hostile(value: Any) -> Iterator[tuple[str, Any]]:
    """``value``, and copies of it, each with one text within it, or one name of a member, that is hostile."""
    yield "as it is", value
    for at, (holder, key) in enumerate(places(value)):
        is_text = not isinstance(holder[key], (dict, list))
        for new in (HOSTILE, f"{holder[key]}{HOSTILE}") if is_text else (HOSTILE,):
            changed = copy.deepcopy(value)
            other, _ = [*places(changed)][at]
            other[key] = new
            yield f"place {at}, {key} = {new!r}", changed
        if isinstance(holder, dict):
            changed = copy.deepcopy(value)
            other, _ = [*places(changed)][at]
            other[f"{key}{HOSTILE}"] = other.pop(key)
            yield f"place {at}, {key} named so", changed


@pytest.mark.requirement("LMB-35", "LMB-36")
def test_no_event_and_no_exception_writes_into_a_log(caplog: pytest.LogCaptureFixture, capsys: Any) -> None:
    caplog.set_level(logging.DEBUG)
    wrong: list[str] = []
    placed: set[str] = set()
    for number, base in enumerate(BASES):
        for place, event in hostile(base):
            of_firehose = {"firehose", "firehose-hook"}
            ways = {*of_firehose, "list"} if "records" in base else WAYS.keys() - of_firehose
            for way in sorted(ways):
                caplog.clear()
                said = []
                try:
                    WAYS[way](copy.deepcopy(event))
                except (kpl.KplError, TypeError, ValueError) as error:
                    said.append(str(error))
                ours = [record for record in caplog.records if record.name.startswith("kpl_codec")]
                said += [record.getMessage() for record in ours]
                if any("Forged" in line and "test_logs.py, line" in line for line in said):
                    placed.add(way)
                shown = [*said, *(str(record.exc_info) for record in ours), *capsys.readouterr()]
                if any(not line.isprintable() for line in said) or SECRET in "".join(shown):
                    wrong.append(f"{way}, event {number}, {place}: {said!r}"[:300])
    assert placed == WAYS.keys() - {"ledger", "once", "list"}  # in these no function of the caller raises
    assert not wrong, f"{len(wrong)}: " + json.dumps(wrong[:20], indent=1)
