"""amazon_kclpy's own KCLProcess around an audited record processor. A daemon sends it whatever the KCL's own
daemon may send. The ledger has what was handled, and has it before the KCL stores a checkpoint."""

from __future__ import annotations

import base64
import contextlib
import io
import json
from typing import Any

import pytest
from amazon_kclpy import kcl
from amazon_kclpy.v2 import processor as _v2
from amazon_kclpy.v3 import processor as _v3
from hypothesis import given, settings
from hypothesis import strategies as st

from kpl_codec.audit import Ledger
from kpl_codec.kcl import audited

from ..examples import examples
from .test_audited import SHARD, Killed, Name, Place, position

#: What the daemon answers where it does not store a checkpoint.
ERRORS = ["ThrottlingException", "ShutdownException", "KinesisClientLibDependencyException"]


class Daemon:
    """One shard. It is standard input and standard output of the process that it drives."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
        self.records = [(str(97 + number), sub) for number, size in enumerate(sizes) for sub in range(size)]
        self.stored = (-1, 0)
        self.place = Place()
        #: Handled: the batch was returned, or a checkpoint that covers it was asked for. Raised: the rest of
        #: a batch whose processor raised.
        self.handled, self.raised = set[Name](), set[Name]()

    def live(self, version: Any) -> None:
        """From the stored checkpoint on, until the process ends."""
        self.delivered = self.stored
        self.rest = [name for name in self.records if position(name) > self.stored]
        self.answer: dict[str, Any] | None = None
        number = "TRIM_HORIZON" if self.stored[0] < 0 else str(self.stored[0])
        first = {"action": "initialize", "shardId": SHARD, "sequenceNumber": number}
        self.next = first | {"subSequenceNumber": self.stored[1]}

        class Processor(User, version):  # type: ignore[misc]
            daemon = self

        factory = audited(Processor, stream="orders", ledger=Ledger(self.place))
        with contextlib.suppress(Killed):
            kcl.KCLProcess(factory(), self, self, io.StringIO()).run()

    # -- standard output and standard input of the process --------------------------------------------

    def write(self, text: str) -> None:
        said = json.loads(text)
        if said["action"] == "status":
            self.next = self.action_after(said["responseFor"])
            return
        self.may_kill()
        number, sub = said["sequenceNumber"], said["subSequenceNumber"]
        self.next = {"action": "checkpoint", "sequenceNumber": number, "subSequenceNumber": sub}
        if self.draw(st.integers(0, 3)) == 3:
            self.next["error"] = self.draw(st.sampled_from(ERRORS))
            return
        where = self.delivered if number is None else (int(number), sub or 0)
        self.stored = max(self.stored, where)
        self.check()
        self.may_kill()

    def flush(self) -> None:
        pass

    def readline(self) -> str:
        sent, self.next = self.next, {}
        return json.dumps(sent) + "\n" if sent else ""

    # -- what happens ---------------------------------------------------------------------------------

    def may_kill(self) -> None:
        if self.draw(st.integers(0, 19)) == 19:
            raise Killed

    def action_after(self, action: str) -> dict[str, Any]:
        """Nothing ends the process, as after the last action of a shard."""
        if action not in ("initialize", "processRecords"):
            return {}
        self.may_kill()
        if not self.rest:
            return {"action": "shardEnded"}
        how = self.draw(st.sampled_from(["records"] * 7 + ["leaseLost", "shutdownRequested", ""]))
        if how != "records":
            return {"action": how} if how else {}
        size = self.draw(st.sampled_from([1, 2, 3, 7, 0]))  # the simplest comes first, and ends
        batch, self.rest = self.rest[:size], self.rest[size:]
        if batch:
            self.delivered = position(batch[-1])
        rows = [
            {
                "action": "record",
                "data": base64.b64encode(b"x").decode(),
                "partitionKey": "k",
                "sequenceNumber": number,
                "subSequenceNumber": sub,
                "approximateArrivalTimestamp": 1_700_000_000_000,
            }
            for number, sub in batch
        ]
        return {"action": "processRecords", "records": rows, "millisBehindLatest": 5}

    def check(self) -> None:
        """Whatever the KCL will not give again is in the ledger, or was in a batch whose processor raised."""
        names = set(self.place.names())
        assert names <= self.handled
        assert {name for name in self.records if position(name) <= self.stored} <= names | self.raised


class User:
    """A record processor that does anything a user may do, of either version."""

    daemon: Daemon

    def initialize(self, given_: Any) -> None:
        assert given_.shard_id == SHARD

    def process_records(self, given_: Any) -> None:
        draw, names = (
            self.daemon.draw,
            [(one.sequence_number, one.sub_sequence_number) for one in given_.records],
        )
        for _ in range(draw(st.integers(0, 2))):
            where: tuple[Any, ...] = ()
            if names and draw(st.booleans()):
                where = draw(st.sampled_from(names))
            covered = [name for name in names if not where or position(name) <= position(where)]  # type: ignore[arg-type]
            self.daemon.handled |= set(covered)
            names = [name for name in names if name not in covered]
            with contextlib.suppress(kcl.CheckpointError):
                given_.checkpointer.checkpoint(*where)
        if draw(st.integers(0, 4)) == 4:
            self.daemon.raised |= set(names)
            raise ValueError("of the user's processor")
        self.daemon.handled |= set(names)

    def end(self, given_: Any) -> None:
        if self.daemon.draw(st.booleans()):
            given_.checkpointer.checkpoint()

    shard_ended = shutdown_requested = end

    def lease_lost(self, given_: Any) -> None:
        pass

    def shutdown(self, given_: Any) -> None:  # version 2
        if given_.reason == "TERMINATE":
            self.end(given_)


@pytest.mark.requirement("AUD-24", "AUD-25", "AUD-26", "CAP-7")
@pytest.mark.parametrize("version", [_v2.RecordProcessorBase, _v3.RecordProcessorBase], ids=["2", "3"])
@settings(max_examples=examples(300))
@given(data=st.data())
def test_what_the_kcl_does_not_give_again_is_in_the_ledger(version: Any, data: st.DataObject) -> None:
    daemon = Daemon(data.draw)
    for _ in range(data.draw(st.integers(1, 4))):
        daemon.live(version)
        daemon.check()
