"""Ledgers: what producers have put, and consumers have handled, one row a Kinesis record.

    with Producer("orders", ledger=Ledger("s3://bucket/ledger/produced")) as producer: ...

    HANDLED = Ledger("s3://bucket/ledger/handled")           # or Ledger(print): lines for the log
    def lambda_handler(event, context):
        return process_user_records(event, handle, ledger=HANDLED)

Each producer and each consumer process is a writer of its own, so any number may share a ledger. A row has
neither keys nor data. `kpl-codec audit` compares the two sides.
Specification: spec/15-audit.md, AUD-1 to AUD-7.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from uuid import uuid4

from ..deaggregation.policies import deaggregate
from ..deaggregation.records import DeaggregatedRecord
from ..format.records import KinesisRecord
from ..ledger import Ranges, Row, block, chunk, digest_of, end_mark, header, ranges_of, runs
from .book import LINE, SUFFIX

_LOG = logging.getLogger("kpl_codec.audit")


class Sink(ABC):
    """Takes the chunks of one writer, in order. Methods raise OSError."""

    #: Seconds and bytes after which another segment is begun.
    segment_seconds: float = 3600.0
    segment_bytes: int = 64 << 20
    #: Whether chunks are stored before their segment ends.
    at_once = True

    @abstractmethod
    def write(self, segment: int, chunk: bytes, *, sync: bool) -> None:
        """With ``sync`` it returns when the chunk is stored for good."""

    def end(self, segment: int) -> None:
        """The segment has all its chunks."""
        return


class FolderSink(Sink):
    """A file a segment, to which chunks are appended."""

    def __init__(self, folder: Path, writer: str) -> None:
        self._folder, self._writer = folder, writer

    def write(self, segment: int, chunk: bytes, *, sync: bool) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with open(self._folder / f"{self._writer}-{segment:06d}{SUFFIX}", "ab") as file:
            file.write(chunk)
            file.flush()
            if sync:
                os.fsync(file.fileno())


class S3Sink(Sink):
    """An object a segment, put when it is whole."""

    segment_seconds, segment_bytes, at_once = 60.0, 8 << 20, False

    def __init__(self, uri: str, writer: str, put: Callable[[str, bytes], None]) -> None:
        self._prefix, self._put, self._data = f"{uri.rstrip('/')}/{writer}", put, b""

    def write(self, segment: int, chunk: bytes, *, sync: bool) -> None:
        self._data += chunk

    def end(self, segment: int) -> None:
        self._put(f"{self._prefix}-{segment:06d}{SUFFIX}", self._data)
        self._data = b""


class LineSink(Sink):
    """A line of JSON a chunk, given to ``write_line`` (print, a logger's method)."""

    def __init__(self, write_line: Callable[[str], object], writer: str) -> None:
        self._write_line, self._writer = write_line, writer

    def write(self, segment: int, chunk: bytes, *, sync: bool) -> None:
        text = base64.b64encode(chunk).decode()
        self._write_line(json.dumps({LINE: self._writer, "segment": segment, "chunk": text}))


class Ledger:
    """``place``: a folder, an ``s3://`` URI, or a function that takes a line of text.

    ``wait``: a producer's result waits until its row is on disk; else rows are written every ``seconds``.
    S3 takes a whole segment a minute, so a result cannot wait for it: ValueError.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | Callable[[str], object],
        *,
        wait: bool = False,
        seconds: float = 5.0,
    ) -> None:
        self.place = place
        self.wait, self.seconds = wait, seconds
        self._consumers: dict[tuple[int, str], Writer] = {}
        self._in_s3 = isinstance(place, str) and place.startswith("s3://")
        if wait and self._in_s3:
            raise ValueError("a result cannot wait for S3: use wait=False, or a folder")

    def writer(self, stream: str, side: str = "produced") -> Writer:
        """A writer for a producer ("produced") or consumer ("handled") of ``stream``, its name."""
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid4().hex[:12]}"
        sink: Sink
        if callable(self.place):
            sink = LineSink(self.place, name)
        elif self._in_s3:
            from ..aws.client import put_object

            sink = S3Sink(str(self.place), name, put_object)
        else:
            sink = FolderSink(Path(self.place), name)
        return Writer(sink, name, stream, side, wait=self.wait or side == "handled", seconds=self.seconds)

    def handled(self, stream: str, records: Iterable[DeaggregatedRecord], *, before: bool = False) -> None:
        """Note that this process, a consumer of ``stream``, has handled user records.

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
        if rows := runs("before" if before else "handled", names, int(time.time() * 1000)):
            key = os.getpid(), stream  # (a forked child has its own)
            if key not in self._consumers:
                self._consumers[key] = self.writer(stream, "handled")
            self._consumers[key].note(rows)


class Writer:
    """One writer of a ledger. Its first segment begins at once, so that the ledger shows that it was there.

    Where a row cannot be written, that is logged, and the ledger is incomplete from then on; a consumer's
    writer raises OSError instead. Methods are thread-safe.
    """

    def __init__(self, sink: Sink, name: str, stream: str, side: str, *, wait: bool, seconds: float) -> None:
        self.name, self.stream = name, stream
        self._sink, self._side, self._wait, self._seconds = sink, side, wait, seconds
        self._lock = threading.Lock()  # of the rows that are kept: never held while something is written
        self._io = threading.RLock()
        self._rows: list[Row] = []
        self._writing: list[Row] = []
        self._before: Ranges = {}  # what the segment before named
        self._ranges: Ranges = {}
        self._segment = self._index = self._bytes = self._lost = 0
        self._begun_at = time.monotonic()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._careful(self._begin)
        if not sink.at_once:  # that the writer was there is known from its first object
            self._careful(self._roll)

    # -- rows ---------------------------------------------------------------------------------

    def note(self, rows: Iterable[Row]) -> None:
        """Write rows, or keep them for the next block."""
        with self._lock:
            self._rows += rows
        # AUD-8: "Where a ledger is told to wait, a user record MUST get its result after its row is on disk."
        if self._wait:
            self.flush()
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kpl-codec ledger", daemon=True)
            self._careful(self._thread.start)  # (no new threads while the interpreter ends)

    def put(self, shard_id: str, sequence_number: str, partition_key: str, data: bytes) -> None:
        """Note a Kinesis record that another producer than ours has put, by the answer it got."""
        users = deaggregate([KinesisRecord(partition_key, data)], "report")
        count, now = sum(user.sub_sequence_number is not None for user in users), int(time.time() * 1000)
        self.note([Row("delivered", shard_id, sequence_number, count, now, digest_of(partition_key, data))])

    def flush(self) -> None:
        """Write what is kept. S3 gets its object now."""
        with self._io:
            self._careful(lambda: self._flush(sync=True))
            if not self._sink.at_once and self._index > 1:
                self._careful(self._roll)

    def close(self) -> None:
        """Write what is kept, and the last end mark. Closing twice is allowed."""
        with self._io:
            if not self._closed.is_set():
                self._closed.set()
                self._careful(lambda: self._flush(sync=False))
                self._careful(lambda: self._end(last=True))

    # -- chunks -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.wait(self._seconds):
            with self._io:
                if not self._closed.is_set():
                    self._careful(lambda: self._flush(sync=False))

    def _careful(self, step: Callable[[], None]) -> None:
        # AUD-6: "A ledger that cannot be written MUST NOT cost a user record its delivery or its result; the
        # rows it lacks MUST be told by its end mark, or by the lack of one."
        try:
            step()
        except Exception as error:
            lost, self._writing = len(self._writing), []
            if self._side == "handled":
                raise  # and the records come again
            self._lost += lost
            _LOG.error(
                "the ledger of %s cannot be written, its audit will say unknown: %r", self.stream, error
            )

    def _begin(self) -> None:
        self._index, self._bytes, self._begun_at = 0, 0, time.monotonic()
        self._write(header(self.name, self._segment, self.stream, self._side, self._before), sync=self._wait)

    def _write(self, data: bytes, *, sync: bool) -> None:
        self._sink.write(self._segment, data, sync=sync)
        self._index += 1
        self._bytes += len(data)

    def _flush(self, *, sync: bool) -> None:
        with self._lock:
            self._writing, self._rows = self._rows, []
        if self._writing:
            self._write(chunk(b"B", self._index, block(self._writing)), sync=sync)
            self._ranges = ranges_of(self._writing, self._ranges)
            self._writing = []
        old = time.monotonic() - self._begun_at >= self._sink.segment_seconds
        if self._index > 1 and (old or self._bytes >= self._sink.segment_bytes):
            self._roll()

    def _roll(self) -> None:
        self._end(last=False)
        self._segment += 1
        self._begin()

    def _end(self, *, last: bool) -> None:
        mark = end_mark(self._index, self._ranges, last=last, follows=self._sink.at_once, lost=self._lost)
        self._write(mark, sync=True)
        self._sink.end(self._segment)
        self._before, self._ranges, self._lost = self._ranges, {}, 0
