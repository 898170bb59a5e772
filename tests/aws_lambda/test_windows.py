"""Tumbling windows: the state holds what is through, and nothing that comes again."""

from __future__ import annotations

import json
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.aws_lambda import process_window

from .conftest import FIRST, load
from .test_events import Handler, count


def long_event(records: int, state_size: int) -> dict[str, Any]:
    event = load("lambda_tumbling_window.json")
    first = event["Records"][0]
    event["Records"] = [
        {**first, "kinesis": {**first["kinesis"], "sequenceNumber": str(FIRST + n)}} for n in range(records)
    ]
    return {**event, "state": {"before": "x" * state_size}}


@pytest.mark.requirement("LMB-9")
@pytest.mark.parametrize("fails_again", [False, True])
def test_a_large_state_before_a_failure_is_found_again(fails_again: bool) -> None:
    calls = {FIRST + 5: 0}

    def fold(state: dict[str, Any], record: kpl.DeaggregatedRecord) -> None:
        number = int(record.sequence_number or 0)
        state["numbers"] = [*state.get("numbers", []), number]
        calls[number] = calls.get(number, 0) + 1
        if number == FIRST + 7 or (fails_again and number == FIRST + 5 and calls[number] > 1):
            raise ValueError

    response = process_window(long_event(10, 100_000), fold)
    good = 0 if fails_again else 7
    assert response["batchItemFailures"][0] == {"itemIdentifier": str(FIRST + good)}
    assert response["state"].get("numbers", []) == [FIRST + n for n in range(good)]
    assert len(response["state"]["before"]) == 100_000


@pytest.mark.parametrize("state_size", [100, 100_000])
def test_the_state_is_not_copied_for_every_kinesis_record(
    state_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes copied are counted: they stay below a multiple of the state and of the records."""
    copied, dumps = [], json.dumps

    def counting(value: Any) -> str:
        text = dumps(value)
        copied.append(len(text))
        return text

    monkeypatch.setattr(json, "dumps", counting)
    event = long_event(2_000, state_size)
    data = sum(len(r["kinesis"]["data"]) for r in event["Records"])
    process_window(event, count)
    assert copied
    assert sum(copied) <= 2 * (state_size + data) + 2_000 * min(state_size + 100, 20_000)


@pytest.mark.requirement("LMB-10")
def test_the_window_closes_once_and_only_when_all_is_in() -> None:
    ended: list[dict[str, Any]] = []

    def on_end(state: dict[str, Any], event: Any) -> None:
        ended.append({"window": event["window"], **state})

    event = load("lambda_tumbling_window.json")
    process_window(event, count, on_window_end=on_end)
    assert ended == []
    event["isFinalInvokeForWindow"] = True
    fails = Handler({(str(FIRST), 0): 1})
    process_window(event, lambda state, record: fails(record), on_window_end=on_end)
    assert ended == []
    event["Records"] = []
    process_window(event, count, on_window_end=on_end)
    assert ended == [{"window": event["window"], "hello": 1}]
