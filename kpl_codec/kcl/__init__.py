"""Writes a ledger of the user records that a KCL record processor in Python has handled, before each
checkpoint.

    kcl_rs         Scheduler(record_processor_factory=audited(Processor, stream="orders", ledger=...), ...)
    amazon_kclpy   KCLProcess(audited(Processor, stream="orders", ledger=...)()).run()

It imports neither library: their record processors, checkpointers and records have the same members.
Specification: spec/15-audit.md, section 15.5.

    >>> from types import SimpleNamespace
    >>> from kpl_codec.audit import Ledger
    >>> from kpl_codec.kcl import audited
    >>> class Processor:  # of kcl_rs.RecordProcessorBase, or amazon_kclpy's
    ...     def initialize(self, given):
    ...         self.shard_id = given.shard_id
    ...     def process_records(self, given):
    ...         given.checkpointer.checkpoint(given.records[0].sequence_number, 0)
    ...     def lease_lost(self, given): ...
    ...     shard_ended = shutdown_requested = lease_lost
    >>> lines: list[str] = []
    >>> processor = audited(Processor, stream="orders", ledger=Ledger(lines.append))()

What the KCL calls; the line of the ledger stands before the checkpoint:

    >>> processor.initialize(SimpleNamespace(shard_id="shardId-000000000000"))
    >>> records = [SimpleNamespace(sequence_number="4957", sub_sequence_number=n) for n in range(3)]
    >>> stored = SimpleNamespace(checkpoint=lambda *_: print("handled" in lines[-1]))
    >>> processor.process_records(SimpleNamespace(records=records, checkpointer=stored))
    True
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partialmethod
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from ..base.arguments import check_arguments
from ..base.lazy import public_names
from ..ledger.ledger_rows import Row, runs
from ..shards.stream_name import stream_of

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger, Writer

__all__ = ["audited"]
__dir__ = public_names(__name__)

#: The most rows that wait for a checkpoint.
_MOST_ROWS: Final = 5000
#: Held while a processor looks whether another one has its shard id; seconds that it waits for its end.
_LEASES: Final = threading.Condition()
_LEASE_ENDS: Final = 5.0
#: Sequence and sub-sequence number of each user record of one call that does not count as handled yet.
_Batch = deque[tuple[str, int]]


def audited(processor_factory: Any, *, stream: str, ledger: Ledger) -> Callable[[], Any]:
    """A factory of record processors that do what those of ``processor_factory`` do, and write a ledger.

    * ``processor_factory``: makes a record processor of amazon_kclpy (versions 2 and 3) or kcl_rs: its class,
      a function, or an object with ``shard_record_processor()``.
    * ``stream``: name or ARN. The KCL names only the shard, so each stream needs a scheduler and a factory: a
      second lease of one shard id is refused, in ``initialize`` and in each ``process_records``.
    * ``ledger``: a `kpl_codec.audit.Ledger`; TypeError for anything else. Each lease gets its own writer.

    A batch counts as handled when ``process_records`` returns; if it raises, the batch does not count, and
    the KCL goes on with the next one. A checkpoint within ``process_records`` counts what it covers, up to
    its sub-sequence number (0 without one, as the KCL stores it); a prepared one what it covered when it was
    prepared.

    The rows that count are stored before the KCL gets a checkpoint, and when 5,000 rows wait for one. If
    storing fails, ``checkpoint`` raises OSError, or what S3 raises; the KCL gets no checkpoint, and the next
    checkpoint stores the rows.
    """
    check_arguments("audited", locals(), required=("ledger",))
    stream_of(stream)
    leases = WeakValueDictionary[str, _Audited]()

    def processor() -> _Audited:
        make = getattr(processor_factory, "shard_record_processor", processor_factory)
        return _Audited(make(), stream, ledger, leases)

    return processor


class _Proxy:
    """An object of the KCL with some of its members replaced."""

    def __init__(self, wrapped: Any, **members: Any) -> None:
        self.__dict__ |= {**members, "_wrapped": wrapped}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


class _Audited:
    """The record processor that the KCL gets. The user's own may checkpoint from another thread."""

    def __init__(self, processor: Any, stream: str, ledger: Ledger, leases: Any) -> None:
        self.version = getattr(processor, "version", 3)
        if self.version not in (2, 3):
            raise TypeError(
                f"record processors of version {self.version} are not audited: derive yours from "
                "amazon_kclpy.v3.processor.RecordProcessorBase"
            )
        self._processor, self._stream, self._ledger = processor, stream, ledger
        self._leases = leases  # processors of this process, by shard id
        self._shard_id, self._is_refused = "", False
        self._lock = threading.RLock()
        self._batch = _Batch()
        self._rows: list[Row] = []  # rows that count and are not stored yet
        self._writer: Writer | None = None

    def initialize(self, kcl_input: Any) -> None:
        self._shard_id = kcl_input.shard_id
        # AUD-33: "A scheduler of several streams MUST be refused where it shows: its rows would be of one
        # stream."
        with _LEASES:  # a scheduler begins with its leases in several threads; a lease may come back at once
            mine = _LEASES.wait_for(
                lambda: self._leases.setdefault(self._shard_id, self) is self, _LEASE_ENDS
            )
        self._is_refused = not mine
        self._check_lease()
        self._processor.initialize(kcl_input)

    def _check_lease(self) -> None:
        if self._is_refused:
            raise ValueError(
                f"{self._shard_id} has two leases in this process, so the scheduler reads several streams: "
                "give each stream a scheduler, and a factory of its own by audited(stream=...)"
            )

    def process_records(self, kcl_input: Any) -> None:
        # AUD-24: "A user record MUST count as handled when process_records has returned, or when a checkpoint
        # within it covers the user record, and not otherwise."
        self._check_lease()  # kcl_rs calls a processor whose `initialize` has raised
        records = kcl_input.records
        batch = _Batch((record.sequence_number, record.sub_sequence_number or 0) for record in records)
        with self._lock:
            self._batch = batch
        try:
            self._processor.process_records(self._guarded(kcl_input))
            self._count(None)
        finally:
            with self._lock:
                batch.clear()  # a later checkpoint must not count a batch that failed
        if len(self._rows) >= _MOST_ROWS:
            self._store()

    def _end(self, kcl_input: Any, *, method: str) -> None:
        # AUD-26: "When the lease is lost, the shard ends or a shutdown is requested, what counts MUST be
        # stored and the ledger closed, even if the user's processor raises."
        if self._is_refused:
            return
        try:
            getattr(self._processor, method)(self._guarded(kcl_input))
        finally:
            with _LEASES:
                if self._leases.get(self._shard_id) is self:
                    del self._leases[self._shard_id]
                _LEASES.notify_all()
            self._store()
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()

    lease_lost = partialmethod(_end, method="lease_lost")
    shard_ended = partialmethod(_end, method="shard_ended")
    shutdown_requested = partialmethod(_end, method="shutdown_requested")
    #: In version 2 of amazon_kclpy: called when the lease is lost or the shard has ended.
    shutdown = partialmethod(_end, method="shutdown")

    def _guarded(self, kcl_input: Any) -> Any:
        """The KCL's input, with a checkpointer that stores what counts before the KCL gets a checkpoint. The
        user may keep it: it is about the batch of the call under way."""
        real = getattr(kcl_input, "checkpointer", None)
        if real is None:
            return kcl_input

        def covered(
            sequence_number: str | None = None, sub_sequence_number: int | None = None
        ) -> tuple[int, int]:
            """The last user record that a checkpoint covers; without a number: the last that was
            delivered."""
            if sequence_number is None:
                with self._lock:
                    sequence_number, sub_sequence_number = self._batch[-1] if self._batch else ("", 0)
            number = str(sequence_number)
            # (A value that is no sequence number covers nothing: the KCL refuses it.)
            return int(number) if number.isdecimal() else -1, sub_sequence_number or 0

        def checkpoint(*position: Any, **named: Any) -> Any:
            self._count(covered(*position, **named))
            self._store()
            return real.checkpoint(*position, **named)

        def prepare_checkpoint(*position: Any, **named: Any) -> Any:
            # AUD-34: "A prepared checkpoint MUST count what it covered when it was prepared, whenever it is
            # committed."
            last = covered(*position, **named)
            prepared = real.prepare_checkpoint(*position, **named)

            def commit() -> Any:
                self._count(last)
                self._store()
                return prepared.checkpoint()

            return _Proxy(prepared, checkpoint=commit)

        checkpointer = _Proxy(real, checkpoint=checkpoint, prepare_checkpoint=prepare_checkpoint)
        return _Proxy(kcl_input, checkpointer=checkpointer)

    def _count(self, last: tuple[int, int] | None) -> None:
        """Count the user records of the batch up to ``last`` as handled; None: all of them."""
        names = []
        with self._lock:
            batch = self._batch
            while batch and (last is None or (int(batch[0][0]), batch[0][1]) <= last):
                names.append((self._shard_id, *batch.popleft()))
            self._rows += runs(
                names, Row("handled", "", sequence_number="", user_records=1, at=int(time.time() * 1000))
            )

    def _store(self) -> None:
        # AUD-25: "What counts MUST be stored before the KCL gets a checkpoint. Where it cannot be stored, the
        # KCL MUST NOT get the checkpoint."
        with self._lock:
            if self._writer is None and self._rows:
                self._writer = self._ledger.writer(self._stream, "handled")
            if self._writer is not None:
                rows, self._rows = self._rows, []  # the writer keeps rows that it cannot write
                self._writer.note(rows)
