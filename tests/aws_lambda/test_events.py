"""process_user_records, sync and async, against a model of what Lambda does with the response."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec import adapters
from kpl_codec.aws_lambda import (
    Poison,
    aio,
    idempotency_key,
    process_user_records,
    process_window,
    user_records,
)
from kpl_codec.limits import MAGIC

from .conftest import FIRST, SHARD, STREAM, expected_user_records
from .source_mapping import deliver

Id = tuple[str | None, int]


def identity(record: kpl.DeaggregatedRecord) -> Id:
    return record.sequence_number, record.sub_sequence_number


def numbers(response: dict[str, Any]) -> list[str]:
    assert set(response) == {"batchItemFailures"}
    assert all(set(item) == {"itemIdentifier"} for item in response["batchItemFailures"])
    return [item["itemIdentifier"] for item in response["batchItemFailures"]]


class Handler:
    """Fails each user record as often as ``failing`` says; keeps what it was called with."""

    def __init__(self, failing: dict[Id, int] | None = None) -> None:
        self.left = dict(failing or {})
        self.called: list[kpl.DeaggregatedRecord] = []
        self.done: list[kpl.DeaggregatedRecord] = []

    def __call__(self, record: kpl.DeaggregatedRecord) -> None:
        self.called.append(record)
        if self.left.get(identity(record), 0) > 0:
            self.left[identity(record)] -= 1
            raise RuntimeError("not this time")
        self.done.append(record)

    async def run(self, record: kpl.DeaggregatedRecord) -> None:
        await asyncio.sleep(0)
        self(record)


def test_user_records_is_lazy_and_raises_at_a_corrupt_record(poisoned: Any) -> None:
    rows = user_records(poisoned)
    assert next(rows).data == b"Hello, this is a test."
    with pytest.raises(kpl.ChecksumMismatch) as raised:
        next(rows)
    assert raised.value.sequence_number == str(FIRST + 1)


def test_a_failure_is_logged_with_its_place_and_without_data(event: Any, caplog: Any) -> None:
    with caplog.at_level(logging.ERROR):
        process_user_records(event, Handler({(str(FIRST), 0): 1}))
    (line,) = caplog.records
    assert line.name == "kpl_codec.aws_lambda"
    assert str(FIRST) in line.getMessage()
    assert line.exc_info is not None
    assert "Hello" not in caplog.text


@pytest.mark.requirement("LMB-4")
def test_a_poison_hook_may_take_it(poisoned: Any) -> None:
    poisons: list[Poison] = []
    handler = Handler()
    assert numbers(process_user_records(poisoned, handler, on_poison=poisons.append)) == []
    (poison,) = poisons
    assert isinstance(poison.error, kpl.ChecksumMismatch)
    assert poison.kinesis_record is not None
    assert poison.kinesis_record.sequence_number == str(FIRST + 1)
    assert poison.event_record == poisoned["Records"][1]
    assert poison.stream_arn == STREAM
    assert [identity(row) for row in handler.done] == [
        (str(FIRST), 0),
        (str(FIRST + 2), 0),
        (str(FIRST + 2), 1),
    ]


@pytest.mark.requirement("LMB-4")
@pytest.mark.parametrize("mode", ["stop", "continue"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_poison_hook_is_not_asked_twice_after_a_failure(
    poisoned: Any, mode: Any, asynchronous: bool
) -> None:
    poisons: list[Poison] = []
    handler = Handler({(str(FIRST), 0): 1})

    def function(event: dict[str, Any]) -> Any:
        if not asynchronous:
            return process_user_records(event, handler, after_failure=mode, on_poison=poisons.append)
        return aio.run(
            aio.process_user_records(event, handler.run, after_failure=mode, on_poison=poisons.append)
        )

    assert deliver(poisoned, function) == 2
    assert len(poisons) == 1


def test_without_a_sequence_number_to_report_the_batch_fails(event: Any) -> None:
    del event["Records"][1]["kinesis"]["sequenceNumber"]
    with pytest.raises(kpl.CaptureError):
        process_user_records(event, Handler())
    for no_event in ({}, {"Records": None}, {"records": []}, [], "{}"):
        with pytest.raises(kpl.CaptureError):
            process_user_records(no_event, Handler())  # type: ignore[arg-type]
        with pytest.raises(kpl.CaptureError):
            process_window(no_event, lambda state, record: None)  # type: ignore[arg-type]


HALF = 2**127


def straddling() -> tuple[dict[str, Any], kpl.ShardMap]:
    """An aggregate on shard 0 with one user record that belongs to shard 1: the KCL drops it whole."""
    data = kpl.encode([kpl.UserRecord("a", b"in", "5"), kpl.UserRecord("b", b"out", str(HALF))])
    record = kpl.KinesisRecord("a", data, "7", "shardId-000000000000")
    shards = [kpl.Shard(f"shardId-00000000000{i}", keys) for i, keys in enumerate(kpl.ALL_HASH_KEYS.split(2))]
    return adapters.to_lambda([record], stream_arn=STREAM), kpl.ShardMap(shards)


@pytest.mark.requirement("LMB-12")
def test_the_kcl_policy_tells_what_it_drops() -> None:
    event, shard_map = straddling()
    with pytest.raises(ValueError, match="on_drop"):
        process_user_records(event, Handler(), policy="kcl", shard_map=shard_map)
    drops: list[kpl.Drop] = []
    handler = Handler()
    response = process_user_records(event, handler, policy="kcl", shard_map=shard_map, on_drop=drops.append)
    assert numbers(response) == []
    assert handler.called == []
    assert [drop.user_records for drop in drops] == [2]


class Context:
    """Lambda's context with as many milliseconds as the next entry says; the last one counts on."""

    def __init__(self, *remaining: int) -> None:
        self._remaining = list(remaining)

    def get_remaining_time_in_millis(self) -> int:
        return self._remaining.pop(0) if len(self._remaining) > 1 else self._remaining[0]


@pytest.mark.requirement("LMB-11")
@pytest.mark.parametrize("way", ["plain", "async", "window"])
def test_out_of_time_reports_the_rest(event: Any, way: str) -> None:
    handler, context = Handler(), Context(9000, 6000, 3000, 900)
    if way == "async":
        call = aio.process_user_records(event, handler.run, concurrency=1, context=context, reserve_ms=1000)
        response = aio.run(call)
    elif way == "window":
        response = process_window(
            event,
            lambda state, record: handler(record) or {"n": state.get("n", 0) + 1},
            context=context,
            reserve_ms=1000,
        )
        assert response.pop("state") == {"n": 1}  # nothing of the Kinesis record that comes again
    else:
        response = process_user_records(event, handler, context=context, reserve_ms=1000)
    assert numbers(response)[0] == str(FIRST + 1)
    assert [identity(row) for row in handler.done][:2] == [(str(FIRST), 0), (str(FIRST + 1), 0)]
    assert len(handler.done) == 3


@pytest.mark.requirement("LMB-8")
def test_the_key_is_stream_shard_and_numbers(event: Any) -> None:
    seen: list[str] = []
    process_user_records(event, Handler(), once=lambda key, call: seen.append(key))
    assert seen == [f"{STREAM}/{SHARD}/{row[3]}/{row[4]}" for row in expected_user_records()]
    # an enhanced fan-out consumer reads the same stream
    for record in event["Records"]:
        record["eventSourceARN"] += "/consumer/fast:1540591608"
    again: list[str] = []
    process_user_records(event, Handler(), once=lambda key, call: again.append(key))
    assert again == seen
    assert idempotency_key(next(user_records(event)), STREAM) == seen[0]


def test_arguments_are_checked(event: Any) -> None:
    with pytest.raises(ValueError, match="after_failure"):
        process_user_records(event, Handler(), after_failure="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="after_failure"):
        aio.run(aio.process_user_records(event, Handler().run, after_failure="ignore"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="concurrency"):
        aio.run(aio.process_user_records(event, Handler().run, concurrency=0))


# -- laws over batches and failures ------------------------------------------------------------------


@st.composite
def batches(draw: st.DrawFn) -> tuple[dict[str, Any], list[kpl.DeaggregatedRecord], dict[Id, int]]:
    """An event, its user records, and how often each is to fail first."""
    keys = st.sampled_from("abc")
    rows = []
    for number in range(draw(st.integers(1, 5))):
        members = draw(st.lists(st.tuples(keys, st.binary(max_size=3)), min_size=1, max_size=4))
        data = kpl.encode([kpl.UserRecord(*m) for m in members]) if draw(st.booleans()) else b"plain"
        rows.append(kpl.KinesisRecord("a", data, str(100 + number), SHARD))
    event = adapters.to_lambda(rows, stream_arn=STREAM)
    records = list(kpl.deaggregate(rows))
    failing = draw(st.dictionaries(st.sampled_from([identity(r) for r in records]), st.integers(1, 2)))
    return event, records, failing


modes = st.sampled_from(["stop", "continue"])


def check_delivery(handler: Handler, records: list[kpl.DeaggregatedRecord], exactly_once: bool) -> None:
    done = Counter(identity(row) for row in handler.done)
    # Nothing is lost:
    assert set(done) == {identity(row) for row in records}
    if exactly_once:
        assert set(done.values()) == {1}
        # and each partition key's user records are done in their order.
        for key in {row.partition_key for row in records}:
            expected = [identity(row) for row in records if row.partition_key == key]
            assert [identity(row) for row in handler.done if row.partition_key == key] == expected


class Once:
    def __init__(self) -> None:
        self.keys: set[str] = set()

    def __call__(self, key: str, call: Any) -> None:
        if key not in self.keys:
            call()
            self.keys.add(key)

    async def run(self, key: str, call: Any) -> None:
        if key not in self.keys:
            await call()
            self.keys.add(key)


@given(batches(), modes, st.booleans(), st.sampled_from([None, 1, 2, 4]))
@pytest.mark.requirement("LMB-1", "LMB-3", "LMB-8", "LMB-14")
def test_every_user_record_gets_done_and_once_with_a_store(
    batch: Any, mode: Any, with_store: bool, concurrency: int | None
) -> None:
    """``concurrency``: on asyncio; None: the plain function."""
    event, records, failing = batch
    handler, once = Handler(failing), Once() if with_store else None

    def function(event: dict[str, Any]) -> Any:
        if concurrency is None:
            return process_user_records(event, handler, after_failure=mode, once=once)
        options: dict[str, Any] = {"concurrency": concurrency, "after_failure": mode}
        run = once and once.run
        return aio.run(aio.process_user_records(event, handler.run, once=run, **options))

    deliver(event, function, 200)
    check_delivery(handler, records, with_store)


@given(batches())
@pytest.mark.requirement("LMB-2")
def test_a_number_is_reported_once_and_only_if_something_in_it_failed(batch: Any) -> None:
    event, _, failing = batch
    for mode in ("stop", "continue"):
        handler = Handler(failing)
        reported = numbers(process_user_records(event, handler, after_failure=mode))  # type: ignore[arg-type]
        done = {identity(row) for row in handler.done}
        failed = [identity(row)[0] for row in handler.called if identity(row) not in done]
        assert reported == list(dict.fromkeys(failed))


def test_async_keeps_concurrency_and_the_order_of_a_key(event: Any) -> None:
    under_way, most = [0], [0]
    order: list[Id] = []

    async def handler(record: kpl.DeaggregatedRecord) -> None:
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        await asyncio.sleep(0.001)
        order.append(identity(record))
        under_way[0] -= 1

    assert numbers(aio.run(aio.process_user_records(event, handler, concurrency=3))) == []
    assert most[0] == 3
    assert [i for i in order if i[0] == str(FIRST + 1)] == [(str(FIRST + 1), sub) for sub in range(5)]


def test_the_loop_lives_on_between_invocations() -> None:
    async def loop() -> Any:
        return asyncio.get_running_loop()

    assert aio.run(loop()) is aio.run(loop())


@pytest.mark.requirement("LMB-1", "LMB-4", "LMB-14")
@pytest.mark.parametrize("after_failure", ["stop", "continue"])
@pytest.mark.parametrize("hook", ["none", "takes", "raises"])
@given(st.lists(st.sampled_from(["sound", "fails", "poison"]), max_size=6))
def test_async_with_one_lane_does_what_the_plain_loop_does(
    hook: str, after_failure: Any, kinds: list[str]
) -> None:
    """The same response and user records, in the same order; a poison record is logged or taken."""
    data = {"sound": b"sound", "fails": b"fails", "poison": MAGIC + bytes(30)}
    rows = [kpl.KinesisRecord("k", data[kind], str(number), SHARD) for number, kind in enumerate(kinds)]
    event = adapters.to_lambda(rows, stream_arn=STREAM)

    def outcome(run: Any) -> tuple[Any, list[str], list[str], int]:
        handled: list[str] = []
        poisons: list[str] = []
        lines: list[str] = []

        def handle(record: kpl.DeaggregatedRecord) -> None:
            handled.append(str(record.sequence_number))
            if record.data == b"fails":
                raise ValueError

        def on_poison(poison: Any) -> None:
            poisons.append(poison.kinesis_record.sequence_number)
            if hook == "raises":
                raise ValueError

        logger = logging.getLogger("kpl_codec.aws_lambda")
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
        logger.addHandler(handler)
        try:
            options = {} if hook == "none" else {"on_poison": on_poison}
            response = run(event, handle, after_failure=after_failure, **options)
        finally:
            logger.removeHandler(handler)
        return response, handled, poisons, sum("user record failed" not in line for line in lines)

    plain = outcome(process_user_records)
    asynchronous = outcome(
        lambda event, handle, **options: aio.run(
            aio.process_user_records(event, handle, concurrency=1, **options)
        )
    )
    assert asynchronous == plain
    reported = [kinds[int(number)] for number in numbers(plain[0])]
    if hook != "takes":
        assert plain[3] == reported.count("poison")
