"""Whatever happens around a producer of either kind: each user record has one result, and all who are told of
it, the callers, on_undelivered, the log and the ledger, are told the same."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import example, given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from kpl_codec.audit import Ledger
from kpl_codec.aws_errors import Backoff
from kpl_codec.format.records import Tag
from kpl_codec.producer import DeliveryError, ProducerClosed, ProducerFull, Put, lanes, process

from ..audit.test_for_real import sums_in
from ..examples import examples
from .model_client import ModelClient
from .skins import SKINS, Caller, check_handed_over

PUTS = st.tuples(
    st.one_of(st.none(), st.sampled_from(["a", "secret-key", "customer-17"])),
    st.sampled_from(["", "secret", "large", "like gzip"]),
    st.sampled_from([None, "0", str(2**127)]),
    st.sampled_from([(), (Tag("t", "v"),)]),
)
DATA = {"": b"", "secret": b"secret", "large": b"secret" * 60_000, "like gzip": b"\x1f\x8b\x08"}
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "compression": st.just("gzip"),
        "reshard_proof": st.just(True),
        "when_full": st.sampled_from(["block", "fail"]),
        "max_outstanding_records": st.integers(1, 5),
        "max_outstanding_bytes": st.just(2**20),
        "record_ttl_ms": st.just(100),
    },
)


class Awaitable:
    """As a future of asyncio: it can be awaited, and not closed."""

    def __await__(self) -> Iterator[None]:
        yield


#: What on_undelivered raises.
RAISES = [None, ValueError, SystemExit, Awaitable, asyncio.CancelledError]
#: What comes of a PutRecords call that has stored its records: botocore raises anything for an answer that is
#: no JSON.
BROKEN = [AttributeError("secret"), UnicodeDecodeError("utf-8", b"secret", 0, 1, "x"), SystemExit("secret")]
#: And of one that was not made, for each Kinesis record or the whole call: error codes.
CODES = ["InternalFailure", "AccessDeniedException", "KMSThrottlingException", "ValidationException"]
CALLS = st.one_of(
    st.none(),
    st.sampled_from(BROKEN),
    st.tuples(st.sampled_from(CODES), st.booleans()),
    st.just({"page": "x"}),
)
#: PRD-35: what ``observe`` raises.
MEASURING = st.sampled_from([None, OSError, SystemExit, KeyboardInterrupt])


class Lines(logging.Handler):
    """What the producer's log has. ``breaks``: a filter or handler of the caller's that raises."""

    def __init__(self, *, breaks: bool) -> None:
        super().__init__()
        self.lines: list[logging.LogRecord] = []
        self._breaks = breaks

    def filter(self, line: logging.LogRecord) -> bool:
        self.lines.append(line)
        if self._breaks:
            raise RuntimeError
        return True

    def emit(self, line: logging.LogRecord) -> None: ...


class World(ModelClient):
    """A stream whose first PutRecords calls end as ``calls`` says; then it takes all, or refuses it."""

    def __init__(self, calls: list[Any], *, refusing: bool) -> None:
        super().__init__()
        self._ends = iter(calls)
        self._after = ("AccessDeniedException", True) if refusing else None

    def put_records(self, *, Records: list[dict[str, Any]], **_: Any) -> Any:
        end = next(self._ends, self._after)
        if isinstance(end, tuple):
            code, whole = end
            text = "secret" if code == "ValidationException" else "because"
            if whole:
                raise ClientError({"Error": {"Code": code, "Message": text}}, "PutRecords")
            return {"Records": [{"ErrorCode": code, "ErrorMessage": text}] * len(Records)}
        answer = super().put_records(Records=Records)
        if isinstance(end, BaseException):
            raise end
        return end or answer


def test_a_filter_that_raises_costs_no_other_line() -> None:
    """User records that end in one turn have a line for each outcome and code."""
    about = [("refused", "A", False), ("refused", "A", True), ("expired", "B", False)]
    errors: Any = [
        SimpleNamespace(outcome=outcome, reason=code, may_be_stored=stored, explanation=code)
        for outcome, code, stored in about
    ]
    log = Lines(breaks=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "excepthook", lambda *_: None)
        patch.setattr(logging.getLogger("kpl_codec.producer"), "filters", [log])
        process.StreamLog("s").undelivered(errors)
        process.log_thread.made().wait(60)
    assert len(log.lines) == len(about)


@SKINS
@of_hypothesis(max_examples=examples(60))
@pytest.mark.requirement(
    "PRD-7", "PRD-34", "PRD-35", "PRD-36", "PRD-41", "PRD-60", "PRD-63", "PRD-64", "PRD-65", "AUD-1"
)
@given(
    puts=st.lists(PUTS, max_size=20),
    settings=SETTINGS,
    calls=st.lists(CALLS, max_size=3),
    refusing=st.booleans(),
    hook=st.sampled_from(["none", "plain", "awaited"]),
    raising=st.lists(st.sampled_from(RAISES)),
    measuring=MEASURING,
    log_breaks=st.booleans(),
    bug=st.sampled_from([None, None, None, "receive", "results", "fail"]),
    give_up=st.booleans(),
)
@example([("k", "")], {}, [], True, "awaited", [SystemExit], None, False, None, False)
def test_each_user_record_ends_once_and_all_are_told_the_same(
    skin: str,
    puts: list[Any],
    settings: dict[str, Any],
    calls: list[Any],
    refusing: bool,
    hook: str,
    raising: list[Any],
    measuring: Any,
    log_breaks: bool,
    bug: str | None,
    give_up: bool,
) -> None:
    called: list[DeliveryError] = []
    raised = 0

    def observe(name: str, value: float, attributes: Any) -> None:
        if measuring is not None:
            raise measuring

    def plain(error: DeliveryError) -> Any:
        nonlocal raised
        called.append(error)
        kind = raising[len(called) - 1] if len(called) <= len(raising) else None
        raised += kind is not None and (kind is not Awaitable or skin == "threads")
        if kind is Awaitable:
            return Awaitable()
        if kind is not None:
            raise kind(error.user_record.partition_key, error.user_record.data)

    async def awaited(error: DeliveryError) -> None:
        await asyncio.sleep(0)
        plain(error)

    on_undelivered = awaited if hook == "awaited" and skin == "asyncio" else plain
    client = World(calls, refusing=refusing)

    async def main(folder: str) -> tuple[bool, list[tuple[Put, Any]]]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        options = {"client": client, "observe": observe, "ledger": Ledger(folder)}
        caller = Caller(skin, None if hook == "none" else on_undelivered, options=options, **settings)
        producer = caller.producer
        if bug is not None:
            setattr(producer._core, bug, lambda *_, **__: 1 / 0)
        for number, (key, data, *more) in enumerate(puts):
            try:
                await caller.put(key, DATA[data] + b" %d" % number, *more)
            except ProducerFull:
                assert settings.get("when_full", "block") != "block"
            except ProducerClosed as closed:
                assert (closed.code, bug is None) == ("broken", False)
            assert producer.outstanding <= settings.get("max_outstanding_records", 100_000)
            assert producer._mailbox.bytes <= settings.get("max_outstanding_bytes", 2**40)
        closed = await caller("close", *[0.0] * give_up)
        assert producer.outstanding == 0
        return closed, caller.ended()

    log = Lines(breaks=log_breaks)
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(lanes, "BACKOFF", Backoff(0.001, 0.005))
        patch.setattr(threading, "excepthook", lambda args: None)
        patch.setattr(sys, "excepthook", lambda *_: None)
        patch.setattr(logging.getLogger("kpl_codec.producer"), "filters", [log])
        closed, ended = asyncio.run(main(folder))
        process.log_thread.made().wait(60)  # (`close` waits for a second)
        gc.collect()
        rows = sums_in(Path(folder))[0]
    errors = [result for _, result in ended if isinstance(result, DeliveryError)]
    check_handed_over(called if hook != "none" else errors, ended)
    assert closed is not bool(errors)
    stored = client.stream.delivered()
    for put, result in ended if "compression" not in settings else ():
        failed = isinstance(result, DeliveryError)
        assert result.may_be_stored or not stored[put.data] if failed else stored[put.data]
    told, texts = Counter[bool](), [line.getMessage() for line in log.lines]
    for line, text in zip(log.lines, texts, strict=True):
        if (may_be_stored := getattr(line, "may_be_stored", None)) is not None:
            assert ("may be on the stream all the same" in text) is may_be_stored
            told[may_be_stored] += line.__dict__["user_records"]
    everything = " ".join([*texts, *map(str, errors), *map(repr, errors), *(repr(put) for put, _ in ended)])
    assert "secret" not in everything
    assert sum(map(int, re.findall(r"on_undelivered failed for (\d+) ", everything))) == raised
    if bug is None:
        expected = Counter(error.may_be_stored for error in errors)
        assert told == expected
        assert Counter({True: rows["left"], False: rows["refused"]}) == expected
        assert sum("observe failed" in text for text in texts) == (measuring is not None and bool(ended))
