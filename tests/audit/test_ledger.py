"""Ledgers: their bytes, their sinks, and what is said of one that is not whole."""

from __future__ import annotations

import errno
import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto.server import ThreadedMotoServer

from kpl_codec import KinesisRecord, UserRecord, deaggregate, encode
from kpl_codec.audit import Ledger
from kpl_codec.audit.book import Book, Hole
from kpl_codec.audit.handled import read_produced
from kpl_codec.audit.ledger import S3Sink, Sink, Writer
from kpl_codec.aws import client
from kpl_codec.aws_lambda import aio, process_user_records, process_window
from kpl_codec.cli.main import main
from kpl_codec.deaggregation.records import DeaggregatedRecord
from kpl_codec.ledger import KINDS, Kind, Row, block, chunk, chunks, digest_of, rows_of

SHARD = "shardId-000000000000"
ROWS = st.builds(
    Row,
    kind=st.sampled_from(KINDS),
    shard_id=st.sampled_from(["shardId-000000000000", "shardId-000000000001", "AccessDeniedException", ""]),
    sequence_number=st.one_of(st.just(""), st.integers(1, 10**129 - 1).map(str)),
    user_records=st.integers(0, 10**6),
    at=st.integers(0, 2**62),
    digest=st.binary(min_size=8, max_size=8),
    first=st.integers(0, 10**6),
)


@given(rows=st.lists(ROWS, max_size=30))
def test_a_block_gives_its_rows(rows: list[Row]) -> None:
    assert Counter(rows_of(block(rows)) or []) == Counter(rows)


@pytest.mark.requirement("AUD-3")
@given(rows=st.lists(ROWS, max_size=5), data=st.data())
def test_a_damaged_block_gives_rows_or_none(rows: list[Row], data: st.DataObject) -> None:
    payload = bytearray(block(rows))
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    rows_of(bytes(payload))  # raises nothing


class Memory(Sink):
    """The segments of a writer."""

    segment_seconds = 1e9

    def __init__(self, segment_bytes: int = 1 << 20) -> None:
        self.segment_bytes = segment_bytes
        self.segments: list[list[bytes]] = []

    def write(self, segment: int, chunk: bytes, *, sync: bool) -> None:
        if segment == len(self.segments):
            self.segments.append([])
        self.segments[-1].append(chunk)


def written(rows: list[list[Row]], segment_bytes: int, *, closed: bool = True) -> list[bytes]:
    sink = Memory(segment_bytes)
    writer = Writer(sink, "w", "orders", "produced", wait=True)
    for some in rows:
        writer.note(some)
    if closed:
        writer.close()
    return [b"".join(parts) for parts in sink.segments]


def book_of(segments: list[bytes]) -> Book:
    book = Book()
    for number, data in enumerate(segments):
        book.add_file(f"w-{number:06d}.kpl-ledger", data)
    return book


BLOCKS = st.lists(st.lists(ROWS, min_size=1, max_size=4), max_size=5)


@pytest.mark.requirement("AUD-3", "AUD-4", "AUD-5")
@given(rows=BLOCKS, size=st.sampled_from([1, 500, 1 << 20]), data=st.data())
def test_a_ledger_is_whole_or_says_that_it_is_not(
    rows: list[list[Row]], size: int, data: st.DataObject
) -> None:
    segments, every = written(rows, size), [row for some in rows for row in some]
    whole = book_of(segments)
    assert Counter(row for _, some in whole.rows("produced") for row in some) == Counter(every)
    assert whole.holes("produced") == []
    assert sum(len(list(chunks(part))) for part in segments) == sum(part.count(b"KPL!") for part in segments)
    # Cut off anywhere, changed anywhere, or without a segment: never whole, and no row is made up.
    number = data.draw(st.integers(0, len(segments) - 1))
    at = data.draw(st.integers(0, len(segments[number]) - 1))
    part = segments[number]
    how = data.draw(st.sampled_from(["cut", "change", "lose", "insert"]))
    changed = bytes([part[at] ^ data.draw(st.integers(1, 255))])
    damaged = {
        "cut": part[:at],
        "change": part[:at] + changed + part[at + 1 :],
        "lose": b"",
        "insert": part[:at] + b"KPL!noise" + part[at:],
    }[how]
    book = book_of([*segments[:number], damaged, *segments[number + 1 :]])
    found = [row for _, some in book.rows("produced") for row in some]
    lost = [row for row in every if row not in found]
    assert all(row in every for row in found)
    holes = book.holes("produced")
    assert holes or (not lost and how == "insert")
    # What was lost is where the holes say.
    assert all(any(may_name(hole, row) for hole in holes) for row in lost if row.sequence_number)


def may_name(hole: Hole, row: Row) -> bool:
    if hole.ranges is None:
        return True
    low, high = hole.ranges.get(row.shard_id, ("1", "0"))
    return int(low) <= int(row.sequence_number) <= int(high)


@pytest.mark.requirement("AUD-5")
def test_a_producer_that_was_not_closed_leaves_an_incomplete_ledger() -> None:
    row = Row("delivered", "s", "7", 1, 0)
    book = book_of(written([[row]], 1 << 20, closed=False))
    assert [rows for _, rows in book.rows("produced")] == [[row]]
    assert [hole.why for hole in book.holes("produced")] == ["segment 0 has no end mark"]


@pytest.mark.requirement("AUD-2")
def test_the_digest_is_that_of_the_frame() -> None:
    frame = encode([UserRecord("a", b"1"), UserRecord("b", b"2")])
    assert digest_of("outer", frame) == frame[-16:-8]
    assert digest_of("k", b"data") != digest_of("kd", b"ata")


def test_log_lines_are_a_ledger(tmp_path: Path) -> None:
    lines: list[str] = []
    writer = Ledger(lines.append).writer("orders")
    writer.note([Row("delivered", "s", "7", 3, 5, b"12345678")])
    writer.close()
    log = "".join(f"2026-01-01T00:00:00Z\tINFO\t{text}\n" for text in ["a line of others", *lines])
    (tmp_path / "app.log").write_text(log)
    book, _ = read_produced([str(tmp_path)])
    assert [rows for _, rows in book.rows("produced")] == [[Row("delivered", "s", "7", 3, 5, b"12345678")]]
    assert book.holes("produced") == []
    (tmp_path / "app.log").write_text(log.replace(lines[1] + "\n", "\n"))
    book, _ = read_produced([str(tmp_path)])
    assert [hole.why for hole in book.holes("produced")] == ["segment 0 lacks blocks"]


@pytest.mark.requirement("AUD-4", "AUD-5")
def test_in_s3_a_segment_is_an_object_and_the_first_is_there_at_once() -> None:
    objects: dict[str, bytes] = {}
    sink = S3Sink("s3://bucket/ledger/", "w", objects.__setitem__)
    writer = Writer(sink, "w", "orders", "produced", wait=False)
    assert list(objects) == ["s3://bucket/ledger/w-000000.kpl-ledger"]
    book = Book()
    book.add_file(*next(iter(objects.items())))
    assert len(book.holes("produced")) == 1  # a producer that has begun and not ended
    writer.note([Row("delivered", "s", "7", 3, 5)])
    writer.close()
    book = Book()
    for name, data in objects.items():
        book.add_file(name, data)
    assert book.holes("produced") == []
    assert sum(len(rows) for _, rows in book.rows("produced")) == 1


@pytest.mark.requirement("AUD-6")
def test_a_full_disk_costs_no_result_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Full(Memory):
        full = False

        def write(self, segment: int, chunk: bytes, *, sync: bool) -> None:
            if self.full:
                raise OSError(errno.ENOSPC, "no space")
            super().write(segment, chunk, sync=sync)

    sink = Full()
    writer = Writer(sink, "w", "orders", "produced", wait=True)
    sink.full = True
    writer.note([Row("delivered", "s", "7", 3, 5)])  # raises nothing
    sink.full = False
    writer.note([Row("delivered", "s", "8", 3, 5)])
    writer.close()
    assert "audit will say unknown" in caplog.text
    book = book_of([b"".join(part) for part in sink.segments])
    assert [hole.why for hole in book.holes("produced")] == ["1 rows of segment 0 could not be written"]


def test_a_result_cannot_wait_for_s3() -> None:
    with pytest.raises(ValueError, match="cannot wait for S3"):
        Ledger("s3://bucket/ledger", wait=True)


# -- consumers -------------------------------------------------------------------------------------


def lambda_event() -> dict[str, Any]:
    records = [
        event_record("100", encode([UserRecord("a", b"0"), UserRecord("b", b"1"), UserRecord("c", b"2")])),
        event_record("200", b"3"),
        event_record("300", encode([UserRecord("a", b"4"), UserRecord("b", b"5")])),
    ]
    return {"Records": records}


def event_record(number: str, data: bytes) -> dict[str, Any]:
    from base64 import b64encode

    return {
        "eventSource": "aws:kinesis",
        "eventID": f"shardId-000000000000:{number}",
        "eventSourceARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
        "kinesis": {
            "partitionKey": "p",
            "sequenceNumber": number,
            "data": b64encode(data).decode(),
            "approximateArrivalTimestamp": 1.5e9,
        },
    }


def noted(folder: Path) -> list[tuple[Kind, str, int, int]]:
    book, _ = read_produced([str(folder)])
    assert book.streams <= {"orders"}
    return [
        (row.kind, row.sequence_number, row.first, row.user_records)
        for _, rows in book.rows("handled")
        for row in rows
    ]


ALL = [("handled", "100", 0, 3), ("handled", "200", 0, 1), ("handled", "300", 0, 2)]


@pytest.mark.requirement("AUD-7")
@pytest.mark.parametrize("loop", ["plain", "async", "window"])
def test_lambda_consumers_note_what_they_have_handled_before_they_answer(loop: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)

    def handle(record: DeaggregatedRecord) -> None:
        if record.data == fails:
            raise ValueError("planted")

    def run() -> dict[str, Any]:
        if loop == "plain":
            return process_user_records(lambda_event(), handle, ledger=ledger)
        if loop == "async":

            async def handle_it(record: DeaggregatedRecord) -> None:
                handle(record)

            return aio.run(aio.process_user_records(lambda_event(), handle_it, ledger=ledger, concurrency=1))
        return process_window(
            {**lambda_event(), "state": {}}, lambda state, record: handle(record), ledger=ledger
        )

    fails = b"5"
    assert run()["batchItemFailures"] == [{"itemIdentifier": "300"}]
    handled = noted(tmp_path)
    assert handled[:2] == ALL[:2]
    # A window's state leaves out the Kinesis record that failed.
    assert handled[2:] == ([] if loop == "window" else [("handled", "300", 0, 1)])
    fails = b""
    assert run()["batchItemFailures"] == []
    assert noted(tmp_path)[-3:] == ALL


@pytest.mark.requirement("AUD-7")
def test_what_was_handled_before_is_noted_as_such(tmp_path: Path) -> None:
    known: set[str] = set()

    def once(key: str, call: Any) -> object:
        if key in known:
            return None
        known.add(key)
        return call()

    ledger = Ledger(tmp_path)
    for _ in range(2):
        process_user_records(lambda_event(), lambda record: None, once=once, ledger=ledger)
    assert noted(tmp_path) == ALL + [("before", *row[1:]) for row in ALL]


@pytest.mark.requirement("AUD-7")
def test_a_note_that_cannot_be_written_fails_the_invocation(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({}))
    with pytest.raises(OSError):
        process_user_records(lambda_event(), lambda record: None, ledger=Ledger(tmp_path / "file"))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 on this machine, with a bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://{}:{}".format(*server.get_host_and_port()))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    boto3.client("s3").create_bucket(Bucket="ledgers")
    client._s3.cache_clear()
    yield "s3://ledgers"
    server.stop()
    client._s3.cache_clear()


def test_both_sides_may_be_in_s3(bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    writer = Ledger(f"{bucket}/produced").writer("orders")
    writer.note(
        [Row("delivered", SHARD, number, count, 5) for number, count in (("100", 3), ("200", 1), ("300", 2))]
    )
    writer.close()
    ledger = Ledger(f"{bucket}/handled")
    sides = ["audit", "--produced", f"{bucket}/produced/", "--handled", f"{bucket}/handled", "--json"]
    process_user_records({"Records": lambda_event()["Records"][:1]}, lambda record: None, ledger=ledger)
    assert main(sides) == 1
    assert json.loads(capsys.readouterr().out)["userRecords"]["tooEarly"] == 3
    process_user_records({"Records": lambda_event()["Records"][2:]}, lambda record: None, ledger=ledger)
    assert main(sides) == 1
    assert json.loads(capsys.readouterr().out)["userRecords"]["missing"] == 1
    process_user_records({"Records": lambda_event()["Records"][1:2]}, lambda record: None, ledger=ledger)
    assert main(sides) == 0


@pytest.mark.requirement("AUD-5")
@pytest.mark.parametrize("payload", [b"{}", b"[]", b"no JSON"])
def test_a_header_and_an_end_mark_that_say_something_else_are_a_hole(payload: bytes) -> None:
    book = Book()
    book.add_file("w-000000.kpl-ledger", chunk(b"H", 0, payload) + chunk(b"E", 1, payload))
    assert list(book.rows("produced")) == []
    assert [hole.why for hole in book.holes("produced")] == ["segment 0 has no end mark"]
    assert book.streams == set()


def test_what_has_no_name_is_not_noted(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for shard, number in ((None, "1"), (SHARD, None)):
        records = list(deaggregate([KinesisRecord("k", b"data", number, shard)]))
        with pytest.raises(ValueError, match="has no name"):
            ledger.handled("orders", records)
    assert not list(tmp_path.iterdir())
