"""A KCL that is killed at any point, and record processors that checkpoint anywhere and fail anywhere: at
each checkpoint the ledger has all that counts as handled, and never more."""

from __future__ import annotations

import gc
import io
import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import pytest
from amazon_kclpy import kcl
from amazon_kclpy.v2 import processor as _v2
from amazon_kclpy.v3 import processor as _v3
from hypothesis import given, settings
from hypothesis import strategies as st

from kpl_codec.audit import Ledger
from kpl_codec.audit.audit_run import audit_files
from kpl_codec.kcl import audited

from ..audit.model import SHARD, account, ledger_of, rows_of
from ..audit.test_law import names_with
from ..examples import examples

#: Sequence number and sub-sequence number; the first has two digits, then three.
Name = tuple[str, int]


class Killed(BaseException):
    """The process ends here."""


class Place:
    """Where a ledger is: lines, or an error while it is broken."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.broken = False

    def __call__(self, line: str) -> None:
        if self.broken:
            raise OSError("the disk is full")
        self.lines.append(line)

    def names(self) -> Counter[Name]:
        rows = [row for row in map(json.loads, self.lines) if row["kind"] == "handled"]
        assert {row["shard"] for row in rows} <= {SHARD}
        return Counter(
            (row["sequence_number"], row["sub_sequence_number"] + sub)
            for row in rows
            for sub in range(row["user_records"])
        )


def position(name: Name) -> tuple[int, int]:
    return int(name[0]), name[1]


class Kcl:
    """One shard, what a KCL does with it, and the truth: ``counted`` is handled, as often; of the batches for
    which the user's processor raised, ``skipped`` is not."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
        self.records = [(str(97 + number), sub) for number, size in enumerate(sizes) for sub in range(size)]
        self.checkpointed = self.delivered = (-1, 0)
        self.place = Place()
        self.counted, self.batch = Counter[Name](), list[Name]()
        self.skipped: set[Name] = set()

    def live(self) -> None:
        """From the checkpoint on, until the process is killed or the lease ends."""
        factory: Any = lambda: User(self)  # noqa: E731
        if self.draw(st.booleans()):
            factory = SimpleNamespace(shard_record_processor=factory)
        processor = audited(factory, stream="orders", ledger=Ledger(self.place))()
        processor.initialize(SimpleNamespace(shard_id=SHARD, sequence_number=None))
        rest = [name for name in self.records if position(name) > self.checkpointed]
        self.delivered, begun = self.checkpointed, len(self.place.lines)
        try:
            while rest and self.draw(st.integers(0, 9)):
                size = self.draw(st.integers(1, 6))
                self.batch, rest = rest[:size], rest[size:]
                self.delivered = position(self.batch[-1])
                if self.call(processor.process_records, records=[record(name) for name in self.batch]):
                    self.count(self.batch)
                self.skipped |= set(self.batch)
            self.batch = []
            if self.draw(st.booleans()):
                self.place.broken = False
                ways = [processor.shard_ended, processor.shutdown_requested, processor.lease_lost]
                self.call(self.draw(st.sampled_from(ways)))
                assert self.place.names() == self.counted  # AUD-26
                assert self.place.lines[begun:] == [] or '"kind":"end"' in self.place.lines[-1]
        except Killed:
            pass
        self.place.broken = False
        assert self.place.names() <= self.counted
        self.counted = self.place.names()  # nobody knows of the rest, and it comes again

    def call(self, method: Any, **facts: Any) -> bool:
        try:
            method(SimpleNamespace(checkpointer=self, **facts))
        except (ValueError, OSError):
            return False  # both libraries write it to their log, and go on
        return True

    def count(self, names: list[Name]) -> None:
        """These are handled, as far as they are of the batch and not counted yet."""
        self.counted.update(name for name in self.batch if name in names)
        self.batch = [name for name in self.batch if name not in names]
        assert self.place.names() <= self.counted

    # -- its checkpointer -------------------------------------------------------------------------

    def checkpoint(self, sequence_number: str | None = None, sub_sequence_number: int | None = None) -> None:
        assert self.place.names() == self.counted  # AUD-25
        where = self.delivered
        if sequence_number is not None:
            where = int(sequence_number), sub_sequence_number or 0
        self.checkpointed = max(self.checkpointed, where)

    def prepare_checkpoint(self, *where: Any) -> Any:
        where = where or (str(self.delivered[0]), self.delivered[1])
        return SimpleNamespace(checkpoint=lambda: self.checkpoint(*where), pending_checkpoint=where)


def record(name: Name) -> Any:
    return SimpleNamespace(sequence_number=name[0], sub_sequence_number=name[1])


class User:
    """A record processor that does anything a user may do."""

    def __init__(self, kcl: Kcl) -> None:
        self.kcl, self.draw = kcl, kcl.draw
        self.checkpointers: list[Any] = []
        self.prepared: list[Any] = []  # checkpoints that were prepared, and are not committed

    def initialize(self, kcl_input: Any) -> None:
        assert kcl_input.shard_id == SHARD

    def process_records(self, kcl_input: Any) -> None:
        names = [(one.sequence_number, one.sub_sequence_number) for one in kcl_input.records]
        self.checkpointers.append(kcl_input.checkpointer)
        # What was prepared in an earlier batch covers nothing of this one.
        for prepared in self.prepared[:]:
            if self.draw(st.booleans()):
                self.prepared.remove(prepared)
                with suppress(OSError):
                    prepared.checkpoint()
        for _ in range(self.draw(st.integers(0, 3))):
            self.kcl.place.broken = self.draw(st.integers(0, 4)) == 4
            # It may be one that was kept from an earlier call.
            self.checkpoint(self.draw(st.sampled_from(self.checkpointers)), names)
        self.fail()

    def checkpoint(self, checkpointer: Any, names: list[Name]) -> None:
        self.fail()
        where: tuple[Any, ...] = ()
        covered = names
        if names and self.draw(st.booleans()):
            where = name = self.draw(st.sampled_from(names))
            if self.draw(st.booleans()):  # without sub-sequence number: the KCL stores 0
                where, name = (name[0],), (name[0], 0)
            covered = [one for one in names if position(one) <= position(name)]
        if self.draw(st.booleans()):
            checkpointer, where = checkpointer.prepare_checkpoint(*where), ()
            if self.draw(st.booleans()):
                self.prepared.append(checkpointer)
                return
            self.fail()
        self.kcl.count(covered)
        try:
            checkpointer.checkpoint(*where)
        except OSError:
            assert self.kcl.place.broken
            if self.draw(st.booleans()):
                raise

    def fail(self) -> None:
        how = self.draw(st.sampled_from(["no", "no", "no", "no", "killed", "raises", "raises"]))
        if how == "killed":
            raise Killed
        if how == "raises":
            raise ValueError("of the user's processor")

    def end(self, kcl_input: Any) -> None:
        if self.draw(st.booleans()):
            kcl_input.checkpointer.checkpoint()
        if self.draw(st.booleans()):
            raise ValueError("of the user's processor")

    lease_lost = shard_ended = shutdown_requested = end


@pytest.mark.requirement("AUD-24", "AUD-25", "AUD-26", "AUD-34")
@settings(max_examples=examples(400))
@given(st.data())
def test_handled_is_what_was_returned_or_checkpointed_and_all_of_it_is_stored(data: st.DataObject) -> None:
    kcl = Kcl(data.draw)
    for _ in range(data.draw(st.integers(1, 4))):
        kcl.live()
    # What comes no more was handled, or the user's processor had raised.
    gone = {name for name in kcl.records if position(name) <= kcl.checkpointed}
    assert gone <= kcl.counted.keys() | kcl.skipped
    # Missing for the audit is what was not handled, and nothing else.
    sizes = Counter(number for number, _ in kcl.records)
    put = [row for number, size in sizes.items() for row in rows_of("delivered", number, user_records=size)]
    handled = "".join(f"{line}\n" for line in kcl.place.lines).encode()
    result = audit_files(
        account("produced", {"put": ledger_of("produced", put)}),
        account("handled", {"log": handled}),
        put_before=datetime.now(timezone.utc) + timedelta(days=1),
    )
    missing = names_with(result, lambda one: one.kind in ("audit-missing", "audit-unread"))
    assert {name[1:] for name in missing} == set(kcl.records) - kcl.counted.keys()
    assert not {one.kind for one in result.findings} & {"audit-unknown", "audit-unclaimed"}


def processor_of(place: Place, **members: Any) -> Any:
    """A record processor around one that does nothing else than ``members`` do."""
    user = SimpleNamespace(initialize=lambda _: None, process_records=lambda _: None, **members)
    processor = audited(lambda: user, stream="orders", ledger=Ledger(place))()
    processor.initialize(SimpleNamespace(shard_id=SHARD))
    return processor


@pytest.mark.requirement("AUD-24")
def test_without_any_checkpoint_rows_are_stored_all_the_same() -> None:
    """Else what is handled in a day would be kept in memory."""
    place = Place()
    processor = processor_of(place)
    names = [(str(1000 + number), 0) for number in range(6_000)]
    for start in range(0, len(names), 1000):
        batch = [record(name) for name in names[start : start + 1000]]
        processor.process_records(SimpleNamespace(records=batch, checkpointer=None))
    assert place.names() == Counter(names[:5_000])


def test_version_1_of_amazon_kclpy_is_refused() -> None:
    """Its methods take other arguments."""
    with pytest.raises(TypeError, match=r"version 1 are not audited: derive yours from amazon_kclpy\.v3"):
        processor_of(Place(), version=1)


@pytest.mark.requirement("AUD-25", "AUD-26")
@pytest.mark.parametrize("version", [_v2.RecordProcessorBase, _v3.RecordProcessorBase], ids=["2", "3"])
def test_the_process_of_amazon_kclpy_asks_for_a_checkpoint_of_what_is_stored(version: Any) -> None:
    place, names, asked = Place(), [("100", 0), ("100", 1)], list[Counter[Name]]()

    class Processor(version):  # type: ignore[misc]
        initialize = lease_lost = lambda self, kcl_input: None

        def process_records(self, kcl_input: Any) -> None:
            kcl_input.checkpointer.checkpoint("100", 0)

        shard_ended = shutdown_requested = shutdown = lambda self, given: given.checkpointer.checkpoint()

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            if json.loads(text)["action"] == "checkpoint":
                asked.append(place.names())
            return super().write(text)

    member = {"action": "record", "data": "eA==", "partitionKey": "k", "approximateArrivalTimestamp": 1}
    rows = [{**member, "sequenceNumber": number, "subSequenceNumber": sub} for number, sub in names]
    stored = {"action": "checkpoint", "sequenceNumber": "100", "subSequenceNumber": 0}
    lines = [
        {"action": "initialize", "shardId": SHARD, "sequenceNumber": "TRIM_HORIZON", "subSequenceNumber": 0},
        {"action": "processRecords", "records": rows, "millisBehindLatest": 5},
        *(stored, {"action": "shardEnded"}, stored),
    ]
    processor = audited(Processor, stream="orders", ledger=Ledger(place))()
    given_ = io.StringIO("".join(json.dumps(line) + "\n" for line in lines))
    kcl.KCLProcess(processor, given_, Out(), io.StringIO()).run()
    assert asked == [Counter(names[:1]), Counter(names)]
    assert '"kind":"end"' in place.lines[-1]


def test_kcl_rs_has_what_is_read_of_it() -> None:
    """(Its objects cannot be made here; the guide runs it.)"""
    kcl_rs = pytest.importorskip("kcl_rs")
    read = {
        kcl_rs.Record: "binary_data partition_key sequence_number sub_sequence_number timestamp_millis",
        kcl_rs.InitializeInput: "shard_id",
        kcl_rs.ProcessRecordsInput: "records checkpointer",
        kcl_rs.Checkpointer: "checkpoint prepare_checkpoint",
        kcl_rs.PreparedCheckpointer: "checkpoint",
    }
    assert {kind: names for kind, names in read.items() if set(names.split()) - set(dir(kind))} == {}


@pytest.mark.requirement("AUD-33")
def test_a_scheduler_of_several_streams_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """kcl_rs goes on with a processor whose `initialize` has raised."""
    monkeypatch.setattr("kpl_codec.kcl._LEASE_ENDS", 0.01)
    user = SimpleNamespace(initialize=lambda _: None, lease_lost=lambda _: None)
    factory = audited(lambda: user, stream="orders", ledger=Ledger(Place()))
    first, second, other = factory(), factory(), factory()
    first.initialize(SimpleNamespace(shard_id=SHARD))
    other.initialize(SimpleNamespace(shard_id="shardId-000000000001"))
    with pytest.raises(ValueError, match=r"two leases in this process.*audited\(stream=...\)"):
        second.initialize(SimpleNamespace(shard_id=SHARD))
    with pytest.raises(ValueError, match=r"two leases in this process"):
        second.process_records(SimpleNamespace(records=[], checkpointer=None))
    second.lease_lost(SimpleNamespace())  # it has none
    with pytest.raises(ValueError, match=r"two leases in this process"):
        second.initialize(SimpleNamespace(shard_id=SHARD))
    first.lease_lost(SimpleNamespace())
    second.initialize(SimpleNamespace(shard_id=SHARD))  # the lease came back
    del second  # a scheduler that ended without a word
    gc.collect()
    factory().initialize(SimpleNamespace(shard_id=SHARD))


@pytest.mark.requirement("AUD-33")
def test_of_leases_that_begin_at_the_same_moment_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """As kcl_rs begins with two streams. A dictionary that gives up its thread between look-up and entry."""
    begun: list[Any] = []
    user = SimpleNamespace(initialize=begun.append, lease_lost=lambda _: None)
    factory = audited(lambda: user, stream="orders", ledger=Ledger(Place()))
    processors = [factory() for _ in range(4)]
    look_up = WeakValueDictionary.setdefault

    def slow(self: Any, key: str, default: Any) -> Any:
        if key not in self:
            time.sleep(0.01)
            self[key] = default
        return look_up(self, key, default)

    monkeypatch.setattr("kpl_codec.kcl._LEASE_ENDS", 0.01)
    monkeypatch.setattr(WeakValueDictionary, "setdefault", slow)
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(one.initialize, SimpleNamespace(shard_id=SHARD)) for one in processors]
    assert len(begun) == sum(one.exception() is None for one in done) == 1


@pytest.mark.requirement("AUD-33")
def test_a_lease_that_comes_back_waits_for_the_end_of_the_earlier_one() -> None:
    begun: list[Any] = []
    user = SimpleNamespace(initialize=begun.append, lease_lost=lambda _: None)
    factory = audited(lambda: user, stream="orders", ledger=Ledger(Place()))
    first, second = factory(), factory()
    first.initialize(SimpleNamespace(shard_id=SHARD))
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(second.initialize, SimpleNamespace(shard_id=SHARD))
        first.lease_lost(SimpleNamespace())
        assert done.result(60) is None
    assert len(begun) == 2
