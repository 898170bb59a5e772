"""process_user_records, sync and async, against a model of what Lambda does with the response."""

from __future__ import annotations

import asyncio
from collections import Counter
from operator import itemgetter
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec import adapters
from kpl_codec.aws_lambda import Poison, aio, idempotency_key, process_user_records, user_records
from kpl_codec.format.limits import MAGIC
from kpl_codec.ledger.ledger import Ledger

from ..every import every
from ..examples import examples
from .conftest import FIRST, SHARD, STREAM, expected_user_records, load
from .source_mapping import deliver
from .ways import ONCES, WAYS, Context, Handler, Id, event_for, identity, numbers


@pytest.mark.requirement("LMB-4")
def test_a_corrupt_record_is_raised_or_logged_and_reported_or_given_to_the_hook(
    poisoned: Any, caplog: Any
) -> None:
    rows = user_records(poisoned)  # lazily
    assert next(rows).data == b"Hello, this is a test."
    with pytest.raises(kpl.ChecksumMismatch) as raised:
        next(rows)
    assert raised.value.sequence_number == str(FIRST + 1)
    assert numbers(process_user_records(poisoned, Handler())) == [str(FIRST + 1)]
    assert "cannot be opened" in caplog.text
    poisons: list[Poison] = []
    assert numbers(process_user_records(poisoned, Handler(), on_poison=poisons.append)) == []
    (poison,) = poisons
    assert isinstance(poison.error, kpl.ChecksumMismatch)
    assert poison.kinesis_record is not None
    assert poison.kinesis_record.sequence_number == str(FIRST + 1)
    assert poison.event_record == poisoned["Records"][1]
    assert poison.stream_arn == STREAM


@pytest.mark.requirement("LMB-9")
def test_an_event_of_a_tumbling_window_is_refused_before_anything_is_handled() -> None:
    """Lambda takes an answer without a state for a failed invocation."""
    handler, event = Handler(), load("lambda_tumbling_window.json")
    with pytest.raises(ValueError, match=r"fold over user_records\(event\)"):
        process_user_records(event, handler)
    with pytest.raises(ValueError, match=r"fold over user_records\(event\)"):
        aio.run(aio.process_user_records(event, handler.run))
    assert handler.called == []
    assert len(list(user_records(event))) > 3


@pytest.mark.requirement("LMB-11")
@every("way", ["plain", "asyncio"])
def test_a_large_aggregate_in_new_environments_is_handled_until_look_ups_take_all_the_time(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A call of the store takes 5 ms, as the handler. Invocations of 1.2 s with a reserve of 200 ms."""
    caplog.clear()
    aggregate = kpl.encode([kpl.UserRecord(f"k{n}", b"%d" % n) for n in range(500)])
    event = event_for("plain", [kpl.KinesisRecord("a", aggregate, str(FIRST), SHARD)])
    now, done, keys = 0, Counter[bytes](), set[str]()

    def handle(record: kpl.DeaggregatedRecord) -> None:
        nonlocal now
        now += 5
        done[record.data] += 1

    def context_until(end: int) -> Context:
        return Context(lambda: end - now)

    def slowly(key: str) -> bool:
        nonlocal now
        now += 5
        return key in keys

    for _ in range(11):
        once = ONCES[way]()
        once.keys, once.knows = keys, slowly  # type: ignore[method-assign]
        options: dict[str, Any] = {"once": once, "context": context_until(now + 1_200), "reserve_ms": 200}
        if way == "asyncio":
            options["concurrency"] = 1
        assert WAYS[way](event, handle, **options) == [str(FIRST)]
    assert max(done.values()) == 1
    # The bound of chapter 6: 1,000 ms of look-ups of 5 ms; one is begun with as much time as the reserve.
    assert len(done) == 201
    assert len([entry for entry in caplog.messages if "no new user record was handled" in entry]) >= 3


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


# -- laws over batches and failures ------------------------------------------------------------------


class Batch(NamedTuple):
    """An event; its user records; how often each is to fail; the sequence numbers of its poison."""

    event: dict[str, Any]
    records: list[kpl.DeaggregatedRecord]
    failing: dict[Id, int]
    poison: list[str]


@settings(max_examples=examples(80))
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.sampled_from("kl"), st.sampled_from("ab"))),
    st.sampled_from(["stop", "continue"]),
)
@pytest.mark.parametrize("way", ["plain", "asyncio", "ledger", "firehose"])
@pytest.mark.requirement("LIN-12")
def test_records_of_one_name_are_handled_once_or_reported(way: str, given: list[Any], mode: Any) -> None:
    """Somebody before may have deaggregated the records and kept only their sequence numbers. Law: of each
    content under a name one record was handled, or its name is reported."""
    rows = [
        kpl.KinesisRecord(key, data.encode(), str(100 + number), SHARD, sub_sequence_number=sub or None)
        for number, sub, key, data in sorted(given, key=itemgetter(0))
    ]
    handled: set[Any] = set()

    def handler(record: kpl.DeaggregatedRecord) -> None:
        handled.add((record.sequence_number, record.sub_sequence_number, record.partition_key, record.data))

    event = event_for(way, [row.replace(sub_sequence_number=None) for row in rows])
    place = ("records", "kinesisRecordMetadata", "subsequenceNumber")
    if way != "firehose":
        place = ("Records", "kinesis", "subSequenceNumber")
    for raw, row in zip(event[place[0]], rows, strict=True):
        raw[place[1]][place[2]] = row.sub_sequence_number
    options: dict[str, Any] = {"ledger": Ledger(lambda line: None)}
    if way in ONCES:
        options = {"once": ONCES[way]()}
    if way != "firehose":
        options["after_failure"] = mode
    failed = set(WAYS["plain" if way == "ledger" else way](event, handler, **options))
    contents = {
        (row.sequence_number, row.sub_sequence_number or 0, row.partition_key, row.data) for row in rows
    }
    lowest = min(map(int, failed), default=1000)  # Lambda sends everything from there again
    lost = {
        one
        for one in contents - handled
        if one[0] not in failed and (way == "firehose" or int(one[0]) < lowest)
    }
    assert not lost
    of_one_name = Counter(content[:2] for content in contents)
    assert bool(failed) == any(count > 1 for count in of_one_name.values())


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    rows, sound = [], []
    for number in range(draw(st.integers(1, 6))):
        members = draw(
            st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=3)), min_size=1, max_size=4)
        )
        frame = kpl.encode([kpl.UserRecord(*member) for member in members])
        data = draw(st.sampled_from([b"plain", frame, MAGIC + bytes(30)]))
        rows.append(kpl.KinesisRecord("a", data, str(100 + number), SHARD))
        if not data.startswith(MAGIC) or data == frame:
            sound.append(rows[-1])
    records = list(kpl.deaggregate(sound))
    names = st.sampled_from([identity(record) for record in records]) if records else st.nothing()
    failing = draw(st.dictionaries(names, st.integers(1, 2)))
    poison = [str(row.sequence_number) for row in rows if row not in sound]
    return Batch(adapters.to_lambda(rows, stream_arn=STREAM), records, failing, poison)


modes = st.sampled_from(["stop", "continue"])


@settings(max_examples=examples(160))
@given(batches(), modes, st.sampled_from([None, "object", "method", "function"]), st.data())
@pytest.mark.parametrize("way", ["plain", "asyncio"])
@pytest.mark.requirement("LMB-1", "LMB-3", "LMB-4", "LMB-8", "LMB-11", "LMB-14", "LMB-24")
def test_everything_is_handled_or_put_aside(
    way: str, batch: Batch, mode: Any, store: str | None, data: st.DataObject
) -> None:
    """Handlers and the poison hook fail for a while, and the time ends in some invocations."""
    handler, once = Handler(batch.failing), ONCES[way]()
    aside: list[str] = []

    def of_function(key: str, call: Any) -> Any:
        return once(key, call)

    def on_poison(poison: Poison) -> None:
        if not data.draw(st.integers(0, 3)):
            raise ValueError
        aside.append(poison.event_record["kinesis"]["sequenceNumber"])

    def function(event: dict[str, Any]) -> Any:
        left = iter(range(data.draw(st.sampled_from([3, 99])), -1, -1))
        options: dict[str, Any] = {"on_poison": on_poison, "after_failure": mode, "reserve_ms": 1}
        options["context"] = Context(lambda: next(left, 0))
        # (A method is another object each time.)
        stores = {"object": once, "method": once.__call__, "function": of_function}
        options["once"] = None if store is None else stores[store]
        if way == "plain":
            return process_user_records(event, handler, **options)
        options["concurrency"] = data.draw(st.sampled_from([1, 2, 4]))
        return aio.run(aio.process_user_records(event, handler.run, **options))

    deliver(batch.event, function, 200)
    done = Counter(identity(record) for record in handler.done)
    # Nothing is lost, and a poison hook that took its record is not called again.
    assert set(done) == {identity(record) for record in batch.records}
    assert aside == batch.poison
    if store is not None:
        assert set(done.values()) <= {1}
        assert once.again == []
        # Each partition key's user records are done in their order.
        for key in {record.partition_key for record in batch.records}:
            of_key = [identity(record) for record in batch.records if record.partition_key == key]
            assert [identity(record) for record in handler.done if record.partition_key == key] == of_key


@given(batches())
@pytest.mark.requirement("LMB-2")
def test_a_number_is_reported_once_and_only_if_something_in_it_failed(batch: Batch) -> None:
    for mode in ("stop", "continue"):
        handler = Handler(batch.failing)
        response = process_user_records(
            batch.event,
            handler,
            after_failure=mode,
            on_poison=lambda poison: None,  # type: ignore[arg-type]
        )
        reported = [number for number in numbers(response) if number not in batch.poison]
        done = {identity(row) for row in handler.done}
        failed = [identity(row)[0] for row in handler.called if identity(row) not in done]
        assert reported == list(dict.fromkeys(failed))


def test_async_keeps_concurrency(event: Any) -> None:
    under_way, most = [0], [0]

    async def handler(record: kpl.DeaggregatedRecord) -> None:
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        await asyncio.sleep(0.001)
        under_way[0] -= 1

    assert numbers(aio.run(aio.process_user_records(event, handler, concurrency=3))) == []
    assert most[0] == 3


def test_the_loop_lives_on_between_invocations() -> None:
    async def loop() -> Any:
        return asyncio.get_running_loop()

    assert aio.run(loop()) is aio.run(loop())
