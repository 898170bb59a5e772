"""Ledgers: their bytes, their sinks, and what is said of one that is not whole."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import signal
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec import KinesisRecord, UserRecord, deaggregate, encode
from kpl_codec.adapters import to_lambda
from kpl_codec.arrow import deaggregate_table
from kpl_codec.audit import Ledger
from kpl_codec.audit.audit_run import audit
from kpl_codec.audit.files import InputSide
from kpl_codec.aws import client
from kpl_codec.aws_lambda import aio, process_user_records
from kpl_codec.cli.main import main
from kpl_codec.deaggregation.deaggregated_record import DeaggregatedRecord
from kpl_codec.ledger import ledger as ledger_module
from kpl_codec.ledger.ledger import SUFFIX, Writer
from kpl_codec.ledger.ledger_rows import KINDS, Row, RowKind, digest_of, line_of

from ..audit.model import SHARD, Files, header, member, printed, read_ledgers, rows_of
from ..spec.vectors import load

NAMES = st.tuples(
    st.sampled_from(["shardId-000000000000", "shardId-000000000001"]),
    st.integers(1, 10**129 - 1).map(str),
)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    kind = draw(st.sampled_from(KINDS))
    shard_id, number = draw(NAMES)
    if kind in ("refused", "left"):
        shard_id, number = "AccessDeniedException", ""
    if kind == "unanswered":
        number = ""
    count, first = draw(st.integers(0, 10**6)), draw(st.integers(0, 7 * 10**5))
    digest = draw(st.binary(min_size=8, max_size=8))
    return Row(
        kind,
        shard_id,
        sequence_number=number,
        user_records=count,
        at=draw(st.integers(0, 2**62)),
        digest=digest,
        first=first,
    )


ROWS = rows()


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.text(max_size=3), SCALARS))
KEYS = ["kind", "shard", "sequence_number", "sub_sequence_number", "user_records", "at_ms", "digest"]
KEYS += ["error_code", "version", "side", "stream", "stream_arn", "named", "lines", "member"]


@pytest.mark.requirement("AUD-21")
@given(row=ROWS, changes=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4), data=st.data())
def test_whatever_a_line_says_nothing_is_raised(
    row: Row, changes: dict[str, Any], data: st.DataObject
) -> None:
    lines = [header("produced", 3), json.loads(line_of(row)), {"kind": "end", "named": [0, {}]}]
    changed = data.draw(st.integers(0, 2))
    lines[changed] = {**lines[changed], **changes}
    text = member(lines)
    rows, _ = read_ledgers({f"w-000000{SUFFIX}": gzip.compress(text)})
    assert all(0 <= row.user_records < 2_000_000 for row in rows)
    assert rows == read_ledgers({"app.log": text})[0]


@pytest.mark.requirement("AUD-21", "AUD-30")
def test_a_hostile_file_takes_no_more_memory_where_it_is_longer() -> None:
    """Anybody may write into a ledger. Of a line without an end, of lines that are no rows, and of what else
    the lines of a member hold, nothing is kept: twice as many bytes take no more."""
    of_a_member = b'{"kind":"handled","a":"%b"}\n'
    for text in (b"0" * 1000, b'{"a":"%b"}\n' % (b"x" * 1000), of_a_member % (b"x" * 1000)):
        peaks = []
        for count in (2_400, 4_800):
            data = gzip.compress(member([header("handled", 5000)]) + text * count, 1)
            tracemalloc.start()
            rows, lost = read_ledgers({f"w-000000{SUFFIX}": data}, "handled")
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert not rows
            assert lost
        assert peaks[1] - peaks[0] < 1 << 19


def written(rows: list[list[Row]], part_bytes: int) -> dict[str, bytes]:
    files = Files()
    writer = Writer(files.sink(part_bytes), "w", "orders", "produced", wait=True)
    for some in rows:
        writer.note(some)
    writer.close()
    return {file: b"".join(members) for file, members in files.items()}


BLOCKS = st.lists(st.lists(ROWS, min_size=1, max_size=4), max_size=5)


@pytest.mark.requirement("AUD-2")
def test_the_digest_is_that_of_the_frame() -> None:
    frame = encode([UserRecord("a", b"1"), UserRecord("b", b"2")])
    assert digest_of("outer", frame) == frame[-16:-8]
    assert digest_of("k", b"data") != digest_of("kd", b"ata")


@pytest.mark.requirement("AUD-23")
@pytest.mark.parametrize("character", ["x", "\u00e9", "\U0001f600"])
def test_no_line_of_a_log_is_long(character: str) -> None:
    rows = [
        Row("left", character * 5000, sequence_number="", user_records=1, at=0),
        Row("delivered", character * 128, sequence_number="7", user_records=1, at=0),
    ]
    lines = printed(rows, side="produced")
    assert max(map(len, lines)) < 12_000
    rows_read, lost = read_ledgers({"log": "".join(f"{line}\n" for line in lines).encode()})
    assert (len(rows_read), [*lost]) == (2, [])


@pytest.mark.requirement("AUD-6")
@pytest.mark.parametrize("side", ["produced", "handled"])
@given(fails=st.lists(st.booleans(), min_size=1, max_size=8), stores=st.booleans(), s3=st.booleans())
def test_a_write_that_fails_is_tried_again(
    fails: list[bool], stores: bool, s3: bool, side: InputSide
) -> None:
    """However often it fails, and whether or not it was stored all the same."""
    plan, files = iter([False, *fails]), Files()

    def failing(file: str, lines: Sequence[str]) -> None:
        bad = next(plan, False)
        if stores or not bad:
            files.write(file, lines)
        if bad:
            raise OSError(errno.ENOSPC, "no space")

    sink = files.sink(0 if s3 else 1)._replace(write=failing)
    writer = Writer(sink, "w", "orders", side, wait=True)
    rows = rows_of("handled", *range(1, 7), user_records=3)
    for row in rows:
        with suppress(OSError):
            writer.note([row])
    with suppress(OSError):
        writer.close()
    rows_read, lost = read_ledgers({file: b"".join(part) for file, part in files.items()}, side)
    assert (Counter(rows_read), [*lost]) == (Counter(rows), []) or len(fails) > 6


@pytest.mark.requirement("AUD-6")
def test_each_series_of_failures_is_logged_once_and_what_was_given_up_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kpl_codec.ledger.ledger._MOST_WAITING", 3)
    place = tmp_path / "file"
    rows = iter(rows_of("delivered", *range(1, 9), user_records=3))
    place.touch()  # no folder
    writer = Ledger(place, wait=True).writer("orders")
    for _ in range(5):
        writer.note([next(rows)])  # raises nothing
    place.unlink()
    writer.note([next(rows)])
    place.rename(tmp_path / "folder")
    place.touch()
    for _ in range(2):
        writer.note([next(rows)])
    place.unlink()
    (tmp_path / "folder").rename(place)
    writer.close()
    again = f"the ledger of orders cannot be written to {place}, and is tried again: File exists"
    closed = f"the ledger of orders is closed; the rows of 15 user records could not be written to {place}"
    assert caplog.messages == [again, again, closed]
    rows_read, lost = read_ledgers(str(place))
    assert [row.sequence_number for row in rows_read] == ["5", "6", "8"]
    whole = ": not there, or not whole"
    assert [part.why for part in lost] == [f"member 0 to 4{whole}", f"member 7{whole}"]


@pytest.mark.requirement("AUD-29")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork is what is tested: this system has none")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize(("side", "wait"), [("produced", False), ("produced", True), ("handled", False)])
def test_a_forked_process_is_a_writer_of_its_own(side: InputSide, wait: bool, tmp_path: Path) -> None:
    """Three notes in each child, one does nothing; the parent notes before and after."""
    writer = Ledger(tmp_path, wait=wait).writer("orders", side)
    writer.note(rows_of("delivered", 1))
    with writer._lock, writer._io:  # as a thread of the parent may have them
        children = []
        for child in range(4):
            if pid := os.fork():
                children.append(pid)
                continue
            signal.alarm(60)  # a child that waits for a lock for ever ends, and fails the test
            for number in range(3 * (child > 0)):
                writer.note(rows_of("delivered", f"{child}{number}"))
            writer.close()
            os._exit(0)
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    writer.note(rows_of("delivered", 2))
    writer.close()
    rows, lost = read_ledgers(str(tmp_path), side)
    expected = ["1", "2", *(f"{child}{number}" for child in (1, 2, 3) for number in range(3))]
    assert (Counter(row.sequence_number for row in rows), [*lost]) == (Counter(expected), [])
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.requirement("AUD-29")
@given(ours=BLOCKS, theirs=BLOCKS, size=st.sampled_from([1, 1 << 20]))
def test_two_writers_of_one_name_lose_no_row(
    ours: list[list[Row]], theirs: list[list[Row]], size: int
) -> None:
    """As of a machine that was cloned, or of a copied process."""
    both = [
        (f"{number}/{file}", data)
        for number, files in enumerate((ours, theirs))
        for file, data in written(files, size).items()
    ]
    rows_read, lost = read_ledgers(dict(both))
    rows = [Counter(row for some in blocks for row in some) for blocks in (ours, theirs)]
    assert not (rows[0] | rows[1]) - Counter(rows_read)
    assert not Counter(rows_read) - (rows[0] + rows[1])
    assert ours == theirs or lost


@pytest.mark.requirement("AUD-5")
@pytest.mark.parametrize("wait", [False, True])
def test_what_is_noted_after_the_end_is_written_and_the_ledger_not_whole(wait: bool, tmp_path: Path) -> None:
    writer = Ledger(tmp_path, wait=wait).writer("orders")
    writer.close()
    writer.note(rows_of("delivered", 1))
    rows, lost = read_ledgers(str(tmp_path))
    assert [row.sequence_number for row in rows] == ["1"]
    assert [part.why for part in lost] == ["it was not closed, or its end is not there"]


# -- consumers -------------------------------------------------------------------------------------


def lambda_event(*numbers: str) -> dict[str, Any]:
    """Three Kinesis records, or those of them with these sequence numbers."""
    aggregates = [["a0", "b1", "c2"], ["a4", "b5"]]
    first, last = (encode([UserRecord(u[0], u[1:].encode()) for u in users]) for users in aggregates)
    data = {"100": first, "200": b"3", "300": last}
    return event_of({number: data[number] for number in numbers or data})


def event_of(data: Mapping[str, bytes]) -> dict[str, Any]:
    """Lambda's event, by sequence numbers."""
    records = [KinesisRecord("p", data, number, SHARD) for number, data in data.items()]
    return to_lambda(records, stream_arn="arn:aws:kinesis:eu-west-1:123456789012:stream/orders")


def handled_rows(folder: Path) -> list[tuple[RowKind, str, int, int]]:
    rows, _ = read_ledgers(str(folder), "handled")
    return [(row.kind, row.sequence_number, row.first, row.user_records) for row in rows]


ALL = [("handled", "100", 0, 3), ("handled", "200", 0, 1), ("handled", "300", 0, 2)]


@pytest.mark.requirement("AUD-7")
@pytest.mark.parametrize("loop", ["plain", "async"])
def test_lambda_consumers_note_what_they_have_handled_before_they_answer(loop: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)

    def handle(record: DeaggregatedRecord) -> None:
        if record.data == fails:
            raise ValueError("planted")

    def run() -> dict[str, Any]:
        if loop == "plain":
            return process_user_records(lambda_event(), handle, ledger=ledger)

        async def handle_it(record: DeaggregatedRecord) -> None:
            handle(record)

        return aio.run(aio.process_user_records(lambda_event(), handle_it, ledger=ledger, concurrency=1))

    fails = b"5"
    assert run()["batchItemFailures"] == [{"itemIdentifier": "300"}]
    handled = handled_rows(tmp_path)
    assert handled[:2] == ALL[:2]
    assert handled[2:] == [("handled", "300", 0, 1)]
    fails = b""
    assert run()["batchItemFailures"] == []
    assert handled_rows(tmp_path)[-3:] == ALL


@pytest.mark.requirement("AUD-7")
def test_what_was_handled_before_is_noted_as_such(tmp_path: Path) -> None:
    done: set[str] = set()

    def once(key: str, call: Any) -> object:
        if key in done:
            return None
        done.add(key)
        return call()

    ledger = Ledger(tmp_path)
    for _ in range(2):
        process_user_records(lambda_event(), lambda record: None, once=once, ledger=ledger)
    assert handled_rows(tmp_path) == ALL + [("before", *row[1:]) for row in ALL]


@pytest.mark.requirement("AUD-22")
def test_what_a_poison_hook_took_is_put_aside(tmp_path: Path) -> None:
    good, bad = (encode([UserRecord("a", b"%d" % number)] * 3) for number in range(2))
    bad = bad[:-1] + bytes([bad[-1] ^ 1])
    writer = Ledger(tmp_path / "produced").writer("orders")
    for number, data in (("100", bad), ("200", good)):
        writer.put(SHARD, number, partition_key="p", data=data)
    writer.close()
    event = event_of({"100": bad, "200": good})
    poison: list[Any] = []
    ledger = Ledger(tmp_path / "handled")
    process_user_records(event, lambda record: None, on_poison=poison.append, ledger=ledger)
    audited = audit([str(tmp_path / "produced")], [str(tmp_path / "handled")])
    assert len(poison) == 1
    assert audited.audit.complete
    assert audited.facts["userRecords"]["handled"] == 3
    assert audited.facts["userRecords"]["aside"] == audited.facts["userRecords"]["delivered"] - 3 > 0
    assert [one.kind for one in audited.findings] == ["audit-aside"]


@pytest.mark.requirement("AUD-7")
def test_a_note_that_cannot_be_written_fails_the_invocation(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({}))
    with pytest.raises(OSError):
        process_user_records(lambda_event(), lambda record: None, ledger=Ledger(tmp_path / "file"))


@pytest.fixture
def bucket(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 on this machine, with a bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", moto_url)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    boto3.client("s3").create_bucket(Bucket="ledgers")
    client._s3.cache_clear()
    yield "s3://ledgers"
    client._s3.cache_clear()


@pytest.mark.requirement("AUD-5")
def test_both_sides_may_be_in_s3(bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    writer = Ledger(f"{bucket}/produced/").writer("orders")
    assert len(read_ledgers(f"{bucket}/produced")[1]) == 1  # a producer that has begun and not ended
    for number, count in ((100, 3), (200, 1), (300, 2)):
        writer.note(rows_of("delivered", number, user_records=count))
    writer.close()
    keys = [one["Key"] for one in boto3.client("s3").list_objects_v2(Bucket="ledgers")["Contents"]]
    assert keys == [f"produced/{writer.name}-{number:06d}{SUFFIX}" for number in range(3)]
    ledger = Ledger(f"{bucket}/handled")
    sides = ["audit", "--produced", f"{bucket}/produced/", "--handled", f"{bucket}/handled", "--json"]
    process_user_records(lambda_event("100", "300"), lambda record: None, ledger=ledger)
    assert main(sides) == 1
    assert json.loads(capsys.readouterr().out)["userRecords"]["missing"] == 1
    process_user_records(lambda_event("200"), lambda record: None, ledger=ledger)
    assert main(sides) == 0


def test_what_has_no_name_is_not_noted(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for shard, number in ((None, "1"), (SHARD, None)):
        records = list(deaggregate([KinesisRecord("k", b"data", number, shard)]))
        with pytest.raises(ValueError, match="has no name"):
            ledger.handled("orders", records)
    wrong = r"records of Ledger\.handled is of type bytes in item 0, give user records"
    with pytest.raises(TypeError, match=wrong):
        ledger.handled("orders", [b"data"])  # type: ignore[list-item]
    assert not list(tmp_path.iterdir())


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.requirement("AUD-31")
def test_a_place_that_is_none_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in (
        "",
        "~/ledger",
        "s3:/bucket/put",
        "S3://bucket/put",
        "s3://",
        "gs://bucket/put",
        "arn:aws:s3:::b",
    ):
        with pytest.raises(ValueError, match=r"^place of Ledger is .*, give s3://BUCKET/PREFIX, or a folder"):
            Ledger(place)
    with pytest.raises(ValueError, match="cannot wait for S3"):
        Ledger("s3://bucket/ledger", wait=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.requirement("AUD-32")
@pytest.mark.parametrize("side", ["produced", "handled"])
def test_a_bad_row_is_refused_and_takes_no_other_along(side: InputSide, tmp_path: Path) -> None:
    rows = rows_of("delivered", *range(1, 40), user_records=2)
    changes: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"sequence_number": 7}, TypeError),
        ({"sequence_number": "7.0"}, ValueError),
        ({"sequence_number": ""}, ValueError),
        ({"shard_id": None}, TypeError),
        ({"shard_id": "s" * 600}, ValueError),
        ({"shard_id": "\ud800"}, ValueError),
        ({"user_records": "3"}, TypeError),
        ({"user_records": True}, TypeError),
        ({"user_records": -1}, ValueError),
        ({"kind": "stored"}, ValueError),
        ({"digest": b"1"}, ValueError),
        ({"at": 1 << 63}, ValueError),
    ]
    writer, noted = Ledger(tmp_path).writer("orders", side), []
    for change, error in changes:
        writer.note([row := rows.pop()])
        noted.append(row)
        with pytest.raises(error):
            writer.note([rows.pop(), rows.pop().replace(**change)])
    writer.close()
    rows_read, lost = read_ledgers(str(tmp_path), side)
    assert (Counter(rows_read), [*lost]) == (Counter(noted), [])


@pytest.mark.requirement("AUD-6")
@pytest.mark.parametrize("fails", ["write", "fsync"])
@pytest.mark.parametrize("first", [True, False], ids=["a new file", "a file with a member"])
def test_a_failed_append_is_cut_back(
    first: bool, fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is half-written would be a hole of the file."""
    path = tmp_path / "folder/w-000000.ledger.jsonl.gz"
    if not first:
        ledger_module._append(path, b"a member")
    before = path.read_bytes() if path.exists() else None

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space")

    class Full(io.FileIO):
        def write(self, data: Any, /) -> int:
            if data[:1] == b"l":
                raise OSError(errno.ENOSPC, "no space")
            return super().write(data[:3])

    with monkeypatch.context() as patched:
        if fails == "fsync":
            patched.setattr(os, "fsync", refuse)
        else:
            patched.setattr(
                ledger_module, "open", lambda file, mode, buffering: Full(file, "a"), raising=False
            )
        with pytest.raises(OSError, match="no space"):
            ledger_module._append(path, b"it is long")
    assert (path.read_bytes() if path.exists() else None) == before
    ledger_module._append(path, b"it is long")
    assert path.read_bytes() == (before or b"") + b"it is long"


@pytest.mark.requirement("AUD-21")
def test_a_row_about_a_frame_as_a_whole_is_no_user_record(tmp_path: Path) -> None:
    """The report policy gives one for a table of keys with a key that is too long. A ledger leaves it out;
    of a table the audit names it, and who leaves it out, as advised, has a clean table."""
    (vector,) = (vector for vector in load() if vector["id"] == "key-too-long-unused")
    data = bytes.fromhex(vector["input"]["data"])
    records = list(deaggregate([KinesisRecord("key", data, "100", SHARD)], "report"))
    assert [one.sub_sequence_number for one in records] == [-1, 0]
    with closing(Ledger(tmp_path / "put").writer("orders")) as writer:
        writer.put(SHARD, "100", partition_key="key", data=data)
    Ledger(tmp_path / "ledger").handled("orders", records)
    captured = {"shardId": [SHARD], "sequenceNumber": ["100"], "partitionKey": ["key"], "data": [data]}
    table = deaggregate_table(pa.table(captured), "report").table
    table = table.select([*captured, "subSequenceNumber", "explicitHashKey"])
    pq.write_table(table, tmp_path / "all")
    pq.write_table(table.filter(pc.field("subSequenceNumber") >= 0), tmp_path / "user records")
    named = {}
    for handled in ("ledger", "all", "user records"):
        result = audit([str(tmp_path / "put")], [str(tmp_path / handled)])
        assert result.audit.complete
        named[handled] = [(part.row, "Leave out -1" in part.why) for part in result.unreadable]
    assert named == {"ledger": [], "all": [(1, True)], "user records": []}
