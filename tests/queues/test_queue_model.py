"""Consumers that are killed anywhere, on a queue that does all that it may: no user record is lost, none is
acknowledged unhandled, and doubles are only where the service doubles.

One run: aggregates are put; consumers of one kind run one after the other, each killed at some step (before
or after a call takes effect, in the middle of the handler, between the handler and the store of ``once``),
the last one not. Handlers take time, and fail for a while or always. All happens in virtual time. The
consumers have a ledger: an audit of it never calls handled what was not.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.audit import Ledger
from kpl_codec.audit.audit_run import audit
from kpl_codec.aws_lambda import Poison
from kpl_codec.queues import QueueUnavailable

from .bench import KINDS, Bench, Store
from .queue_model import model_of
from .queue_service import NEVER, DirectClient, Rates

Name = tuple[str | None, int]


class Killed(BaseException):
    """The process has ended: nothing of it runs from here on."""


class World(Bench):
    """A service, and what really happened to each user record (Kinesis record, number)."""

    def __init__(self, model: Any, plan: dict[str, Any]) -> None:
        super().__init__(model, plan["kind"], seed=plan["seed"])
        self.queue = self.service.create(most_receives=MOST_RECEIVES)
        self.service.rates = plan["rates"]
        self.users: dict[str, int] = {}
        for size in plan["sizes"]:
            data = kpl.encode([kpl.UserRecord("k", b"%d" % number) for number in range(size)])
            self.users[self.service.put("a", data)] = size
        self.handled: Counter[Name] = Counter()
        self.aside: Counter[Name] = Counter()
        self.store = Store(step=self.step)
        self.lines: list[str] = []
        self.steps_left = 10**9
        self.dead = False
        self.service.on_acknowledge = self._acknowledge

    def step(self, count: int = 1) -> None:
        """The process may be killed here."""
        self.steps_left -= count
        if self.dead or self.steps_left < 0:
            self.dead = True
            raise Killed

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

    def names(self, record_id: str) -> list[Name]:
        return [(record_id, number) for number in range(self.users[record_id])]

    def _acknowledge(self, record_id: str) -> None:
        missing = [name for name in self.names(record_id) if not self.handled[name] and not self.aside[name]]
        assert not missing, f"acknowledged, but not handled: {missing}"

    def run(self, steps: int, handle: Any, **options: Any) -> None:
        """One consumer, until its process is killed after ``steps`` or the queue is empty."""
        self.dead, self.steps_left = False, steps
        try:
            self.consume(self.queue, handle, client=DirectClient(self.service, self.step), **options)
        except (Killed, QueueUnavailable):
            return


MOST_RECEIVES = 8


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=14))
    names = [(f"r{r:05d}", number) for r, size in enumerate(sizes) for number in range(size)]
    rate = st.sampled_from([0.0, 0.0, 0.1, 0.4])
    return {
        "kind": draw(st.sampled_from(KINDS)),
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


def run(model: Any, plan: dict[str, Any]) -> World:
    world = World(model, plan)
    failures_left = dict(plan["fails"])

    async def handle(given: Any) -> None:
        world.step()
        for record in given if plan["batch"] is not None else [given]:
            name = record.record_id, record.sub_sequence_number
            await world.pause(plan["slow"].get(name, 0))
            world.step(0)
            if failures_left.get(name, 0) > 0:
                failures_left[name] -= 1
                raise OSError(name)
            world.handled[name] += 1
        world.step()

    def aside(poison: Poison) -> None:
        world.step()
        assert poison.user_record is not None
        assert poison.event_record["ReceiveCount"] >= MOST_RECEIVES - 2
        world.aside[poison.user_record.record_id, poison.user_record.sub_sequence_number] += 1

    options: dict[str, Any] = {
        "batch": plan["batch"],
        "after_failure": plan["after_failure"],
        "once": world.store.once if plan["once"] else None,
        "ledger": Ledger(world.line),
    }
    if plan["poison"]:
        options |= {"on_poison": aside, "poison_after": MOST_RECEIVES - 2}
    for steps in plan["kills"]:
        world.run(steps, handle, **options)
        world.clock.sleep(1)
    world.service.rates = NEVER
    for _ in range(12):  # until nothing is delivered: what fails waits longer and longer
        world.run(10**9, handle, **options)
        world.clock.sleep(900)
    return world


#: A dead letter, of which a part was handled.
DEAD: dict[str, Any] = {
    "kind": "threads", "sizes": [3, 3], "rates": NEVER, "seed": 0, "kills": [], "fails": {("r00000", 1): 99},
    "slow": {}, "once": False, "batch": None, "poison": False, "after_failure": "stop",
}  # fmt: skip


@pytest.mark.requirement("QUE-2", "QUE-5", "QUE-6", "QUE-8", "AUD-7", "AUD-11", "AUD-19")
@settings(deadline=None)
@example(plan=DEAD)
@given(plan=worlds())
def test_nothing_is_lost_whatever_happens(newest_boto3: Path, plan: dict[str, Any]) -> None:
    world = run(model_of(newest_boto3), plan)
    deliveries = world.service.queues[world.queue].deliveries
    for delivery in deliveries:
        names = world.names(delivery.record.record_id)
        settled = all(world.handled[name] or world.aside[name] for name in names)
        # Nothing is lost: it was handled, or put aside, or it is a dead letter.
        assert delivery.acknowledged or delivery.dead
        assert settled or delivery.dead
        for name in names:
            # A duplicate needs a delivery of its own.
            assert world.handled[name] + world.aside[name] <= delivery.deliveries
    if plan["poison"] and not plan["kills"] and not any(plan["rates"]):
        assert all(delivery.acknowledged for delivery in deliveries)

    check_audit(world, plan)


def check_audit(world: World, plan: dict[str, Any]) -> None:
    """It calls handled what was handled."""
    everything = sum(world.users.values())
    early = world.audited(None).audit
    assert early.total("missing") == 0
    late = world.audited(datetime(2100, 1, 1, tzinfo=timezone.utc)).audit
    missing = late.total("missing") + late.total("unknown")
    aside_too = missing + late.total("aside")
    assert early.total("too_early") == missing
    assert not late.unclaimed
    # Which of several with the same keys and data it was, nobody can tell from outside, and nobody needs to.
    deliveries = world.service.queues[world.queue].deliveries
    acknowledged = {delivery.record.record_id for delivery in deliveries if delivery.acknowledged}
    aside = {name for name in world.aside if not world.handled[name]}
    surely = {name for record_id in acknowledged for name in world.names(record_id)} - aside
    assert len(surely) <= everything - aside_too <= len(+world.handled)
    # Of a group that failed a part may have been handled, which the ledger does not say.
    if not plan["kills"] and (plan["once"] or plan["batch"] != 3):
        assert everything - aside_too == len(+world.handled)
        assert late.total("aside") <= len(aside)


@pytest.mark.requirement("QUE-6")
@settings(deadline=None)
@given(plan=worlds())
def test_with_a_store_only_a_kill_makes_duplicates(newest_boto3: Path, plan: dict[str, Any]) -> None:
    """It comes between the end of the handler and the store; on asyncio ten handlers run in parallel."""
    world = run(model_of(newest_boto3), {**plan, "once": True, "batch": None})
    duplicates = sum(count - 1 for count in (world.handled + world.aside).values())
    assert duplicates <= len(plan["kills"]) * (1 if plan["kind"] == "threads" else 10)
    assert len(world.store.keys) == len(world.handled + world.aside)


@settings(deadline=None)
@given(plan=worlds())
def test_nobody_else_gets_what_is_being_handled(newest_boto3: Path, plan: dict[str, Any]) -> None:
    """Where the service does as it says: no second delivery but after a failure."""
    world = run(model_of(newest_boto3), {**plan, "rates": NEVER, "kills": [], "batch": None, "once": False})
    for delivery in world.service.queues[world.queue].deliveries:
        failures = sum(plan["fails"].get(name, 0) for name in world.names(delivery.record.record_id))
        assert delivery.deliveries <= 1 + failures
