"""What the log says of calls that fail: each kind once when it begins, and once when it ends."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.aws_errors import _ROWS, advice_of
from kpl_codec.producer import DeliveryError
from kpl_codec.producer.reports import FailingCalls, explain_failure
from kpl_codec.rendering.labels import safe
from kpl_codec.shards.live_shard_map import Failure

from ..every import every
from .model_client import ModelClient
from .skins import SKINS, Caller, result_of

pytestmark = pytest.mark.requirement("PRD-81")
EVENTS = st.tuples(
    st.sampled_from(["works", "A", "A", "ValidationException"]),
    st.sampled_from(["PutRecords", "ListShards"]),
    st.integers(0, 45),
)


@given(st.lists(EVENTS, max_size=60))
def test_each_kind_is_said_when_it_begins_and_when_it_ends(events: list[tuple[str, str, int]]) -> None:
    calls, now = FailingCalls(), 0.0
    begun: dict[tuple[str, str], float] = {}  # what fails at present, and since when
    told: dict[tuple[str, str], float] = {}  # what the log says fails at present, and since when
    last: dict[tuple[str, str], float] = {}  # when a kind was last said to begin
    for code, operation, seconds in events:
        now += seconds
        if code == "works":
            calls.worked(operation)
        else:
            calls.failed(operation, Failure(code, "secret"), now)
            begun.setdefault((operation, code), now)
        for _, text, facts in calls.take():
            kind = (facts["operation"], facts["error_code"])
            if " failed: " in text:
                assert kind not in told, "said twice"
                assert now >= last.get(kind, -60.0) + 60
                assert ("secret" in text) is (code == "A"), "repeats what is invalid"
                told[kind] = last[kind] = now
            else:
                assert " works again: " in text
                del told[kind]
        if code == "works":
            for kind in [kind for kind in begun if kind[0] == operation]:
                assert kind not in told, "its end was not said"
                del begun[kind]
        else:
            kind = (operation, code)
            assert kind in told or now < last[kind] + 60, "its beginning was not said"


@given(st.text(), st.text(max_size=1000), st.sampled_from([*_ROWS, "KMSNew", "SomethingNew", "403"]))
def test_what_a_service_writes_is_one_line_without_control_characters(
    code: str, reason: str, known: str
) -> None:
    for one in (code, known):
        text = explain_failure(one, reason)
        assert text == safe(text)
        assert len(text) < 1200
    assert advice_of(known).todo in explain_failure(known, reason)


def test_no_more_kinds_are_remembered_than_there_is_room_for() -> None:
    calls = FailingCalls()
    for number in range(1000):
        calls.failed("PutRecords", Failure(str(number)), float(number))
    assert len(calls._said_at) == 100


#: Answers that store nothing, and what is said of each.
ANSWERS: list[tuple[Any, tuple[str, ...]]] = [
    ({}, ("CountMismatch", "proxy")),
    ({"message": "<html>please log in</html>"}, ("CountMismatch", "login page")),
    (
        {"Records": [{"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "Rate"}]},
        ("ProvisionedThroughputExceededException: Rate", "shards"),
    ),
    (
        {"Records": [{"ErrorCode": "\x1b[31mX\nCRITICAL forged", "ErrorMessage": "a\r\nb"}]},
        ("X\ufffdCRITICAL forged: a", "documentation"),
    ),
]


@SKINS
@every("answer, says", ANSWERS)
def test_a_call_that_fails_is_said_once_in_words_and_in_the_error(
    answer: Any, says: tuple[str, ...], skin: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken, failing = [True], answer
    caplog.clear()

    def spoil(operation: str, answer: Any) -> Any:
        return failing if broken and operation == "PutRecords" else answer

    async def run() -> tuple[Any, Any]:
        options = {"client": ModelClient(spoil=spoil)}
        caller = Caller(skin, None, options=options, record_ttl_ms=300)
        failed = await result_of(await caller.put("k", b"secret"), 30)
        broken.clear()
        works = failed
        while isinstance(works, BaseException):  # (some expire while their shard is left alone)
            works = await result_of(await caller.put("k", b"secret"), 30)
        await caller("close")
        return failed, works

    error, works = asyncio.run(run())
    assert isinstance(error, DeliveryError)
    assert not isinstance(works, BaseException)
    records = [one for one in caplog.records if one.name == "kpl_codec.producer"]
    assert {vars(one)["stream"] for one in records} == {error.stream}
    texts = [one.getMessage() for one in records if one.levelno >= logging.WARNING]
    (begin,) = (text for text in texts if "PutRecords failed: " in text)
    (end,) = (text for text in texts if "PutRecords works again: " in text)
    assert texts.index(begin) < texts.index(end)
    for text in (begin, str(error)):
        assert all(words in text for words in (*says, str(error.stream)))
    assert all(text == safe(text) and "secret" not in text for text in [*texts, str(error)])
