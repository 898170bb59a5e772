"""A consumer of a queue: over HTTP, with boto3 1.44 itself, and in virtual time."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest

import kpl_codec as kpl
from kpl_codec.adapters import kinesis_records
from kpl_codec.audit import Ledger
from kpl_codec.audit.audit_run import audit
from kpl_codec.aws_lambda import Poison, idempotency_key
from kpl_codec.cli.main import main
from kpl_codec.queues import (
    QueuesUnsupported,
    QueueUnavailable,
    browse_queue,
    find_queue,
    process_queue_records,
    restore_dead_letters,
)
from kpl_codec.queues.queue_calls import missing, refusals

from .queue_model import client_of, model_of
from .queue_service import DirectClient, QueueServer, QueueService, Rates, RealClock, VirtualClock

Virtual = Callable[..., tuple[QueueService, DirectClient, VirtualClock]]


def aggregate(number: int, users: int = 3) -> bytes:
    return kpl.encode([kpl.UserRecord(f"k{i}", b"%d.%d" % (number, i)) for i in range(users)])


@pytest.fixture
def service(newest_boto3: Path) -> QueueService:
    return QueueService(model_of(newest_boto3), RealClock())


@pytest.fixture
def client(service: QueueService, newest_boto3: Path) -> Iterator[Any]:
    with QueueServer(service) as url:
        yield client_of(newest_boto3, url)


class Stop(threading.Event):
    """Waiting passes virtual time."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.sleep(timeout or 0.0)
        return self.is_set()


@pytest.fixture
def virtual(newest_boto3: Path, monkeypatch: pytest.MonkeyPatch) -> Virtual:
    """A service and its client in virtual time, beats included."""

    def made(**settings: Any) -> tuple[QueueService, DirectClient, VirtualClock]:
        clock = VirtualClock()
        service = QueueService(model_of(newest_boto3), clock, **settings)
        monkeypatch.setattr("kpl_codec.queues.threaded_consumer.beating", clock.beating)
        return service, DirectClient(service), clock

    return made


def consume(client: DirectClient, queue: str, handle: Any, clock: VirtualClock, **options: Any) -> Any:
    given = {"drain": True, "stop": Stop(clock), **options}
    return process_queue_records(client, queue, handle, clock=clock.now, sleep=clock.sleep, **given)


@pytest.mark.requirement("QUE-2", "QUE-7")
def test_user_records_come_in_order_and_are_acknowledged(service: QueueService, client: Any) -> None:
    queue = service.create()
    ids = [service.put("a", aggregate(number)) for number in range(12)] + [service.put("plain", b"12.0")]
    assert find_queue(client, "orders-queue") == queue
    handled: list[kpl.DeaggregatedRecord] = []
    told: dict[str, float] = {}
    observe = lambda name, value, attributes: told.update({name: told.get(name, 0) + value})  # noqa: E731
    counts = process_queue_records(client, queue, handled.append, wait=1, drain=True, observe=observe)
    by_record = {key: [r.sub_sequence_number for r in handled if r.record_id == key] for key in ids}
    assert by_record == {**{key: [0, 1, 2] for key in ids[:12]}, ids[12]: [0]}
    assert {record.sequence_number for record in handled} == {None}
    assert (counts.kinesis_records, counts.user_records, counts.acknowledged) == (13, 37, 13)
    assert told == {"kinesis_records": 13, "user_records": 37, "acknowledged": 13}
    assert service.calls.count("AcknowledgeQueueRecords") == 2
    assert len({idempotency_key(record, queue) for record in handled}) == 37


@pytest.mark.requirement("QUE-1")
def test_an_answer_is_read_by_the_adapters_and_cannot_be_placed(service: QueueService, client: Any) -> None:
    queue = service.create()
    service.put("a", aggregate(0))
    answer = client.receive_queue_records(QueueARN=queue, WaitTimeSeconds=1)
    (record,) = kinesis_records(answer)
    assert (record.record_id, record.sequence_number, record.shard_id) == ("r00000", None, None)
    with pytest.raises(TypeError, match="shard_map"):
        process_queue_records(client, queue, print, shard_map=None)  # type: ignore[call-arg]


@pytest.mark.requirement("QUE-10")
def test_an_older_client_is_refused_by_name() -> None:
    old = boto3.client("kinesis", region_name="us-east-1", endpoint_url="http://127.0.0.1:1")
    for use in (
        lambda: process_queue_records(old, "arn:aws:kinesis:us-east-1:123456789012:queue/q", print),
        lambda: find_queue(old, "orders"),
    ):
        with pytest.raises(QueuesUnsupported, match=r"botocore 1\.44, and this is 1\.4"):
            use()


#: Run with boto3 1.44 itself, which is then the only boto3 there.
_PROGRAM = """
import sys, boto3, botocore
from kpl_codec.queues import process_queue_records
assert botocore.__version__ == "1.44.5", botocore.__version__
client = boto3.client("kinesis", endpoint_url=sys.argv[1], region_name="us-east-1")
print("ready", flush=True)
handle = lambda record: print(record.data.decode(), flush=True)
counts = process_queue_records(client, sys.argv[2], handle, wait=1)
print(counts.user_records, counts.acknowledged, flush=True)
"""


@pytest.mark.requirement("QUE-9")
def test_with_boto3_1_44_until_sigterm(service: QueueService, newest_boto3: Path) -> None:
    queue = service.create()
    for number in range(3):
        service.put("a", aggregate(number))
    path = os.pathsep.join([str(newest_boto3), str(Path(kpl.__file__).parents[1])])
    with QueueServer(service) as url:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, url, queue],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(10)]
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=30)
    assert lines[0] == "ready"
    assert sorted(lines[1:]) == sorted(f"{n}.{i}" for n in range(3) for i in range(3))
    assert rest.split() == ["9", "3"]
    assert process.returncode == 0


def test_the_visibility_is_extended_by_a_thread(service: QueueService, client: Any) -> None:
    """In real time: a handler that takes longer than the visibility; another consumer gets nothing."""
    queue = service.create()
    service.put("a", aggregate(0, 1))
    others: list[Any] = []

    def handle(record: kpl.DeaggregatedRecord) -> None:
        others.extend(client.receive_queue_records(QueueARN=queue, WaitTimeSeconds=4)["QueueRecords"])

    counts = process_queue_records(client, queue, handle, visibility=3, wait=1, drain=True)
    assert (counts.acknowledged, others) == (1, [])
    assert service.calls.count("UpdateQueueRecordsVisibility") >= 2


# -- in virtual time ------------------------------------------------------------------------------


@pytest.mark.requirement("QUE-5")
def test_what_waits_stays_invisible_and_is_not_begun_too_late(virtual: Virtual) -> None:
    service, client, clock = virtual()
    queue = service.create()
    for number in range(4):
        service.put("a", aggregate(number, 1))
    seen = []

    def handle(record: kpl.DeaggregatedRecord) -> None:
        seen.append(record.record_id)
        clock.sleep(100)
        assert not service.call("ReceiveQueueRecords", {"QueueARN": queue, "WaitTimeSeconds": 1})[
            "QueueRecords"
        ]

    counts = consume(client, queue, handle, clock)
    assert (len(seen), counts.acknowledged, counts.gone) == (4, 4, 0)
    # without beats, the first takes too long for the others
    for number in range(2):
        service.put("a", aggregate(number, 1))
    calls = len(service.calls)
    clock.beating_works = False
    counts = consume(client, queue, lambda record: clock.sleep(100), clock)
    assert "UpdateQueueRecordsVisibility" not in service.calls[calls:]
    assert (counts.kinesis_records, counts.user_records, counts.gone) == (3, 2, 1)


@pytest.mark.requirement("QUE-6")
def test_what_was_handled_is_not_handled_again(virtual: Virtual) -> None:
    service, client, clock = virtual()
    queue = service.create()
    service.put("a", aggregate(0, 5))
    attempts: dict[bytes, int] = {}
    times: list[float] = []

    def handle(record: kpl.DeaggregatedRecord) -> None:
        times.append(clock.now())
        attempts[record.data] = attempts.get(record.data, 0) + 1
        if record.data == b"0.3" and attempts[record.data] < 3:
            raise OSError

    store: set[str] = set()

    def once(key: str, call: Callable[[], object]) -> None:
        if key not in store:
            call()
            store.add(key)

    counts = consume(client, queue, handle, clock, once=once, wait=20)
    assert attempts == {b"0.0": 1, b"0.1": 1, b"0.2": 1, b"0.3": 3, b"0.4": 1}
    assert (counts.user_records, counts.skipped, counts.failed, counts.acknowledged) == (5, 6, 2, 1)
    assert store == {f"{queue}/r00000/{number}" for number in range(5)}
    assert {round(after - before) for before, after in itertools.pairwise(times)} == {0, 5, 10}


@pytest.mark.parametrize(
    ("size", "stored", "expected"),
    [
        (2, False, ["01", "23", "01", "23", "4"]),
        (16, False, ["01234"]),
        (2, True, ["0", "2", "2", "3", "4"]),  # with a store one at a time
    ],
)
def test_a_handler_of_batches(virtual: Virtual, size: int, stored: bool, expected: list[str]) -> None:
    service, client, clock = virtual()
    queue = service.create()
    service.put("a", aggregate(0, 5))
    batches: list[list[bytes]] = []
    store = {f"{queue}/r00000/1"}

    def once(key: str, call: Callable[[], object]) -> None:
        if key not in store:
            call()
            store.add(key)

    def handle(records: list[kpl.DeaggregatedRecord]) -> None:
        batches.append([record.data for record in records])
        if len(batches) == 2 and size == 2:
            raise OSError

    counts = consume(client, queue, handle, clock, batch=size, once=once if stored else None, wait=20)
    assert batches == [[b"0.%s" % number.encode() for number in group] for group in expected]
    failed = len(expected[1]) if size == 2 else 0
    assert (counts.user_records, counts.acknowledged) == (len("".join(expected)) - failed, 1)


@pytest.mark.parametrize("batch", [None, 100])
@pytest.mark.requirement("QUE-8")
def test_one_poisonous_user_record_takes_no_others_with_it(virtual: Virtual, batch: int | None) -> None:
    service, client, clock = virtual()
    queue = service.create()
    service.put("a", aggregate(0, 500))
    service.put("a", b"\xf3\x89\x9a\xc2" + bytes(30))
    handled: set[bytes] = set()
    aside: list[Poison] = []

    def handle(given: Any) -> None:
        for record in given if batch else [given]:
            if record.data == b"0.250":
                raise ValueError("never")
            handled.add(record.data)

    counts = consume(client, queue, handle, clock, batch=batch, on_poison=aside.append, wait=20)
    while counts.acknowledged < 2:
        clock.sleep(60)
        more = consume(client, queue, handle, clock, batch=batch, on_poison=aside.append, wait=20)
        counts.acknowledged += more.acknowledged
    assert handled == {b"0.%d" % number for number in range(500) if number != 250}
    opened, failed = aside
    assert (opened.user_record, type(opened.error)) == (None, kpl.ChecksumMismatch)
    assert failed.user_record is not None
    assert (failed.user_record.data, failed.kinesis_record.record_id) == (b"0.250", "r00000")
    assert str(failed.error) == "user record 250 of r00000 failed in delivery 5: ValueError [QUE-8]"
    assert isinstance(failed.error.__cause__, ValueError)
    # without a hook it becomes a dead letter, and what is behind it was not handled
    service, client, clock = virtual()
    queue = service.create()
    service.put("a", aggregate(0, 500))
    handled.clear()
    for _ in range(8):
        counts = consume(client, queue, handle, clock, batch=batch)
        clock.sleep(300)
    assert b"0.499" not in handled
    assert counts.kinesis_records == 0
    # the hook gets what is unhandled of the dead letter; the rest can be put again from it
    dead = consume(client, queue, handle, clock, batch=batch, on_poison=aside.append, dead_letters=True)
    assert (b"0.499" in handled, dead.acknowledged, len(aside)) == (True, 1, 3)


@pytest.mark.requirement("QUE-3", "QUE-4")
def test_what_the_service_refuses_is_tried_again_or_counted(virtual: Virtual) -> None:
    service, client, clock = virtual(rates=Rates(entries=0.5), seed=3)
    queue = service.create()
    for number in range(10):
        service.put("a", aggregate(number, 1))
    counts = consume(client, queue, lambda record: None, clock)
    assert counts.acknowledged + counts.not_acknowledged == counts.kinesis_records >= 10
    assert counts.acknowledged >= 8
    # an acknowledgement that comes too late: another consumer has it
    service, client, clock = virtual()
    queue = service.create(VisibilityTimeoutSeconds=5)
    service.put("a", aggregate(0, 1))
    clock.beating_works = False

    def slow(record: kpl.DeaggregatedRecord) -> None:
        clock.sleep(31)
        service.call("ReceiveQueueRecords", {"QueueARN": queue})

    counts = consume(client, queue, slow, clock)
    assert (counts.acknowledged, counts.not_acknowledged) == (0, counts.user_records)
    assert counts.user_records >= 1
    assert (
        service.calls.count("AcknowledgeQueueRecords") == counts.user_records
    )  # no second try: it cannot help


@pytest.mark.requirement("QUE-11")
def test_a_call_that_fails_is_repeated_or_raised(virtual: Virtual) -> None:
    service, client, clock = virtual(seed=1)
    queue = service.create()
    service.put("a", aggregate(0, 1))
    service.rates = Rates(calls=0.5)
    assert consume(client, queue, lambda record: None, clock).acknowledged == 1
    with pytest.raises(QueueUnavailable, match=r"ResourceNotFoundException.*check the name"):
        consume(client, queue[:-1] + "9", print, clock)
    service.rates = Rates(calls=1.0)
    began = clock.now()
    with pytest.raises(QueueUnavailable, match="ThrottlingException"):
        consume(client, queue, print, clock)
    assert 50 < clock.now() - began <= 61

    class Cut:
        def receive_queue_records(self, **_: Any) -> dict[str, Any]:
            return {}

    with pytest.raises(QueueUnavailable, match="an answer without QueueRecords"):
        consume(Cut(), queue, print, clock)  # type: ignore[arg-type]


@pytest.mark.requirement("QUE-9")
def test_a_stopped_consumer_ends_what_it_began_and_gives_back_the_rest(virtual: Virtual) -> None:
    service, client, clock = virtual()
    queue = service.create()
    for number in range(5):
        service.put("a", aggregate(number, 2))
    stop = Stop(clock)
    handled: list[str | None] = []

    def handle(record: kpl.DeaggregatedRecord) -> None:
        handled.append(record.record_id)
        stop.set()

    counts = consume(client, queue, handle, clock, stop=stop, drain=False)
    assert len(handled) == 2
    assert len(set(handled)) == 1
    assert (counts.acknowledged, counts.given_back) == (1, 4)
    answer = service.call("ReceiveQueueRecords", {"QueueARN": queue, "WaitTimeSeconds": 1})
    assert len(answer["QueueRecords"]) == 4


@pytest.mark.requirement("LMB-15")
def test_a_coroutine_function_is_no_handler(virtual: Virtual) -> None:
    service, client, clock = virtual()
    queue = service.create()
    service.put("a", aggregate(0, 1))

    async def handle(record: kpl.DeaggregatedRecord) -> None: ...

    counts = consume(client, queue, handle, clock)
    assert (counts.failed, counts.acknowledged) == (counts.kinesis_records, 0)


@pytest.mark.requirement("QUE-12")
def test_looking_into_a_queue_gives_everything_back(virtual: Virtual) -> None:
    service, client, _ = virtual()
    queue = service.create(DeadLetterConfiguration={"TargetType": "BUILT_IN", "MaxReceiveCount": 3})
    ids = {service.put("a", aggregate(number)) for number in range(25)}
    for _ in range(3):
        assert {record["RecordId"] for some in browse_queue(client, queue) for record in some} == ids
    assert list(browse_queue(client, queue)) == []
    for _ in range(2):
        dead = [record for some in browse_queue(client, queue, dead_letters=True) for record in some]
        assert {record["RecordId"] for record in dead} == ids
    refused: dict[str, str] = {}
    for some in browse_queue(client, queue, dead_letters=True):
        refused |= restore_dead_letters(client, queue, [record["ReceiptHandle"] for record in some])
    assert refused == {}
    again = [record for some in browse_queue(client, queue) for record in some]
    assert {record["RecordId"] for record in again} == ids
    assert restore_dead_letters(client, queue, ["gone"]) == {"gone": "ResourceNotFoundException"}


# -- what the service does rarely ------------------------------------------------------------------


@pytest.mark.requirement("QUE-3")
def test_an_entry_that_no_list_names_has_failed() -> None:
    answer = {
        "Successful": [{"ReceiptHandle": "a"}],
        "Failed": [{"ReceiptHandle": "b", "ErrorCode": "ThrottlingException"}],
    }
    assert refusals(["a", "b", "c"], answer) == {"b": "ThrottlingException", "c": "IncompleteAnswer"}
    both = {"Successful": [{"ReceiptHandle": "a"}], "Failed": [{"ReceiptHandle": "a", "ErrorCode": "X"}]}
    assert refusals(["a"], both) == {"a": "X"}


@pytest.mark.requirement("QUE-11")
@pytest.mark.parametrize("member", ["ReceiptHandle", "RecordId", "Data"])
def test_an_answer_with_a_record_cut_short_is_a_failed_call(member: str) -> None:
    record = {"ReceiptHandle": "h", "RecordId": "r", "Data": b""}
    assert missing("receive_queue_records", {"QueueRecords": [record]}) is None
    del record[member]
    assert missing("receive_queue_records", {"QueueRecords": [record]}) == "QueueRecords[].RecordId"


@pytest.mark.requirement("QUE-5")
def test_an_extension_that_was_refused_does_not_count(virtual: Virtual) -> None:
    service, _, clock = virtual()
    queue = service.create()
    for number in range(2):
        service.put("a", aggregate(number, 1))

    class Refusing(DirectClient):
        def update_queue_records_visibility(self, **arguments: Any) -> dict[str, Any]:
            failed = [{**entry, "ErrorCode": "InternalFailureException"} for entry in arguments["Entries"]]
            return {"Successful": [], "Failed": failed}

    counts = consume(Refusing(service), queue, lambda record: clock.sleep(40), clock)
    assert counts.gone >= 1


@pytest.mark.requirement("QUE-4")
def test_a_beat_that_cannot_acknowledge_leaves_it_for_later(virtual: Virtual) -> None:
    service, client, clock = virtual()
    queue = service.create()
    for number in range(2):
        service.put("a", aggregate(number, 1))
    handled: list[str | None] = []

    def handle(record: kpl.DeaggregatedRecord) -> None:
        handled.append(record.record_id)
        service.rates = Rates(calls=1.0)
        clock.sleep(5)  # beats fail meanwhile
        service.rates = Rates()

    counts = consume(client, queue, handle, clock)
    assert (len(handled), counts.acknowledged) == (2, 2)


@pytest.mark.requirement("QUE-12")
def test_what_a_queue_gives_twice_is_shown_once(virtual: Virtual) -> None:
    service, client, _ = virtual(rates=Rates(twice=1.0))
    queue = service.create()
    ids = {service.put("a", aggregate(number)) for number in range(15)}
    shown = [record["RecordId"] for some in browse_queue(client, queue) for record in some]
    assert sorted(shown) == sorted(ids)


@pytest.mark.requirement("AUD-7", "AUD-14", "AUD-19")
def test_what_came_from_a_queue_is_found_by_its_bytes(
    tmp_path: Path, virtual: Virtual, capsys: pytest.CaptureFixture[str]
) -> None:
    service, client, clock = virtual()
    queue = service.create()
    writer = Ledger(tmp_path / "produced").writer("orders")
    same = kpl.encode([kpl.UserRecord("a", b"1"), kpl.UserRecord("b", b"2")])
    for number, data in enumerate([same, same, b"plain", b"bad"]):
        service.put("a", data)
        writer.put("shardId-000000000000", str(100 + number), "a", data)
    writer.close()
    service.put("foreign", b"no ledger has it")

    def handle(record: kpl.DeaggregatedRecord) -> None:
        if record.data == b"bad":
            raise OSError

    consume(client, queue, handle, clock, ledger=Ledger(tmp_path / "handled"))
    sides = ["audit", "--produced", str(tmp_path / "produced"), "--handled", str(tmp_path / "handled")]
    found = []
    for until in ([], ["--until", "2100-01-01T00:00:00Z"]):
        assert main([*sides, *until, "--json"]) == 1
        answer = json.loads(capsys.readouterr().out)
        sums = answer["userRecords"]
        found.append((sums["delivered"], sums["handled"], sums["missing"], sums["tooEarly"]))
    assert found == [(6, 5, 0, 1), (6, 5, 1, 0)]
    assert {one["kind"]: one["userRecords"] for one in answer["kinds"]} == {
        "audit-missing": 1,
        "audit-unclaimed": 1,
    }


@pytest.mark.requirement("AUD-22")
def test_what_the_hook_of_a_queue_took_is_put_aside(tmp_path: Path, virtual: Virtual) -> None:
    """User records that fail again and again, and a record that cannot be opened."""
    service, client, clock = virtual()
    queue = service.create()
    writer = Ledger(tmp_path / "produced").writer("orders")
    good = kpl.encode([kpl.UserRecord("a", b"1"), kpl.UserRecord("b", b"bad"), kpl.UserRecord("c", b"3")])
    broken = kpl.encode([kpl.UserRecord("d", b"4")] * 2)
    for number, data in enumerate([good, broken[:-1] + bytes([broken[-1] ^ 1])]):
        service.put("a", data)
        writer.put("shardId-000000000000", str(100 + number), "a", data)
    writer.close()

    def handle(record: kpl.DeaggregatedRecord) -> None:
        if record.data == b"bad":
            raise OSError

    taken: list[object] = []
    ledger = Ledger(tmp_path / "handled")
    options: dict[str, Any] = {"on_poison": taken.append, "poison_after": 1, "after_failure": "continue"}
    consume(client, queue, handle, clock, ledger=ledger, **options)
    until = datetime(2100, 1, 1, tzinfo=timezone.utc)
    audited = audit([str(tmp_path / "produced")], [str(tmp_path / "handled")], until=until)
    sums = audited.facts["userRecords"]
    assert len(taken) == 2
    assert (sums["handled"], sums["missing"], sums["aside"]) == (2, 0, sums["delivered"] - 2)
    assert audited.audit.complete


@pytest.mark.requirement("AUD-7", "QUE-5")
def test_a_ledger_that_cannot_be_written_for_a_while_stops_no_beat(virtual: Virtual) -> None:
    service, client, clock = virtual()
    queue = service.create()
    for number in range(2):
        service.put("a", aggregate(number))
    lines: list[str] = []

    def line(text: str) -> None:
        if 5 < clock.now() - begun < 50:
            raise OSError("no space left")
        lines.append(text)

    begun = clock.now()
    counts = consume(client, queue, lambda record: clock.sleep(25), clock, ledger=Ledger(line))
    assert (counts.user_records, counts.acknowledged, counts.failed, counts.gone) == (6, 2, 0, 0)
    assert all(delivery.deliveries == 1 for delivery in service.queues[queue].deliveries)
    assert len(lines) >= 3
