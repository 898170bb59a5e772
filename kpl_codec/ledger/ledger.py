"""Ledgers: what producers have put, and consumers have handled, one row a Kinesis record.

    with Producer("orders", ledger=Ledger("s3://bucket/ledger/produced")) as producer: ...

    HANDLED = Ledger("s3://bucket/ledger/handled")           # or Ledger(print): lines for the log
    def lambda_handler(event, context):
        return process_user_records(event, handle, ledger=HANDLED)

Each producer and each consumer process is a writer of its own, so any number may share a ledger. A writer
writes numbered members, a header and rows (`ledger_rows`):

    {"kpl_ledger":"20261125T...","member":3,"lines":121,"version":1,"side":"handled","stream":"orders",
     "stream_arn":"arn:aws:...","kind":"header"}
    {"kind":"handled","shard":"shardId-000000000000","sequence_number":"4957...",...}

    files    WRITER-PART.ledger.jsonl.gz; each member is one of gzip; PART is the number of the first one
    S3       the same, one member an object
    logs     one line a member: header and row in one object

Specification: spec/15-audit.md, AUD-1 to AUD-8.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from ..deaggregation.deaggregated_record import DeaggregatedRecord
from ..deaggregation.policies import deaggregate
from ..format.records import KinesisRecord
from ..shards.stream_name import Stream, StreamNameError, stream_of
from .ledger_rows import Ranges, Row, digest_of, line_of, ranges_of, runs

#: How the name of a ledger's file ends; before it its writer, a dash and its part.
SUFFIX: Final = ".ledger.jsonl.gz"
#: The first key of a header: its value is the writer.
WRITER: Final = "kpl_ledger"
VERSION: Final = 1
#: Rows of a member at most; about 1 MB of text.
MEMBER_ROWS: Final = 5000
#: Lines that wait for a place that cannot be written to, at most.
_MOST_WAITING: Final = 200_000
_LOG = logging.getLogger("kpl_codec.audit")


class Sink(NamedTuple):
    """Where the members of one writer go. ``write`` appends the lines of a member to a file, and gives its
    size in bytes when it is stored for good. It raises OSError, or what S3 raises, and gets the member again.

    ``seconds`` between two writes; after ``part_seconds`` or ``part_bytes`` another file is begun; with 0
    each member is a part. ``by_line``: each line is a member, and none may be long.
    """

    write: Callable[[str, Sequence[str]], int]
    seconds: float = 5.0
    part_seconds: float = 3600.0
    part_bytes: int = 64 << 20
    by_line: bool = False


def packed(lines: Sequence[str]) -> bytes:
    """The bytes of a member in a file: one member of gzip, whose CRC shows what is damaged."""
    return gzip.compress("\n".join((*lines, "")).encode(), 6, mtime=0)


def _folder_sink(folder: Path) -> Sink:
    def write(name: str, lines: Sequence[str]) -> int:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / name, "ab") as file:
            size = file.write(packed(lines))
            file.flush()
            os.fsync(file.fileno())
        return size

    return Sink(write)


def _s3_sink(uri: str) -> Sink:
    from ..aws.client import put_object

    def write(name: str, lines: Sequence[str]) -> int:
        put_object(f"{uri.rstrip('/')}/{name}", data := packed(lines))
        return len(data)

    return Sink(write, seconds=60.0, part_seconds=0.0)


def _log_sink(write_line: Callable[[str], object]) -> Sink:
    def write(_: str, lines: Sequence[str]) -> int:
        write_line(lines[0])
        return len(lines[0])

    return Sink(write, by_line=True)


class Ledger:
    """``place``: a folder, an ``s3://`` URI, or a function that takes a line of text.

    ``wait``: a producer's result waits until its row is on disk; else rows are written every 5 seconds.
    S3 takes an object a minute, so a result cannot wait for it: ValueError.
    """

    def __init__(
        self, place: str | os.PathLike[str] | Callable[[str], object], *, wait: bool = False
    ) -> None:
        self.place, self.wait = place, wait
        self._consumers: dict[tuple[int, str], Writer] = {}
        self._in_s3 = isinstance(place, str) and place.startswith("s3://")
        if wait and self._in_s3:
            raise ValueError("a result cannot wait for S3: use wait=False, or a folder")

    def writer(self, stream: str, side: str = "produced") -> Writer:
        """A writer for a producer ("produced") or consumer ("handled") of ``stream``, its name or ARN."""
        if callable(self.place):
            sink = _log_sink(self.place)
        else:
            sink = _s3_sink(str(self.place)) if self._in_s3 else _folder_sink(Path(self.place))
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid4().hex[:12]}"
        return Writer(sink, name, stream, side, wait=self.wait or side == "handled")

    def note(self, stream: str, rows: Sequence[Row]) -> None:
        """Write rows of this process, a consumer of ``stream``. Raises OSError, or what S3 raises."""
        if rows:
            key = os.getpid(), stream  # (a forked child has its own)
            if key not in self._consumers:
                self._consumers[key] = self.writer(stream, "handled")
            self._consumers[key].note(rows)

    def handled(self, stream: str, records: Iterable[DeaggregatedRecord], *, before: bool = False) -> None:
        """Note that this process, a consumer of ``stream`` (its name or ARN), has handled user records.

        To be called before a checkpoint: so what has no note comes again. ``before``: they were handled in an
        earlier delivery, and are not again. Raises OSError, or what S3 raises; ValueError for a user record
        that has no name: it lacks its shard, or its sequence number.
        """
        names = []
        for record in records:
            if not (record.shard_id and record.sequence_number):
                raise ValueError(
                    "a user record without shard or sequence number has no name in a ledger: give "
                    "kinesis_records its shard_id; of a queue, give process_queue_records the ledger"
                )
            names.append((record.shard_id, record.sequence_number, record.sub_sequence_number))
        self.note(stream, runs("before" if before else "handled", names, int(time.time() * 1000)))


def _json(facts: object) -> str:
    return json.dumps(facts, separators=(",", ":"))


def _stream(text: str) -> Stream:
    """The stream; of a queue or of Firehose, whose ARNs name none, the last part of theirs."""
    try:
        return stream_of(text)
    except StreamNameError:
        return Stream(text.rpartition("/")[2], text)


class Writer:
    """One writer of a ledger. It writes a header at once, so that the ledger shows that it was there.

    Rows that cannot be written are tried again with the next ones, and it is logged; a consumer's writer
    raises what was raised, too. Methods are thread-safe.
    """

    def __init__(self, sink: Sink, name: str, stream: str, side: str, *, wait: bool) -> None:
        named = _stream(stream)
        self.name, self.stream = name, named.name
        self._facts = {"version": VERSION, "side": side, "stream": named.name, "stream_arn": named.arn}
        self._sink, self._raises, self._wait = sink, side == "handled", wait
        self._lock = threading.Lock()  # of the rows that are kept: never held while something is written
        self._io = threading.RLock()
        self._rows: list[Row] = []
        self._member = self._part = self._bytes = 0  # the next member; the first one of this part; its bytes
        self._ranges: Ranges = {}  # what this part names
        self._waiting: list[tuple[str, list[str]]] = []  # file and lines of members that are not stored yet
        self._begun_at = time.monotonic()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._add([])
        self._write()

    # -- rows ---------------------------------------------------------------------------------

    def note(self, rows: Iterable[Row]) -> None:
        """Write rows, or keep them for the next member."""
        with self._lock:
            self._rows += rows
        # AUD-8: "Where a ledger is set to wait, a user record MUST get its result after its row is on disk."
        if self._wait:
            self.flush()
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kpl-codec ledger", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no new threads while the interpreter ends
                self.flush()

    def put(self, shard_id: str, sequence_number: str, partition_key: str, data: bytes) -> None:
        """Note a Kinesis record that another producer than ours has put, by the answer it got."""
        users = deaggregate([KinesisRecord(partition_key, data)], "report")
        count, now = sum(user.sub_sequence_number is not None for user in users), int(time.time() * 1000)
        self.note([Row("delivered", shard_id, sequence_number, count, now, digest_of(partition_key, data))])

    def flush(self) -> None:
        """Write what is kept. S3 gets its object now."""
        with self._io:
            self._flush()

    def close(self) -> None:
        """Write what is kept, and that this is the end. Closing twice is allowed."""
        with self._io:
            if not self._closed.is_set():
                self._closed.set()
                self._flush(end=True)

    # -- members ------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.wait(self._sink.seconds):
            with self._io:
                if not self._closed.is_set():
                    self._flush()

    def _flush(self, *, end: bool = False) -> None:
        with self._lock:
            rows, self._rows = self._rows, []
        rows.sort(key=lambda row: (row.shard_id, len(row.sequence_number), row.sequence_number))
        for start in range(0, len(rows), MEMBER_ROWS):
            self._add(rows[start : start + MEMBER_ROWS])
        if end:
            self._add([], end=True)
        self._write()

    def _add(self, rows: Sequence[Row], *, end: bool = False) -> None:
        """One more member, to be written; the first one of another part, if it is time."""
        before = dict[str, Any]()
        old = time.monotonic() - self._begun_at >= self._sink.part_seconds
        if self._member and (old or self._bytes >= self._sink.part_bytes):
            if self._sink.part_seconds:
                self._queue([_json({"kind": "header"}), _json({"kind": "part_end"})])
            # AUD-4: "The first header of a part MUST say what the part before names, the end of a ledger what
            # its last part names: so what was lost is known to lie there."
            before, self._ranges, self._part = self._named(), {}, self._member
            self._bytes, self._begun_at = 0, time.monotonic()
        self._ranges = ranges_of(rows, self._ranges)
        ends = [_json({"kind": "end", **self._named()})] if end else []
        self._queue([_json({"kind": "header", **before}), *map(line_of, rows), *ends])

    def _named(self) -> dict[str, Any]:
        """Between which sequence numbers the rows of this part lie; nothing, where that is too long."""
        named = {"named": [self._part, self._ranges]}
        # AUD-23: "No line of a ledger in a log MUST be longer than 12,000 bytes."
        return {} if self._sink.by_line and len(_json(named)) > 10_000 else named

    def _queue(self, lines: list[str]) -> None:
        file = f"{self.name}-{self._part:06d}{SUFFIX}"
        for some in [[line] for line in lines] if self._sink.by_line else [lines]:
            # AUD-3: "Each member of a ledger MUST say its number and how many lines it has: what is cut,
            # damaged or not there shows."
            head = _json({WRITER: self.name, "member": self._member, "lines": len(some), **self._facts})
            self._waiting.append((file, [f"{head[:-1]},{some[0][1:]}", *some[1:]]))
            self._member += 1

    def _write(self) -> None:
        # AUD-6: "A ledger that cannot be written MUST NOT cost a user record its delivery or its result; its
        # rows MUST be tried again, and a member that was given up MUST be missing in the count."
        try:
            while self._waiting:
                self._bytes += self._sink.write(*self._waiting[0])
                del self._waiting[0]
        except Exception as error:
            while sum(len(lines) for _, lines in self._waiting) > _MOST_WAITING:
                del self._waiting[0]
            if self._raises:
                raise  # and the records come again
            _LOG.error("the ledger of %s cannot be written, and is tried again: %r", self.stream, error)
