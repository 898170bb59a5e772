"""The consumers of a queue, in threads and on asyncio, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.audit import Ledger
from kpl_codec.audit.audit_run import audit
from kpl_codec.aws_lambda import Poison, idempotency_key
from kpl_codec.queues import QueueUnavailable, browse_queue, process_queue_records, restore_dead_letters
from kpl_codec.queues.queue_calls import failed_entries

from ..aws_lambda.test_callers_code import ONCES
from .bench import Bench, Store, aggregate
from .queue_service import NEVER, DirectClient, Rates

Benches = Callable[..., Bench]


async def nothing(record: Any) -> None: ...


@pytest.mark.requirement("QUE-2", "QUE-7")
def test_user_records_come_in_order_and_are_acknowledged(bench: Benches) -> None:
    one = bench()
    queue = one.service.create()
    ids = [one.service.put("a", aggregate(n)) for n in range(12)] + [one.service.put("plain", b"12.0")]
    handled: list[kpl.DeaggregatedRecord] = []
    running: list[int] = [0]
    added: dict[str, float] = {}

    async def handle(record: kpl.DeaggregatedRecord) -> None:
        running.append(running[-1] + 1)
        await one.pause(0.01)
        running.append(running[-1] - 1)
        handled.append(record)

    def observe(name: str, value: float, attributes: Any) -> None:
        added[name] = added.get(name, 0) + value

    counts = one.consume(queue, handle, observe=observe)
    by_record = {key: [r.sub_sequence_number for r in handled if r.record_id == key] for key in ids}
    assert by_record == {**{key: [0, 1, 2] for key in ids[:12]}, ids[12]: [0]}
    assert {record.sequence_number for record in handled} == {None}
    assert max(running) == (1 if one.kind == "threads" else 10)
    assert (counts.kinesis_records, counts.user_records, counts.acknowledged) == (13, 37, 13)
    assert added == {"kinesis_records": 13, "user_records": 37, "acknowledged": 13}
    assert one.service.calls.count("AcknowledgeQueueRecords") == 2
    assert len({idempotency_key(record, queue) for record in handled}) == 37


@pytest.mark.requirement("QUE-5")
def test_a_record_that_waits_stays_invisible_and_is_not_begun_too_late(bench: Benches) -> None:
    one = bench()
    queue = one.queue(4, 1)

    async def handle(record: kpl.DeaggregatedRecord) -> None:
        await one.pause(100)
        arguments = {"QueueARN": queue, "WaitTimeSeconds": 1}
        assert not one.service.call("ReceiveQueueRecords", arguments)["QueueRecords"]

    options = one.one_by_one
    counts = one.consume(queue, handle, **options)
    assert (counts.user_records, counts.acknowledged, counts.gone) == (4, 4, 0)
    # Without heartbeats, the first takes too long for the others.
    for number in range(2):
        one.service.put("a", aggregate(number, 1))
    calls = len(one.service.calls)
    with one.without_heartbeats():
        counts = one.consume(queue, lambda record: one.pause(100), **options)
    assert "UpdateQueueRecordsVisibility" not in one.service.calls[calls:]
    assert (counts.kinesis_records, counts.user_records, counts.gone) == (3, 2, 1)


@pytest.mark.requirement("QUE-6")
def test_what_was_handled_is_not_handled_again(bench: Benches) -> None:
    one = bench()
    queue = one.queue(1, 5)
    attempts: list[bytes] = []
    times: list[float] = []

    async def handle(record: kpl.DeaggregatedRecord) -> None:
        times.append(one.clock.now())
        attempts.append(record.data)
        if record.data == b"0.3" and attempts.count(b"0.3") < 3:
            raise OSError

    store = Store()
    counts = one.consume(queue, handle, once=store.once, poll_wait=20)
    assert attempts == [b"0.0", b"0.1", b"0.2", b"0.3", b"0.3", b"0.3", b"0.4"]
    assert (counts.user_records, counts.skipped, counts.failed, counts.acknowledged) == (5, 6, 2, 1)
    assert store.keys == {f"{queue}/r00000/{number}" for number in range(5)}
    assert {round(after - before) for before, after in itertools.pairwise(times)} == {0, 5, 10}


@pytest.mark.parametrize(
    ("size", "stored", "expected"),
    [
        (2, False, ["01", "23", "01", "23", "4"]),
        (16, False, ["01234"]),
        (2, True, ["0", "2", "2", "3", "4"]),  # with a store one at a time
    ],
)
def test_a_handler_of_batches(bench: Benches, size: int, stored: bool, expected: list[str]) -> None:
    one = bench()
    queue = one.queue(1, 5)
    batches: list[str] = []
    store = Store(f"{queue}/r00000/1")

    async def handle(records: list[kpl.DeaggregatedRecord]) -> None:
        batches.append("".join(record.data.decode()[-1] for record in records))
        records.clear()  # it may, and the counts stay right
        if len(batches) == 2 and size == 2:
            raise OSError

    counts = one.consume(queue, handle, batch=size, once=store.once if stored else None, poll_wait=20)
    assert batches == expected
    failed = len(expected[1]) if size == 2 else 0
    assert (counts.user_records, counts.acknowledged) == (len("".join(expected)) - failed, 1)


@pytest.mark.parametrize("batch", [None, 100])
@pytest.mark.requirement("QUE-8")
def test_one_poisonous_user_record_takes_no_others_with_it(bench: Benches, batch: int | None) -> None:
    one = bench()
    queue = one.queue(1, 500)
    one.service.put("a", b"\xf3\x89\x9a\xc2" + bytes(30))
    handled: set[bytes] = set()
    aside: list[Poison] = []

    async def handle(given: Any) -> None:
        records = [given.pop(0) for _ in given[:]] if batch else [given]
        for record in records:
            if record.data == b"0.250":
                raise ValueError("never")
            handled.add(record.data)

    acknowledged = 0
    while acknowledged < 2:
        counts = one.consume(queue, handle, batch=batch, on_poison=aside.append, poll_wait=20)
        acknowledged += counts.acknowledged
        one.clock.sleep(60)
    assert handled == {b"0.%d" % number for number in range(500) if number != 250}
    unreadable, failed = aside
    assert (unreadable.user_record, type(unreadable.error)) == (None, kpl.ChecksumMismatch)
    assert failed.user_record is not None
    assert (failed.user_record.data, failed.kinesis_record.record_id) == (b"0.250", "r00000")
    assert str(failed.error) == "user record 250 of r00000 failed in delivery 5: ValueError [QUE-8]"
    assert isinstance(failed.error.__cause__, ValueError)
    # Without a hook it becomes a dead letter, and what is behind it was not handled.
    one = bench()
    queue = one.queue(1, 500)
    handled.clear()
    for _ in range(8):
        counts = one.consume(queue, handle, batch=batch)
        one.clock.sleep(300)
    assert b"0.499" not in handled
    assert counts.kinesis_records == 0
    # The hook gets what is unhandled of the dead letter; the rest can be put again from it.
    dead = one.consume(queue, handle, batch=batch, on_poison=aside.append, dead_letters=True)
    assert (b"0.499" in handled, dead.acknowledged, len(aside)) == (True, 1, 3)


@pytest.mark.requirement("QUE-3", "QUE-4")
def test_an_entry_that_fails_is_tried_again_or_counted(bench: Benches) -> None:
    one = bench(rates=Rates(entries=0.5), seed=3)
    queue = one.queue(10, 1)
    counts = one.consume(queue, nothing)
    assert counts.acknowledged + counts.not_acknowledged == counts.kinesis_records >= 10
    assert counts.acknowledged >= 8
    # An acknowledgement that comes too late: another consumer has the record.
    one = bench()
    queue = one.queue(1, 1)

    async def slow(record: kpl.DeaggregatedRecord) -> None:
        await one.pause(31)
        one.service.call("ReceiveQueueRecords", {"QueueARN": queue})

    with one.without_heartbeats():
        counts = one.consume(queue, slow)
    assert (counts.acknowledged, counts.not_acknowledged) == (0, counts.user_records)
    assert counts.user_records >= 1
    # No second try: it cannot help.
    assert one.service.calls.count("AcknowledgeQueueRecords") == counts.user_records


@pytest.mark.requirement("QUE-11")
def test_a_call_that_fails_is_repeated_or_raised(bench: Benches) -> None:
    one = bench(seed=1)
    queue = one.queue(1, 1)
    one.service.rates = Rates(calls=0.5)
    assert one.consume(queue, nothing).acknowledged == 1
    one.service.rates = NEVER
    with pytest.raises(QueueUnavailable, match=r"ResourceNotFoundException.*check the name"):
        one.consume(queue[:-1] + "9", nothing)
    one.service.rates = Rates(calls=1.0)
    began = one.clock.now()
    with pytest.raises(QueueUnavailable, match="ThrottlingException"):
        one.consume(queue, nothing)
    assert 50 < one.clock.now() - began <= 61

    class Truncated:
        def receive_queue_records(self, **_: Any) -> dict[str, Any]:
            return {}

    with pytest.raises(QueueUnavailable, match="an answer without QueueRecords"):
        one.consume(queue, nothing, client=Truncated())


@pytest.mark.requirement("QUE-9")
def test_a_stopped_consumer_ends_what_it_began_and_gives_back_the_rest(bench: Benches) -> None:
    one = bench()
    queue = one.queue(5, 2)
    handled: list[str | None] = []

    async def handle(record: kpl.DeaggregatedRecord) -> None:
        handled.append(record.record_id)
        one.stop.set()
        await one.pause(1)

    options = one.one_by_one
    counts = one.consume(queue, handle, drain=False, **options)
    assert len(handled) == 2
    assert len(set(handled)) == 1
    assert (counts.acknowledged, counts.given_back) == (1, 4)
    response = one.service.call("ReceiveQueueRecords", {"QueueARN": queue, "WaitTimeSeconds": 1})
    assert len(response["QueueRecords"]) == 4


@pytest.mark.requirement("QUE-5")
def test_an_extension_that_was_refused_does_not_count(bench: Benches) -> None:
    one = bench()
    queue = one.queue(12, 1)

    class Refusing(DirectClient):
        def update_queue_records_visibility(self, **arguments: Any) -> dict[str, Any]:
            failed = [{**entry, "ErrorCode": "InternalFailureException"} for entry in arguments["Entries"]]
            return {"Successful": [], "Failed": failed}

    options = one.one_by_one
    client = Refusing(one.service)
    counts = one.consume(queue, lambda record: one.pause(40), client=client, **options)
    assert counts.gone >= 1


@pytest.mark.requirement("QUE-5")
@pytest.mark.parametrize("seconds", [25, 31, 100])
def test_the_visibility_of_a_late_response_counts_from_its_call(seconds: int, bench: Benches) -> None:
    """30 s of visibility begin when the service gives the records out. In a response that comes after that,
    they may be another consumer's."""
    one = bench()
    queue = one.queue(3, 1)
    taken: list[str] = []

    class Late(DirectClient):
        calls = 0

        def receive_queue_records(self, **arguments: Any) -> dict[str, Any]:
            response: dict[str, Any] = self.__getattr__("receive_queue_records")(**arguments)
            Late.calls += 1
            if Late.calls == 1:
                one.clock.sleep(seconds)
                other = {"QueueARN": queue, "WaitTimeSeconds": 1, "Limit": 1}
                records = one.service.call("ReceiveQueueRecords", other)["QueueRecords"]
                taken.extend(record["RecordId"] for record in records)
            return response

    handled: list[str | None] = []

    async def handle(record: kpl.DeaggregatedRecord) -> None:
        handled.append(record.record_id)

    counts = one.consume(queue, handle, client=Late(one.service))
    assert bool(taken) is (seconds > 30)
    assert (counts.not_acknowledged, counts.acknowledged) == (0, 3 - len(taken))
    # The service no longer extends what it may give to others; it gives the rest again.
    assert counts.gone == (3 if taken else 0)
    assert sorted(handled) == sorted(set(handled))
    assert not set(taken) & set(handled)


@pytest.mark.requirement("QUE-4")
def test_a_heartbeat_that_cannot_acknowledge_leaves_it_for_later(bench: Benches) -> None:
    one = bench()
    queue = one.queue(2, 1)

    async def handle(record: kpl.DeaggregatedRecord) -> None:
        one.service.rates = Rates(calls=1.0)
        await one.pause(5)  # heartbeats fail meanwhile
        one.service.rates = NEVER

    counts = one.consume(queue, handle)
    assert (counts.user_records, counts.acknowledged) == (2, 2)


@pytest.mark.requirement("AUD-7", "AUD-14", "AUD-19", "AUD-22")
def test_an_audit_matches_user_records_of_a_queue_by_their_bytes(tmp_path: Path, bench: Benches) -> None:
    """Also those that the poison hook took: one that fails, and a record that cannot be opened."""
    one = bench()
    queue = one.service.create()
    writer = Ledger(tmp_path / "produced").writer("orders")
    same = kpl.encode([kpl.UserRecord("a", b"1"), kpl.UserRecord("b", b"2")])
    poison = kpl.encode(
        [kpl.UserRecord("a", b"1"), kpl.UserRecord("b", b"poison"), kpl.UserRecord("c", b"3")]
    )
    broken = kpl.encode([kpl.UserRecord("d", b"4")] * 2)
    broken = broken[:-1] + bytes([broken[-1] ^ 1])
    for number, data in enumerate([same, same, b"plain", b"bad", poison, broken]):
        one.service.put("a", data)
        writer.put("shardId-000000000000", str(100 + number), "a", data)
    writer.close()
    one.service.put("foreign", b"no ledger has it")
    aside: list[Poison] = []

    async def handle(record: kpl.DeaggregatedRecord) -> None:
        if record.data in (b"bad", b"poison"):
            raise OSError

    def take(poison: Poison) -> None:
        if poison.user_record is not None and poison.user_record.data == b"bad":
            raise OSError
        aside.append(poison)

    options: dict[str, Any] = {"on_poison": take, "poison_after": 1, "after_failure": "continue"}
    one.consume(queue, handle, ledger=Ledger(tmp_path / "handled"), **options)
    assert len(aside) == 2
    names = ("delivered", "handled", "aside", "missing", "tooEarly")
    for until, late in ((None, (0, 1)), (datetime(2100, 1, 1, tzinfo=timezone.utc), (1, 0))):
        audited = audit([str(tmp_path / "produced")], [str(tmp_path / "handled")], until=until)
        sums = audited.facts["userRecords"]
        assert tuple(sums[name] for name in names) == (10, 7, 2, *late)
        assert len(audited.audit.unclaimed) == 1


@pytest.mark.requirement("AUD-7", "QUE-5")
def test_a_ledger_that_cannot_be_written_for_a_while_stops_no_heartbeat(bench: Benches) -> None:
    one = bench()
    queue = one.queue(2)
    lines: list[str] = []
    begin = one.clock.now()

    def line(text: str) -> None:
        if 5 < one.clock.now() - begin < 50:
            raise OSError("no space left")
        lines.append(text)

    counts = one.consume(queue, lambda record: one.pause(25), ledger=Ledger(line))
    assert (counts.user_records, counts.acknowledged, counts.failed, counts.gone) == (6, 2, 0, 0)
    assert all(delivery.deliveries == 1 for delivery in one.service.queues[queue].deliveries)
    assert len(lines) >= 3


# -- browsing, and responses that come rarely -----------------------------------------------------


@pytest.mark.requirement("QUE-12")
def test_browsing_a_queue_gives_everything_back(bench: Benches) -> None:
    service = bench().service
    queue, client = service.create(most_receives=3), DirectClient(service)
    ids = {service.put("a", aggregate(number)) for number in range(25)}

    def browse(*, dead_letters: bool) -> list[str]:
        chunks = browse_queue(client, queue, dead_letters=dead_letters)
        return [record["RecordId"] for chunk in chunks for record in chunk]

    for _ in range(3):
        assert set(browse(dead_letters=False)) == ids
    assert browse(dead_letters=False) == []
    for _ in range(2):
        assert set(browse(dead_letters=True)) == ids
    for chunk in browse_queue(client, queue, dead_letters=True):
        assert restore_dead_letters(client, queue, [record["ReceiptHandle"] for record in chunk]) == {}
    service.rates = Rates(twice=1.0)
    assert sorted(browse(dead_letters=False)) == sorted(ids)  # each once, though the queue gives some twice
    assert restore_dead_letters(client, queue, ["gone"]) == {"gone": "ResourceNotFoundException"}


@pytest.mark.requirement("LMB-15")
def test_a_coroutine_function_is_no_handler_in_threads(bench: Benches) -> None:
    one = bench()
    queue = one.queue(1, 1)
    client, options = DirectClient(one.service), {"drain": True, "poll_wait": 1}
    with pytest.raises(TypeError, match=r"^handler of process_queue_records is an async function, give "):
        process_queue_records(client, queue, nothing, **options)
    counts = process_queue_records(client, queue, lambda record: nothing(record), **options)
    assert (counts.failed, counts.acknowledged) == (counts.kinesis_records, 0)


@pytest.mark.requirement("QUE-3")
def test_an_entry_that_no_list_names_has_failed() -> None:
    response = {
        "Successful": [{"ReceiptHandle": "a"}],
        "Failed": [{"ReceiptHandle": "b", "ErrorCode": "ThrottlingException"}],
    }
    assert failed_entries("abc", response) == {"b": "ThrottlingException", "c": "IncompleteAnswer"}
    both = {"Successful": [{"ReceiptHandle": "a"}], "Failed": [{"ReceiptHandle": "a", "ErrorCode": "X"}]}
    assert failed_entries("a", both) == {"a": "X"}


@pytest.mark.requirement("LMB-22")
@pytest.mark.parametrize("once", ONCES)
def test_once_cannot_lose_a_user_record_of_a_queue(bench: Benches, once: Any) -> None:
    one = bench()
    queue = one.queue(1, 1)
    calls = 0

    async def handle(record: kpl.DeaggregatedRecord) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError

    counts = one.consume(queue, handle, once=once, poll_wait=1)
    assert (counts.failed, counts.acknowledged) == ((0, 1) if ONCES[once] else (1, 0))


@pytest.mark.requirement("QUE-2")
def test_a_consumer_that_raises_gives_back_what_it_handles(bench: Benches) -> None:
    """No handler runs any more by then: another consumer gets the records."""
    one = bench()
    queue = one.queue(3, 1)
    under_way: set[bytes] = set()

    class Client(DirectClient):
        def update_queue_records_visibility(self, **arguments: Any) -> dict[str, Any]:
            assert not under_way
            return one.service.call("UpdateQueueRecordsVisibility", arguments)

    async def handle(record: kpl.DeaggregatedRecord) -> None:
        under_way.add(record.data)
        try:
            await one.pause(len(under_way))
            raise asyncio.CancelledError
        finally:
            under_way.remove(record.data)

    with pytest.raises(asyncio.CancelledError):
        one.consume(queue, handle, client=Client(one.service))
    arguments = {"QueueARN": queue, "WaitTimeSeconds": 1}
    assert len(one.service.call("ReceiveQueueRecords", arguments)["QueueRecords"]) == 3
