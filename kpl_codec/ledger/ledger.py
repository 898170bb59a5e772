"""Ledgers: what producers have put, and consumers have handled, one row a Kinesis record.

    with Producer("orders", ledger=Ledger("s3://bucket/ledger/produced")) as producer: ...

    HANDLED = Ledger("s3://bucket/ledger/handled")           # or Ledger(print): lines for the log
    def lambda_handler(event, context):
        return process_user_records(event, handle, ledger=HANDLED)

Each producer and each consumer process is a writer of its own, so any number may share a ledger. A row has
neither keys nor data. `kpl-codec audit` compares the two sides.

A writer writes numbered members: lines of JSON, a header and its rows.

    {"kpl_ledger":"20261125T...","part":0,"member":3,"kind":"header","version":1,"lines":121,"side":"handled",
     "stream":"orders","stream_arn":"arn:aws:..."}
    {"kind":"handled","shard":"shardId-000000000000","sequence_number":"4957...",...}
    `kpl_codec.ledger.ledger_rows`

    files    WRITER-PART.ledger.jsonl.gz; a member, each time it writes, is a member of gzip
    S3       the same, an object a member
    logs     each line is a member; it says its writer, part, number, and the CRC of what follows

The first header of a part says in "named" between which sequence numbers the rows of the part before lie. A
writer that is closed ends with "end", a part that another one follows with "part_end".
Specification: spec/15-audit.md, AUD-1 to AUD-8.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from ..deaggregation.deaggregated_record import DeaggregatedRecord
from ..deaggregation.policies import deaggregate
from ..format.records import KinesisRecord
from ..shards.stream_name import Stream, StreamNameError, stream_of
from .ledger_rows import Ranges, Row, digest_of, line_of, ranges_of, runs

#: How the name of a file of a ledger ends; before it its writer, a dash and its part.
SUFFIX: Final = ".ledger.jsonl.gz"
#: The member of a line's JSON that says its writer: it comes first.
LINE: Final = "kpl_ledger"
VERSION: Final = 1
#: Rows of a member at most; about 1 MB of text.
_MEMBER_ROWS: Final = 5000
#: Lines that wait for a place that cannot be written to, at most.
_MOST_WAITING: Final = 200_000
#: Characters of "named" in a log at most.
_LONGEST: Final = 10_000
_LOG = logging.getLogger("kpl_codec.audit")


class Sink(ABC):
    """Takes the members of one writer, in order. ``write`` raises OSError, or what S3 raises, and gets the
    member again, then."""

    #: Seconds between two writes, and seconds and bytes after which another part is begun.
    seconds = 5.0
    part_seconds = 3600.0
    part_bytes = 64 << 20
    #: Whether each line is a member, and no line may be long.
    by_line = False

    @abstractmethod
    def write(self, part: int, member: int, lines: Sequence[str], *, sync: bool) -> int:
        """With ``sync`` it returns when the member is stored for good. Gives its size in bytes."""


def packed(writer: str, part: int, member: int, lines: Sequence[str]) -> bytes:
    """A member as files have it: one member of gzip, whose first line says which it is."""
    header = f'{{"{LINE}":"{writer}","part":{part},"member":{member},{lines[0][1:]}'
    # AUD-3: "Each member of a ledger MUST say its number, and carry a checksum: what is damaged or not there
    # shows."
    return gzip.compress("\n".join((header, *lines[1:], "")).encode(), 6, mtime=0)


class FolderSink(Sink):
    """A file a part, to which members are appended."""

    def __init__(self, folder: Path, writer: str) -> None:
        self._folder, self._writer = folder, writer

    def write(self, part: int, member: int, lines: Sequence[str], *, sync: bool) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        data = packed(self._writer, part, member, lines)
        with open(self._folder / f"{self._writer}-{part:06d}{SUFFIX}", "ab") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        return len(data)


class S3Sink(Sink):
    """An object a member: each is a part."""

    seconds, part_seconds = 60.0, 0.0

    def __init__(self, uri: str, writer: str, put: Callable[[str, bytes], None]) -> None:
        self._prefix, self._writer, self._put = uri.rstrip("/"), writer, put

    def write(self, part: int, member: int, lines: Sequence[str], *, sync: bool) -> int:
        data = packed(self._writer, part, member, lines)
        self._put(f"{self._prefix}/{self._writer}-{part:06d}{SUFFIX}", data)
        return len(data)


class LineSink(Sink):
    """The lines, given to ``write_line`` (print, a logger's method)."""

    by_line = True

    def __init__(self, write_line: Callable[[str], object], writer: str) -> None:
        self._write_line, self._writer = write_line, writer

    def write(self, part: int, member: int, lines: Sequence[str], *, sync: bool) -> int:
        which = f'"{LINE}":"{self._writer}","part":{part},"member":{member}'
        self._write_line(f'{{{which},"crc32":{zlib.crc32(lines[0].encode())},{lines[0][1:]}')
        return len(lines[0])


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
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid4().hex[:12]}"
        sink: Sink
        if callable(self.place):
            sink = LineSink(self.place, name)
        elif self._in_s3:
            from ..aws.client import put_object

            sink = S3Sink(str(self.place), name, put_object)
        else:
            sink = FolderSink(Path(self.place), name)
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
    """The stream; of a queue or of Firehose, which have no such ARN, what comes last in theirs."""
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
        found = _stream(stream)
        self.name, self.stream = name, found.name
        self._facts = {"side": side, "stream": found.name, "stream_arn": found.arn}
        self._sink, self._raises, self._wait = sink, side == "handled", wait
        self._lock = threading.Lock()  # of the rows that are kept: never held while something is written
        self._io = threading.RLock()
        self._rows: list[Row] = []
        self._part = self._member = self._part_member = self._bytes = 0
        self._ranges: Ranges = {}  # what this part names
        self._before: dict[str, Any] = {}  # what the part before named
        self._waiting: list[tuple[int, int, list[str]]] = []  # part, member and lines, not stored yet
        self._begun_at = time.monotonic()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._add([])
        self._write(sync=wait)

    # -- rows ---------------------------------------------------------------------------------

    def note(self, rows: Iterable[Row]) -> None:
        """Write rows, or keep them for the next member."""
        with self._lock:
            self._rows += rows
        # AUD-8: "Where a ledger is told to wait, a user record MUST get its result after its row is on disk."
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
            self._flush(sync=True)

    def close(self) -> None:
        """Write what is kept, and that this is the end. Closing twice is allowed."""
        with self._io:
            if not self._closed.is_set():
                self._closed.set()
                self._flush(sync=True, end=True)

    # -- members ------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.wait(self._sink.seconds):
            with self._io:
                if not self._closed.is_set():
                    self._flush(sync=False)

    def _flush(self, *, sync: bool, end: bool = False) -> None:
        with self._lock:
            rows, self._rows = self._rows, []
        rows.sort(key=lambda row: (row.shard_id, len(row.sequence_number), row.sequence_number))
        for start in range(0, len(rows), _MEMBER_ROWS):
            some = rows[start : start + _MEMBER_ROWS]
            self._roll()
            self._ranges = ranges_of(some, self._ranges)
            self._add([line_of(row) for row in some])
        if end:
            self._roll()
            self._add([_json({"kind": "end", **self._named()})])
        self._write(sync=sync)

    def _roll(self) -> None:
        """Begin another part, if it is time."""
        old = time.monotonic() - self._begun_at >= self._sink.part_seconds
        if not (old or self._bytes >= self._sink.part_bytes):
            return
        if self._sink.part_seconds:  # else each member is a part
            self._add([_json({"kind": "part_end"})])
        # AUD-4: "The first header of a part MUST say what the part before names, the end of a ledger what its
        # last part names: so what was lost is known to lie there."
        self._before, self._ranges = self._named(), {}
        self._part, self._part_member = self._part + 1, self._member
        self._bytes, self._begun_at = 0, time.monotonic()

    def _named(self) -> dict[str, Any]:
        """Between which sequence numbers the rows of this part lie; nothing, where that is too long."""
        # AUD-23: "No line of a ledger in a log MUST be longer than 12,000 bytes."
        named = {"named": [self._part_member, self._ranges]}
        return {} if self._sink.by_line and len(_json(named)) > _LONGEST else named

    def _add(self, rows: list[str]) -> None:
        """One more member, to be written."""
        facts = {"kind": "header", "version": VERSION, "lines": len(rows) + 1, **self._facts, **self._before}
        lines, self._before = [_json(facts), *rows], {}
        for member in [[text] for text in lines] if self._sink.by_line else [lines]:
            self._waiting.append((self._part, self._member, member))
            self._member += 1

    def _write(self, *, sync: bool) -> None:
        # AUD-6: "A ledger that cannot be written MUST NOT cost a user record its delivery or its result; its
        # rows MUST be tried again, and a member that was given up MUST be missing in the count."
        try:
            while self._waiting:
                part, member, lines = self._waiting[0]
                self._bytes += self._sink.write(part, member, lines, sync=sync)
                del self._waiting[0]
        except Exception as error:
            while sum(len(lines) for *_, lines in self._waiting) > _MOST_WAITING:
                del self._waiting[0]
            if self._raises:
                raise  # and the records come again
            _LOG.error("the ledger of %s cannot be written, and is tried again: %r", self.stream, error)
