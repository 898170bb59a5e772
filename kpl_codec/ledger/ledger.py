"""Writes ledgers: which user records producers have put and consumers have handled. Specification:
spec/15-audit.md, 15.1.

Each producer and each consumer process writes its own files, so any number of them may share a ledger.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4
from weakref import WeakSet
from zlib import crc32

from ..base.arguments import check_arguments, checked_items
from ..deaggregation.deaggregated_record import DeaggregatedRecord
from ..deaggregation.policies import deaggregate
from ..format.records import KinesisRecord
from ..rendering.labels import plural
from ..shards.stream_name import StreamNameError, stream_of
from .ledger_rows import Row, check_row, digest_of, line_of, runs

#: How the name of a ledger's file ends, after the writer, a dash and the part.
SUFFIX: Final = ".ledger.jsonl.gz"
#: The first key of a header: its value is the writer.
WRITER: Final = "kpl_ledger"
VERSION: Final = 1
#: The most rows of a member: about 1 MB of text.
MEMBER_ROWS: Final = 5000
#: The most lines that are kept while the ledger's place cannot be written to.
_MOST_WAITING: Final = 200_000
_LOG = logging.getLogger("kpl_codec.audit")

#: A folder, an ``s3://`` URI, or a function that takes a line of text.
Place = str | os.PathLike[str] | Callable[[str], object]


class Sink(NamedTuple):
    """Where the members of one writer go. ``write`` appends a member's lines to a file, and returns when they
    are stored for good; if it raises, the writer passes them again later. Rows wait at most ``seconds``.
    After ``part_bytes`` of text another file is begun. ``by_line``: each line is a member. ``place``: its
    name in a log."""

    write: Callable[[str, Sequence[str]], object]
    seconds: float = 5.0
    part_bytes: int = 256 << 20
    by_line: bool = False
    place: str = "its function"


def packed(lines: Sequence[str]) -> bytes:
    """The text as one member of a gzip file, whose CRC shows damage."""
    return gzip.compress("\n".join((*lines, "")).encode(), 6, mtime=0)


def _sink_of(place: Place) -> Sink:
    if callable(place):
        return Sink(lambda _, lines: place(lines[0]), by_line=True)
    if str(place).startswith("s3://"):
        from ..aws.client import put_object

        prefix = str(place).rstrip("/")
        return Sink(lambda name, lines: put_object(f"{prefix}/{name}", packed(lines)), 60.0, 0, place=prefix)

    return Sink(lambda name, lines: _append(Path(place, name), packed(lines)), place=str(place))


def _append(path: Path, data: bytes) -> None:
    """Append to a file, and store it for good. A file that cannot be written is as long as before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab", buffering=0) as file:
        size, rest = os.fstat(file.fileno()).st_size, memoryview(data)
        try:
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                os.ftruncate(file.fileno(), size)
                if not size:
                    path.unlink()
            raise


def _new_name() -> str:
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid4().hex[:12]}"


def _user_records_in(lines: Iterable[str]) -> int:
    return sum(json.loads(line).get("user_records", 0) for line in lines)


class Ledger:
    """``place``: a folder, an ``s3://`` URI, or a function that takes a line of text. ``wait``: a producer's
    result waits until its row is on disk; else rows are written every 5 seconds. S3 gets one object a minute,
    for which no result can wait. Raises TypeError or ValueError for a place that is none, and ValueError for
    S3 with ``wait``."""

    def __init__(self, place: Place, *, wait: bool = False) -> None:
        # AUD-31: "A place that is neither a folder, an s3:// URI nor a function MUST be refused when the
        # ledger is made."
        check_arguments("Ledger", {"place": place, "wait": wait})
        self.place, self.wait = place, wait
        self._consumers: dict[tuple[int, str], Writer] = {}
        if wait and str(place).startswith("s3://"):
            raise ValueError("a result cannot wait for S3: use wait=False, or a folder")

    def writer(self, stream: str, side: str = "produced") -> Writer:
        """A writer for a producer ("produced") or consumer ("handled") of ``stream``, its name or ARN. Raises
        TypeError or ValueError for another side."""
        check_arguments("Ledger.writer", {"stream": stream, "side": side})
        return Writer(_sink_of(self.place), _new_name(), stream, side, wait=self.wait or side == "handled")

    def note(self, stream: str, rows: Sequence[Row]) -> None:
        """Write rows of this process, a consumer of ``stream``. Raises OSError, or what S3 raises; TypeError
        or ValueError for a row that is none: then no row of the call is noted."""
        check_arguments("Ledger.note", {"stream": stream})
        key = os.getpid(), stream  # (a forked child has its own)
        if rows and key not in self._consumers:
            self._consumers[key] = self.writer(stream, "handled")
        if rows:
            self._consumers[key].note(rows)

    def handled(self, stream: str, records: Iterable[DeaggregatedRecord], *, before: bool = False) -> None:
        """Note that this process, a consumer of ``stream``, has handled user records. Call it before the
        checkpoint, so that user records without a note are delivered again. ``before``: the user records were
        handled in an earlier delivery, and not in this one. Raises OSError, or what S3 raises; TypeError for
        what is no such user record, ValueError for one without shard or sequence number."""
        check_arguments("Ledger.handled", {"stream": stream, "before": before})
        give = "user records as process_user_records and deaggregate give them"
        records = checked_items("Ledger.handled", "records", records, "is_user_record", give)
        names = [
            (one.shard_id or "", one.sequence_number or "", one.sub_sequence_number)
            for one in records
            if one.is_user_record
        ]
        if not all(shard_id and number for shard_id, number, _ in names):
            raise ValueError(
                "a user record without shard or sequence number has no name in a ledger: give "
                "kinesis_records its shard_id; a record of a queue has none"
            )
        row = Row(
            "before" if before else "handled",
            "",
            sequence_number="",
            user_records=1,
            at=int(time.time() * 1000),
        )
        self.note(stream, runs(names, row))


class Writer:
    """Writes the files of one producer or consumer. It writes a header at once. It keeps rows that cannot be
    written, and writes them with the next ones: a producer's writer logs the first failure of a series, a
    consumer's raises each. Thread-safe; a forked process writes files of its own."""

    def __init__(self, sink: Sink, name: str, stream: str, side: str, *, wait: bool) -> None:
        try:
            self.stream, arn, *_ = stream_of(stream)
        except StreamNameError:  # the ARN of something else, which an event may name
            self.stream, arn = stream.rpartition("/")[2], stream
        self._facts = {"version": VERSION, "side": side, "stream": self.stream, "stream_arn": arn}
        self._sink, self._raises, self._wait = sink, side == "handled", wait
        self._begin(name)
        _WRITERS.add(self)
        self._add([])
        self._write()

    def _begin(self, name: str) -> None:
        """Become a writer of this name, without rows."""
        self.name = name
        self._lock = threading.Lock()  # guards the rows that are kept; never held during a write
        self._io = threading.RLock()
        self._rows: list[Row] = []
        self._member = self._part = self._bytes = 0  # next member; this part's first; its bytes
        self._waiting: list[tuple[str, list[str]]] = []  # file and lines of members that are not stored yet
        self._given_up = 0  # user records of the members that were
        self._closed, self._failing = threading.Event(), False
        self._thread: threading.Thread | None = None

    def note(self, rows: Iterable[Row]) -> None:
        """Write rows, or keep them for the next member. Raises TypeError or ValueError for a row that is
        none: then no row of the call is noted."""
        # AUD-32: "A row that is none MUST be refused when it is noted, and MUST NOT take other rows along."
        rows = [*rows]
        for row in rows:
            check_row(row)
        with self._lock:
            self._rows += rows
        if not self._member:  # a forked child's first rows: as of any writer, the header is written at once
            self.flush()
        # AUD-8: "Where a ledger is set to wait, a user record MUST get its result after its row is on disk."
        if self._wait or self._closed.is_set():
            self.flush()
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kpl-codec ledger", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no new threads while the interpreter ends
                self.flush()

    def put(self, shard_id: str, sequence_number: str, *, partition_key: str, data: bytes) -> None:
        """Note a Kinesis record that the caller has put without this library's Producer. ``shard_id`` and
        ``sequence_number``: from the response. Raises TypeError or ValueError, and notes nothing, for what is
        none."""
        users = deaggregate([KinesisRecord(partition_key, data)], "report")
        count, now = sum(user.is_user_record for user in users), int(time.time() * 1000)
        self.note(
            [
                Row(
                    "delivered",
                    shard_id,
                    sequence_number=sequence_number,
                    user_records=count,
                    at=now,
                    digest=digest_of(partition_key, data),
                )
            ]
        )

    def flush(self) -> None:
        """Write the rows that are kept. S3 gets an object now."""
        with self._io:
            with self._lock:
                rows, self._rows = self._rows, []
            rows.sort(key=lambda row: (row.shard_id, len(row.sequence_number), row.sequence_number))
            for start in range(0, len(rows), MEMBER_ROWS):
                self._add([line_of(row) for row in rows[start : start + MEMBER_ROWS]])
            self._write()

    def close(self) -> None:
        """Write the rows that are kept, and a mark that the ledger ends here. Closing twice is allowed. Rows
        that are noted later are written, too, but the ledger is then not whole."""
        with self._io:
            if self._closed.is_set():
                return
            self._closed.set()
            self.flush()
            if self._member:  # else a forked child that has noted nothing
                self._add(['{"kind":"end"}'])
                self._write()
            if lost := self._given_up + sum(_user_records_in(lines) for _, lines in self._waiting):
                text = "the ledger of %s is closed; the rows of %s could not be written to %s"
                _LOG.error(text, self.stream, plural(lost, "user record"), self._sink.place)

    def _run(self) -> None:
        while not self._closed.wait(self._sink.seconds):
            self.flush()

    def _add(self, lines: Sequence[str]) -> None:
        if self._member and self._bytes >= self._sink.part_bytes:
            if self._sink.part_bytes:  # else each member is a part
                self._queue(['{"kind":"part_end"}'])
            self._part, self._bytes = self._member, 0
        self._queue(lines)

    def _queue(self, lines: Sequence[str]) -> None:
        file = f"{self.name}-{self._part:06d}{SUFFIX}"
        lines = ['{"kind":"header"}', *lines]
        for some in [[line] for line in lines] if self._sink.by_line else [lines]:
            # AUD-3: "Each member of a ledger MUST say its number and how many lines it has: what is cut,
            # damaged or not there shows."
            facts = {WRITER: self.name, "member": self._member, "lines": len(some), **self._facts}
            head = json.dumps(facts, separators=(",", ":"))[:-1]
            # AUD-30: "A member's header MUST have the CRC-32 of the member's text without that key; a member
            # with another one gives no row."
            crc = crc32("\n".join((f"{head},{some[0][1:]}", *some[1:])).encode())
            self._waiting.append((file, [f'{head},"crc":{crc},{some[0][1:]}', *some[1:]]))
            self._member += 1
            self._bytes += sum(map(len, some))

    def _write(self) -> None:
        # AUD-6: "A ledger that cannot be written MUST NOT cost a user record its delivery or its result; its
        # rows MUST be tried again, and a member that was given up MUST be missing in the count."
        try:
            while self._waiting:
                self._sink.write(*self._waiting[0])
                del self._waiting[0]
            self._failing = False
        except Exception as error:
            while sum(len(lines) for _, lines in self._waiting) > _MOST_WAITING:
                self._given_up += _user_records_in(self._waiting.pop(0)[1])
            if self._raises:
                raise  # and the records come again
            if not self._failing:
                self._failing, reason = True, getattr(error, "strerror", None) or error
                text = "the ledger of %s cannot be written to %s, and is tried again: %s"
                _LOG.error(text, self.stream, self._sink.place, reason)


#: The writers of this process.
_WRITERS: Final = WeakSet[Writer]()


def _after_fork_in_child() -> None:
    # AUD-29: "A forked process MUST be a writer of its own; of two members of a writer that have one number
    # and differ, the rows of both MUST be read, and the audit MUST NOT say complete."
    for writer in list(_WRITERS):
        writer._begin(_new_name())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
