"""Consumers that are killed anywhere, on a queue that does all that it may: no user record is lost, none is
acknowledged unhandled, and doubles are only where the service doubles.

One run: aggregates are put; consumers come one after the other, each killed at some step (before or after a
call takes effect, in the middle of the handler, between the handler and the store of ``once``), the last one
not. Handlers take time, fail for a while, or always. Everything happens in virtual time. The consumers have a
ledger: an audit of it never calls handled what was not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.audit import Ledger
from kpl_codec.audit.audit_run import audit
from kpl_codec.aws_lambda import Poison
from kpl_codec.queues import QueueUnavailable, process_queue_records

from .queue_model import model_of
from .queue_service import DirectClient, QueueService, Rates, VirtualClock
from .test_threaded_consumer import Stop

Name = tuple[str | None, int]


class Killed(BaseException):
    """The process is gone: nothing of it runs from here on."""


class World:
    """A service, and what really happened to each user record (Kinesis record, number)."""

    def __init__(self, model: Any, sizes: list[int], rates: Rates, seed: int, max_receives: int) -> None:
        self.clock = VirtualClock()
        self.service = QueueService(model, self.clock, seed=seed, rates=Rates())
        dead_letters = {"TargetType": "BUILT_IN", "MaxReceiveCount": max_receives}
        self.queue = self.service.create(DeadLetterConfiguration=dead_letters)
        self.service.rates = rates
        self.users: dict[str, int] = {}
        for size in sizes:
            data = kpl.encode([kpl.UserRecord("k", b"%d" % number) for number in range(size)])
            self.users[self.service.put("a", data)] = size
        self.handled: Counter[Name] = Counter()
        self.aside: Counter[Name] = Counter()
        self.store: set[str] = set()
        self.lines: list[str] = []
        self.steps_left = 10**9
        self.dead = False
        self.killed_after_handling: Counter[Name] = Counter()
        self.handling: str | None = None
        self.service.on_acknowledge = self._acknowledged

    def step(self) -> None:
        """The process may be killed here."""
        if self.dead or self.steps_left <= 0:
            self.dead = True
            raise Killed
        self.steps_left -= 1

    def line(self, text: str) -> None:
        """Takes a line of the consumers' ledgers."""
        self.step()
        self.lines.append(text)
        self.step()

    def audited(self, until: datetime | None) -> Any:
        """Compare with what was put, of which the producer's ledger has the digests."""
        with TemporaryDirectory() as scratch:
            writer = Ledger(f"{scratch}/produced").writer("orders")
            for number, record in enumerate(self.service.records):
                writer.put("shardId-000000000000", str(1000 + number), record.partition_key, record.data)
            writer.close()
            handled = Path(scratch, "handled.log")
            handled.write_text("".join(f"{line}\n" for line in self.lines))
            return audit([f"{scratch}/produced"], [str(handled)], until=until)

    def _acknowledged(self, record_id: str) -> None:
        missing = [
            number
            for number in range(self.users[record_id])
            if not self.handled[record_id, number] and not self.aside[record_id, number]
        ]
        assert not missing, f"{record_id} is acknowledged, but not handled: {missing}"

    def once(self, key: str, call: Callable[[], object]) -> None:
        self.step()
        if key not in self.store:
            call()
            self.step()
            self.store.add(key)

    def consume(self, handle: Any, **options: Any) -> None:
        self.dead = False
        client = DirectClient(self.service, self.step, self.step)
        with mock.patch("kpl_codec.queues.threaded_consumer.beating", self.clock.beating):
            try:
                process_queue_records(
                    client, self.queue, handle, stop=Stop(self.clock), clock=self.clock.now,
                    sleep=self.clock.sleep, drain=True, **options,
                )  # fmt: skip
            except (Killed, QueueUnavailable):
                self.clock.beats = []

    def deliveries(self, record_id: str | None) -> int:
        (one,) = (d for d in self.service.queues[self.queue].deliveries if d.record.record_id == record_id)
        return one.deliveries


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=14))
    names = [(f"r{r:05d}", number) for r, size in enumerate(sizes) for number in range(size)]
    rate = st.sampled_from([0.0, 0.0, 0.1, 0.4])
    return {
        "sizes": sizes,
        "rates": Rates(draw(rate), draw(rate), draw(st.sampled_from([0.0, 0.0, 0.1]))),
        "seed": draw(st.integers(0, 10**6)),
        "kills": draw(st.lists(st.integers(0, 60), max_size=4)),
        "fails": draw(st.dictionaries(st.sampled_from(names), st.integers(1, 99), max_size=3)),
        "slow": draw(st.dictionaries(st.sampled_from(names), st.sampled_from([5, 40, 200]), max_size=3)),
        "once": draw(st.booleans()),
        "batch": draw(st.sampled_from([None, 1, 3])),
        "poison": draw(st.booleans()),
        "after_failure": draw(st.sampled_from(["stop", "continue"])),
    }


def run(model: Any, plan: dict[str, Any], *, max_receives: int = 8) -> World:
    world = World(model, plan["sizes"], plan["rates"], plan["seed"], max_receives)
    left = dict(plan["fails"])

    def one(name: Name) -> None:
        if left.get(name, 0) > 0:
            left[name] -= 1
            raise OSError(name)
        world.handled[name] += 1

    def handle(given: Any) -> None:
        records = given if plan["batch"] is not None else [given]
        world.step()
        for record in records:
            name = record.record_id, record.sub_sequence_number
            world.clock.sleep(plan["slow"].get(name, 0))
            one(name)
        world.step()

    def aside(poison: Poison) -> None:
        world.step()
        assert poison.user_record is not None
        assert poison.event_record["ReceiveCount"] >= max_receives - 2
        world.aside[poison.user_record.record_id, poison.user_record.sub_sequence_number] += 1

    options: dict[str, Any] = {
        "batch": plan["batch"],
        "after_failure": plan["after_failure"],
        "once": world.once if plan["once"] else None,
        "on_poison": aside if plan["poison"] else None,
        "poison_after": max_receives - 2,
        "ledger": Ledger(world.line),
    }
    for steps in plan["kills"]:
        world.steps_left = steps
        world.consume(handle, **options)
        world.clock.sleep(1)
    world.steps_left = 10**9
    for _ in range(12):  # until nothing comes any more: what fails waits longer and longer
        world.service.rates = Rates()
        world.consume(handle, **options)
        world.clock.sleep(900)
    return world


@pytest.mark.requirement("QUE-2", "QUE-5", "QUE-6", "QUE-8")
@settings(deadline=None)
@given(plan=worlds())
def test_nothing_is_lost_whatever_happens(newest_boto3: Path, plan: dict[str, Any]) -> None:
    world = run(model_of(newest_boto3), plan)
    deliveries = world.service.queues[world.queue].deliveries
    for delivery in deliveries:
        record_id = delivery.record.record_id
        names = [(record_id, number) for number in range(world.users[record_id])]
        settled = all(world.handled[name] or world.aside[name] for name in names)
        # Nothing is lost: it was handled, or put aside, or it is a dead letter.
        assert delivery.acknowledged or delivery.dead
        assert settled or delivery.dead
        for name in names:
            # A double needs a delivery of its own.
            assert world.handled[name] + world.aside[name] <= delivery.deliveries
    if plan["poison"] and not plan["kills"] and not any(plan["rates"]):
        assert all(delivery.acknowledged for delivery in deliveries)


#: A dead letter, of which a part was handled.
DEAD: dict[str, Any] = {
    "sizes": [3, 3], "rates": Rates(), "seed": 0, "kills": [], "fails": {("r00000", 1): 99}, "slow": {},
    "once": False, "batch": None, "poison": False, "after_failure": "stop",
}  # fmt: skip


@pytest.mark.requirement("AUD-7", "AUD-11", "AUD-19")
@settings(deadline=None)
@example(plan=DEAD)
@given(plan=worlds())
def test_an_audit_calls_handled_what_was_handled(newest_boto3: Path, plan: dict[str, Any]) -> None:
    world = run(model_of(newest_boto3), plan)
    everything = sum(world.users.values())
    early = world.audited(None).audit
    assert len(early.missing) == 0
    told = world.audited(datetime(2100, 1, 1, tzinfo=timezone.utc)).audit
    missing = len(told.missing) + len(told.unknown)
    aside_too = missing + len(told.aside)
    assert len(early.too_early) == missing
    assert not told.unclaimed
    # Which of several with the same keys and data it was, nobody can tell from outside, and nobody needs to.
    acknowledged = {
        d.record.record_id for d in world.service.queues[world.queue].deliveries if d.acknowledged
    }
    aside = {name for name in world.aside if not world.handled[name]}
    surely = {(key, n) for key in acknowledged for n in range(world.users[str(key)])} - aside
    assert len(surely) <= everything - aside_too <= len(+world.handled)
    if not plan["kills"]:
        assert everything - aside_too == len(+world.handled)
        assert len(told.aside) <= len(aside)


@pytest.mark.requirement("QUE-6")
@settings(deadline=None)
@given(plan=worlds())
def test_with_a_store_only_a_kill_doubles(newest_boto3: Path, plan: dict[str, Any]) -> None:
    """Between the handler's end and the store: nobody can know of it."""
    world = run(model_of(newest_boto3), {**plan, "once": True, "batch": None})
    doubles = sum(count - 1 for count in (world.handled + world.aside).values())
    assert doubles <= len(plan["kills"])
    assert len(world.store) == len(world.handled + world.aside)


@settings(deadline=None)
@given(plan=worlds())
def test_nobody_else_gets_what_is_being_handled(newest_boto3: Path, plan: dict[str, Any]) -> None:
    """Where the service does as it says: no second delivery but after a failure."""
    plan = {**plan, "rates": Rates(), "kills": [], "batch": None, "once": False}
    world = run(model_of(newest_boto3), plan)
    for delivery in world.service.queues[world.queue].deliveries:
        failures = sum(
            plan["fails"].get((delivery.record.record_id, number), 0)
            for number in range(world.users[delivery.record.record_id])
        )
        assert delivery.deliveries <= 1 + failures


def test_what_is_older_than_the_retention_is_not_delivered(newest_boto3: Path) -> None:
    clock = VirtualClock()
    service = QueueService(model_of(newest_boto3), clock, retention=3600)
    queue = service.create()
    service.put("a", b"old")
    clock.sleep(3601)
    service.put("a", b"new")
    seen: list[bytes] = []
    counts = process_queue_records(
        DirectClient(service), queue, lambda record: seen.append(record.data), drain=True, stop=Stop(clock),
        clock=clock.now, sleep=clock.sleep,
    )  # fmt: skip
    assert (seen, counts.acknowledged) == ([b"new"], 1)
