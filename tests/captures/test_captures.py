"""Reading captured records: nothing is lost, nothing is silent, every place is exact."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import zlib
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.adapters import to_get_records, to_lambda
from kpl_codec.captures import FileRange, InputError, frames, plan, read_piece
from kpl_codec.captures.account import Account
from kpl_codec.captures.files import NO_FILE, PIECE_BYTES
from kpl_codec.findings import Finding
from kpl_codec.format.limits import MAGIC
from kpl_codec.validate.check import check
from kpl_codec.validate.task import pack
from tests.every import every
from tests.examples import examples

WHEN = datetime(2026, 11, 21, 3, 0, 0, 123000, tzinfo=timezone.utc)


def answer(*data: bytes, shard: str | None = "shardId-000000000000", first: int = 1) -> dict[str, Any]:
    """A GetRecords answer as our captures keep it."""
    named = {"StreamName": "orders", "ShardId": shard} if shard else {}
    records = [kpl.KinesisRecord("k", one, str(first + at), None, WHEN) for at, one in enumerate(data)]
    return {**named, **to_get_records(records, dump=True)}


PAYMENTS = "arn:aws:kinesis:us-east-1:123456789012:stream/payments"


def lambda_event(*data: bytes) -> dict[str, Any]:
    shard = "shardId-000000000003"
    records = [kpl.KinesisRecord("k", one, str(100 + at), shard, WHEN) for at, one in enumerate(data)]
    return to_lambda(records, stream_arn=PAYMENTS)


def read_all(path: Path, piece_bytes: int = PIECE_BYTES) -> tuple[list[dict[str, Any]], Account]:
    """The rows, and an account that was made in as many tasks as there are pieces."""
    rows, account = [], Account()
    for piece in plan([str(path)], piece_bytes=piece_bytes):
        one = Account()
        rows += [row for batch in read_piece(piece, account=one) for row in batch.to_pylist()]
        account.add(Account.from_bytes(one.to_bytes()))
    return rows, account


def gaps(path: Path, account: Account) -> list[str]:
    given_files = {piece.path for piece in plan([str(path)])}
    return [str(finding.detail) for finding in account.findings(given_files, checked=False)]


def read(path: Path, piece_bytes: int = PIECE_BYTES) -> list[dict[str, Any]]:
    """The rows, whose account closes."""
    rows, account = read_all(path, piece_bytes)
    assert gaps(path, account) == []
    return rows


def bad(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(r["captureError"], r["position"], r["line"]) for r in rows if r["captureError"]]


def data(rows: list[dict[str, Any]]) -> list[bytes]:
    return [r["data"] for r in rows if not r["captureError"]]


@pytest.mark.requirement("SPK-10", "SPK-14")
def test_every_form_of_json_gives_the_same_records(tmp_path: Path) -> None:
    values = [answer(b"a", b"b"), lambda_event(b"c"), answer(b"d", first=9)]
    lines = "\n".join(map(json.dumps, values)).encode()
    forms = {
        "lines": lines,
        "pretty": "\n".join(json.dumps(value, indent=4) for value in values).encode(),
        "array": json.dumps(values, indent=1).encode(),
        "one line": "".join(map(json.dumps, values)).encode(),
        "byte order mark": b"\xef\xbb\xbf" + lines,
        "CRLF": lines.replace(b"\n", b"\r\n") + b"\r\n",
    }
    for form, content in forms.items():
        for packed in (False, True):
            path = tmp_path / form
            path.write_bytes(gzip.compress(content) if packed else content)
            rows = read(path)
            names = ("captureError", "data", "streamName", "shardId", "sequenceNumber", "recordIndex")
            assert [tuple(row[name] for name in names) for row in rows] == [
                (None, b"a", "orders", "shardId-000000000000", "1", 0),
                (None, b"b", "orders", "shardId-000000000000", "2", 1),
                (None, b"c", PAYMENTS, "shardId-000000000003", "100", 0),
                (None, b"d", "orders", "shardId-000000000000", "9", 0),
            ], form
            assert {(r["approximateArrivalTimestamp"], r["file"]) for r in rows} == {(WHEN, str(path))}
            assert all(content[r["position"] : r["position"] + 1] in b"{[" for r in rows)


@pytest.mark.requirement("SPK-12", "SPK-14", "CAP-1", "CAP-10", "CAP-11")
def test_bad_values_are_named_with_their_place_and_hide_nothing(tmp_path: Path) -> None:
    lines: list[tuple[bytes, Any]] = [
        (json.dumps(answer(b"1")).encode(), None),
        (b'{"Records": [{"Data": "x', ("json", 0, "Invalid control character")),
        (json.dumps(answer(b"2")).encode(), None),
        (b'{"Records": "\xff\xfe"}', ("utf-8", 0, "not UTF-8")),
        (b"", None),
        (b'{"neither": "this"}', ("unknown-shape", 0, "")),
        (b"17", ("unknown-shape", 0, "")),
        (b"[" * 100_000, ("json", 1, "nested too deeply")),  # the first item of a list
        (json.dumps(answer(b"3", b"x")).replace("eA==", "!!").encode(), ("base64", 0, "Records[1].Data")),
        (b'{"n": ' + b"9" * 6000 + b"}", ("json", 0, "a number of thousands of digits")),
        (b'{"a": 1, "a": 2}', ("duplicate-member", 0, "a member twice in one object")),
        (b'{"c": tru}', ("json", 0, "Expecting value")),
        (json.dumps(answer(b"4")).encode(), None),
    ]
    path = tmp_path / "mixed.jsonl"
    path.write_bytes(b"\n".join(line for line, _ in lines))
    rows = read(path)
    assert data(rows) == [b"1", b"2", b"3", b"4"]
    told, start = [], 0
    for number, (line, defect) in enumerate(lines, 1):
        told += [] if defect is None else [(defect[0], start + defect[1], number)]
        start += len(line) + 1
    assert bad(rows) == told
    texts = [row["captureText"] for row in rows if row["captureError"]]
    reasons = [defect[2] for _, defect in lines if defect is not None]
    assert [reason for text, reason in zip(texts, reasons, strict=True) if reason not in text] == []
    assert [r["recordIndex"] for r in rows if r["captureError"] == "base64"] == [1]


@pytest.mark.requirement("SPK-14")
def test_a_name_without_utf_8_form_is_no_end_of_the_job(tmp_path: Path) -> None:
    path = tmp_path / "names.jsonl"
    path.write_text(json.dumps({**answer(b"a"), "StreamName": "\ud800", "ShardId": "\udc80"}))
    (row,) = read(path)
    assert (row["data"], row["streamName"], row["shardId"]) == (b"a", "?", "?")


def parquet(names: list[str], *columns: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table([pa.array(column) for column in columns], names), file)
    return file.getvalue()


FRAMES = [kpl.encode([kpl.UserRecord(f"k{n}", b"%d" % n) for n in range(count)]) for count in (1, 300, 2, 20)]
GOOD = json.dumps(answer(b"fine")).encode()
SEQUENCE = ["data", "sequenceNumber", "sequence_number"]
#: Files by name: what is in each, the code of its row (None: a record; "": no row), and a word of its text.
FILES: dict[str, tuple[bytes, str | None, str]] = {
    "a-good.jsonl": (GOOD, None, ""),
    "answer.txt": (gzip.compress(GOOD), None, ""),
    "blank.json": (b" \n\n", "empty", ""),
    "blank.json.gz": (gzip.compress(b""), "empty", ""),
    "empty.jsonl": (b"", "empty", ""),
    "no-records.json": (json.dumps(answer()).encode(), "", ""),
    "not-gzip.gz": (b"hello", "json", ""),  # its bytes say what it is, not its name
    "frame.bin": (FRAMES[0], None, ""),
    "frame-packed": (gzip.compress(FRAMES[0]), None, ""),
    "huge": (FRAMES[0][:4] + bytes(17 << 20), "file", ""),
    "cut.parquet": (b"PAR1" + random.Random(2).randbytes(5000), "file", ""),
    "other.parquet": (parquet(["value"], [b"x"]), "no-data-column", ""),
    "no-rows.parquet": (parquet(["data"], pa.array([], pa.binary())), "empty", ""),
    "typed.parquet": (parquet(["data", "shardId"], [b"p"], [7]), None, ""),  # 7 reads as the text "7"
    "words.parquet": (parquet(["data"], pa.array([b"a"]).dictionary_encode()), None, ""),
    "text.parquet": (parquet(["data"], ["YQ=="]), "wrong-type", "must be binary"),
    "list.parquet": (parquet(["data"], [[b"x"]]), "wrong-type", "must be binary"),
    "struct.parquet": (parquet(["data"], [{"binary": b"x"}]), "wrong-type", "must be binary"),
    "twice.parquet": (parquet(["data", "data"], [b"a"], [b"a"]), "wrong-type", ""),
    "other-case.parquet": (parquet(["data", "Data"], [b"a"], [b"a"]), "wrong-type", ""),
    "union.parquet": (parquet(SEQUENCE, [b"a"], ["1"], [None]), "wrong-type", "sequence_number"),
    "_SUCCESS": (b"?", "", ""),
    "_empty": (b"", "", ""),
    ".part.crc": (b"?", "", ""),
    "_old/good.jsonl": (GOOD, "hidden", ""),
    ".good.jsonl": (GOOD, "hidden", ""),
    "z-good.jsonl": (GOOD, None, ""),
}


@pytest.mark.requirement("SPK-10", "SPK-11", "SPK-12", "SPK-15")
def test_each_file_is_what_its_bytes_say_and_bad_ones_do_not_sink_the_others(tmp_path: Path) -> None:
    (tmp_path / "_old").mkdir()
    for name, (content, _, _) in FILES.items():
        (tmp_path / name).write_bytes(content)
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "garbage.bin").write_bytes(random.Random(1).randbytes(200_000))
    many = "\n".join(json.dumps(answer(random.Random(i).randbytes(500))) for i in range(500)).encode()
    cut_off = gzip.compress(many)[:-100_000]
    (tmp_path / "cut.jsonl.gz").write_bytes(cut_off)
    by_file: dict[str, list[Any]] = {}
    for row in read(tmp_path):
        name = str(Path(row["file"]).relative_to(tmp_path))
        by_file.setdefault(name, []).append(row["captureError"])
        assert FILES.get(name, (b"", None, ""))[2] in (row["captureText"] or "")
    assert set(by_file.pop("garbage.bin")) <= {"utf-8", "json", "unknown-shape"}
    assert by_file.pop("pipe.json") == ["file"]
    # What was before the cut counts.
    lines = zlib.decompressobj(31).decompress(cut_off).count(b"\n")
    assert lines > 100
    assert by_file.pop("cut.jsonl.gz") == [*[None] * lines, "json", "file"]
    assert by_file == {name: [code] for name, (_, code, _) in FILES.items() if code != ""}


@pytest.mark.requirement("SPK-12", "SPK-10")
def test_links(tmp_path: Path) -> None:
    """One that leads nowhere, to a hidden file, back into its folder: of two of these each level would be
    twice the one before."""
    folder, good = tmp_path / "folder", GOOD.decode()
    (folder / "deep").mkdir(parents=True)
    (folder / "_hidden.json").write_text(good)
    with pytest.raises(InputError, match="no file in it but 1 file left out: names"):
        plan([str(folder)])
    assert [row["captureError"] for row in read(folder / "_hidden.json")] == [None]  # named itself
    (folder / "good.json").write_text(good)
    (folder / "_data").write_text(good)
    links = {"circle": folder, "other.json": "good.json", "of-a-mounted-volume.json": "_data"}
    nowhere = {"self": "self", "below": "good.json/below", "gone": folder / "no", "long": "x" * 300}
    for number in range(40):
        links[f"deep/back{number}"], links[f"latest{number}"] = folder, folder / "deep"
    for name, target in {**links, **nowhere}.items():
        (folder / name).symlink_to(target)
    assert {Path(row["file"]).name: row["captureError"] for row in read(folder)} == {
        "_hidden.json": "hidden",
        "good.json": None,
        "of-a-mounted-volume.json": None,
        **dict.fromkeys(nowhere, "file"),
    }
    (tmp_path / "same").symlink_to(folder)
    assert plan([str(folder), str(tmp_path / "same")]) == plan([str(folder)])


LISTED = """
import os, sys
from kpl_codec.captures import plan
if os.getuid() == 0:
    os.setuid(65534)
print(*((piece.path, piece.size) for piece in plan([sys.argv[1]])))
"""


@pytest.mark.requirement("SPK-12", "SPK-10")
def test_a_folder_that_may_not_be_listed_hides_no_file() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        capture, closed = Path(folder, "capture.json"), Path(folder, "closed")
        capture.write_text(json.dumps(answer(b"fine")))
        closed.mkdir(mode=0)
        command = [sys.executable, "-c", LISTED, folder]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert listed.strip() == f"{(str(capture), capture.stat().st_size)} {(str(closed), NO_FILE)}"


@pytest.mark.requirement("SPK-15")
@every(
    "names",
    [
        ["data", "streamName", "partitionKey", "sequenceNumber", "approximateArrivalTimestamp"],
        ["data", "stream", "partitionKey", "sequenceNumber", "approximateArrivalTimestamp"],
        ["DATA", "stream_name", "partition_key", "sequence_number", "approximate_arrival_timestamp"],
    ],
)
def test_parquet_of_the_connectors(tmp_path: Path, names: list[str]) -> None:
    times = pa.array([WHEN] * 2, pa.timestamp("us", "UTC"))
    (tmp_path / "x.parquet").write_bytes(
        parquet(names, [b"a", b"b"], ["orders"] * 2, ["k"] * 2, ["1", "2"], times)
    )
    columns = ("data", "streamName", "partitionKey", "sequenceNumber", "approximateArrivalTimestamp")
    rows = [[row[name] for name in (*columns, "position")] for row in read(tmp_path)]
    assert rows == [[b"a", "orders", "k", "1", WHEN, 0], [b"b", "orders", "k", "2", WHEN, 1]]


@pytest.mark.requirement("SPK-44")
def test_user_data_is_one_finding_and_a_shard_listing_none(tmp_path: Path) -> None:
    lines = [json.dumps({"order": number}) for number in range(1500)]
    (tmp_path / "orders-1-2026-11-21-03-00-00-uuid").write_text("".join(lines))
    (tmp_path / "shards.json").write_text(json.dumps({"Shards": [{"ShardId": "shardId-0"}]}, indent=2))
    (tmp_path / "listed.json").write_text(
        json.dumps({"stream": "orders", "shards": [{"shardId": "shardId-0"}]})
    )
    (tmp_path / "z-list.json").write_text(json.dumps([{"order": number} for number in range(1500)]))
    rows = read(tmp_path)
    assert [row["captureError"] for row in rows] == ["user-data"] * 2
    assert all("1,500" in row["captureText"] for row in rows)
    # Where there is one record, the others are told one by one.
    (tmp_path / "mixed.jsonl").write_text("\n".join([*lines, json.dumps(answer(b"x"))]))
    rows = read(tmp_path / "mixed.jsonl")
    assert data(rows) == [b"x"]
    assert [row["captureError"] for row in rows].count("unknown-shape") == 1001
    assert any("500 more values" in (row["captureText"] or "") for row in rows)


@pytest.mark.requirement("SPK-14")
@every("key", ["Records", "records", "QueueRecords", "EventStream"])
@every("listed", ["Shards", "shards", "SubscribeToShardEvent"])
def test_records_beside_others_are_read(key: str, listed: str, tmp_path: Path) -> None:
    records = answer(b"a", b"b")["Records"]
    shard = {"ShardId": "shardId-0"}
    others: Any = [shard] if listed != "SubscribeToShardEvent" else {"Records": answer(b"c")["Records"]}
    (tmp_path / "beside.json").write_text(json.dumps({listed: others, key: records}))
    wanted = [b"a", b"b"] if listed != "SubscribeToShardEvent" else [b"a", b"b", b"c"]
    assert sorted(data(read(tmp_path / "beside.json"))) == wanted
    (tmp_path / "within.json").write_text(json.dumps({"Shards": [{**shard, key: records}]}))
    assert bad(read(tmp_path / "within.json"))  # it is not passed over


@pytest.mark.requirement("SPK-10")
def test_inputs_that_are_not_there(tmp_path: Path) -> None:
    for path, code, says in [
        (tmp_path / "missing", "no-such-path", "no such file or folder"),
        (tmp_path, "no-files", "there is no file in it"),
        ("nosuch://bucket/x", "bad-path", "download it first, or give a path in S3 (s3://BUCKET/KEY)"),
        ("https://example.com/x", "bad-path", "download it first, or give a path in S3 (s3://BUCKET/KEY)"),
    ]:
        with pytest.raises(InputError) as caught:
            plan([str(path)])
        assert caught.value.code == code
        assert str(caught.value).endswith(says)


@pytest.mark.requirement("SPK-16", "SPK-122")
def test_shards_are_found_and_it_says_where(tmp_path: Path) -> None:
    """A file that is named after another shard than its numbers gives none."""
    hinted = "49587497311274533994574834252742144236107130636007899138"  # the hint of shard 0
    ids = {number: f"shardId-{number:012}" for number in (0, 5, 7)}
    of_path = answer(b"a", b"own", b"hinted", shard=None)
    of_path["Records"][1]["ShardId"] = ids[7]
    of_path["Records"][2]["SequenceNumber"] = hinted
    plain = answer(b"b", b"c", shard=None)
    plain["Records"][0]["SequenceNumber"] = hinted
    files = {f"{ids[5]}.jsonl": [of_path], f"{ids[0]}.json": [of_path], "plain": [plain, answer(b"d")]}
    rows, found = {}, list[Finding]()
    for name, values in files.items():
        (tmp_path / name).write_text("\n".join(map(json.dumps, values)))
        pieces = (batch for piece in plan([str(tmp_path / name)]) for batch in read_piece(piece))
        batches = check(pieces, kpl.ShardMap([kpl.Shard(ids[0], kpl.ALL_HASH_KEYS)]), found.extend)
        each = [row for batch in batches for row in batch.to_pylist()]
        rows[name] = {row["data"]: (row["shardId"], row["shardIdFrom"]) for row in each}
    own = {b"own": (ids[7], "given")}
    assert list(rows.values()) == [
        {b"a": (ids[5], "path"), **own, b"hinted": (None, "contradictory")},
        {b"a": (ids[0], "path"), **own, b"hinted": (ids[0], "path")},
        {b"b": (ids[0], "sequence-number"), b"c": (ids[0], "map"), b"d": (ids[0], "given")},
    ]
    assert [(one.kind, one.file) for one in found] == [("shard-of-file", str(tmp_path / f"{ids[5]}.jsonl"))]
    assert ids[0] in str(found[0].detail)


def test_small_files_share_tasks_and_large_ones_come_first() -> None:
    pieces = [FileRange(f"f{i}", 0, 10, 10) for i in range(1000)] + [FileRange("big", 0, 95, 95)]
    tasks = pack(pieces, task_bytes=100, task_files=7)
    assert tasks[0] == [FileRange("big", 0, 95, 95)]
    assert {len(task) for task in tasks[1:-1]} == {7}
    assert sorted(p.path for task in tasks for p in task) == sorted(p.path for p in pieces)


def change(frame: bytes, how: str, at: int) -> bytes:
    """A frame that is damaged at a byte."""
    at %= len(frame)
    behind = {"flip": bytes([frame[at] ^ 1]) + frame[at + 1 :], "cut": b"", "drop": frame[at + 1 :]}
    behind |= {"insert": b"x" + frame[at:], "twice": frame[at:] + frame[at:], "magic": MAGIC + frame[at:]}
    return frame[:at] + behind[how]


DAMAGE = st.tuples(
    st.sampled_from(["flip", "cut", "drop", "insert", "twice", "magic"]),
    st.integers(0, 9) | st.integers(0, 1 << 20),
)
SMALL = [kpl.encode([kpl.UserRecord(f"k{n}", b"%d" % n) for n in range(count)]) for count in (1, 2, 9)]
SMALL.append(kpl.encode([kpl.UserRecord("k", frame) for frame in SMALL]))
LINE = b"\n" + json.dumps(answer(b"of a line")).encode() + b"\n"
#: A lone user record is on the stream as it is: JSON, or compressed.
PLAIN = [b'{"id": 7}', zlib.compress(b"x")]
FRAME_PARTS = st.tuples(st.sampled_from(SMALL), st.none() | DAMAGE)
JSON_PARTS = st.tuples(st.sampled_from([LINE, *PLAIN]), st.none())


@pytest.mark.requirement("CAP-14", "CAP-11", "SPK-10")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(300))
@given(
    st.lists(FRAME_PARTS | JSON_PARTS, min_size=1, max_size=12),
    st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"]),
    st.sampled_from([300, PIECE_BYTES]),
    st.sampled_from([0, frames._BUDGET]),
    st.booleans(),
)
@example([(SMALL[0], ("cut", 6)), (SMALL[1], None)], b"", PIECE_BYTES, frames._BUDGET, False)
def test_each_sound_frame_and_line_among_broken_ones_is_read_and_each_byte_named(
    tmp_path: Path,
    parts: list[tuple[bytes, Any]],
    between: bytes,
    piece_bytes: int,
    budget: int,
    packed: bool,
) -> None:
    """Whatever stands first. With too many broken frames (``budget``) what is not searched is named."""
    content, sound = b"", []
    is_searched = True  # a broken frame ends at the next sound one
    for part, damage in parts:
        given_part = part if damage is None else change(part, *damage)
        is_searched = damage is None and (is_searched or part in SMALL)
        if part == LINE and is_searched:
            sound.append((len(content) + 1, b"of a line"))
        elif part in SMALL and damage is None:
            sound.append((len(content), part))
        content += given_part + between
    (tmp_path / "any").write_bytes(gzip.compress(content) if packed else content)
    with mock.patch.object(frames, "_BUDGET", budget), mock.patch.object(frames, "_BUDGET_OF_A_BYTE", 0):
        rows = sorted(read(tmp_path / "any", piece_bytes=piece_bytes), key=lambda row: int(row["position"]))
    found = {(row["position"], row["data"]) for row in rows}
    assert budget == 0 or {*sound} <= found
    at = 0
    for row in rows:
        if row["captureError"] == "user-data":
            return  # of several values the first has a row
        # Nothing comes twice. (Between values of JSON there may be commas and ends of lists.)
        assert row["position"] >= at
        assert not content[at : row["position"]].strip(BETWEEN_VALUES)
        at = row["position"] + size_of(row, content)
    assert not content[at:].strip(BETWEEN_VALUES)


BETWEEN_VALUES = b" \t\r\n,\x1e[]"


def size_of(row: dict[str, Any], content: bytes) -> int:
    """The bytes that a row is about."""
    if row["captureError"] == "empty":
        return 0
    told = re.search(r"([0-9,]+) bytes?( passed over|[,:])", row["captureText"] or "")
    if told is not None:
        return int(told[1].replace(",", ""))
    if row["data"] is not None and row["data"] != b"of a line":
        return len(row["data"])
    return int(json.JSONDecoder().raw_decode(content[row["position"] :].decode("latin-1"))[1])


@pytest.mark.requirement("CAP-14", "SPK-12")
def test_a_file_of_frames_that_breaks_off_says_where(tmp_path: Path) -> None:
    whole = [kpl.encode([kpl.UserRecord("k", random.Random(n).randbytes(5000))]) for n in range(40)]
    (tmp_path / "frames").write_bytes(gzip.compress(b"".join(whole))[:-60_000])
    *rows, last = read(tmp_path / "frames")
    assert 10 < len(rows) < 40
    assert [row["data"] for row in rows] == whole[: len(rows)]
    assert (last["captureError"], last["position"]) == ("file", sum(map(len, whole[: len(rows)])))


@pytest.mark.requirement("CAP-14", "FRM-3")
def test_a_record_that_goes_on_behind_a_sound_frame_is_told_as_such() -> None:
    outer = kpl.encode([kpl.UserRecord("k", frame) for frame in FRAMES])
    for behind in (b"\n", FRAMES[0], b"\r\n" + FRAMES[2]):
        with pytest.raises(kpl.ChecksumMismatch, match=f"first {len(outer)} bytes are a sound") as raised:
            kpl.decode(outer + behind)
        assert raised.value.sound == len(outer)
    with pytest.raises(kpl.ChecksumMismatch) as raised:
        kpl.decode(outer[:-1] + b"x")
    assert raised.value.sound is None


ARRIVAL = "approximateArrivalTimestamp"


#: Text whose second cell is no UTF-8: Parquet does not check that.
NOT_UTF_8 = pa.StringArray.from_buffers(
    3, pa.array([0, 1, 2, 3], pa.int32()).buffers()[1], pa.py_buffer(b"1\xff3")
)
WHOLE = (pa.int32(), pa.int64())
TEXTS = ("streamName", "shardId", "sequenceNumber", "partitionKey", "explicitHashKey")


@pytest.mark.requirement("CAP-1", "CAP-13")
@every(
    ("column", "values", "held"),
    [
        (ARRIVAL, pa.array([1767323045, 1767323045_000, None]), "all"),
        (ARRIVAL, pa.array([1767323045_000_000, 1767323045_000_000_000, None]), "all"),
        (ARRIVAL, pa.array([1767323045.5, 1767323045500.0, None]), "all"),
        (ARRIVAL, pa.array(["2026-01-02T03:04:05Z", "junk", None]), "all"),
        (ARRIVAL, pa.array([1767323045_000, -(10**13), None], pa.timestamp("s")), "all"),
        (ARRIVAL, pa.array([1767323045_123_456_789] * 3, pa.timestamp("ns")), "all"),
        ("subSequenceNumber", pa.array([0, 2**63, 5], pa.uint64()), "without the second"),
        ("subSequenceNumber", pa.array(["0", "x", "5"]), "without the second"),
        ("subSequenceNumber", pa.array([0.0, 1.5, float("nan")]), "without the second"),
        ("subSequenceNumber", pa.array([0.0, 1.0, None]), "all"),
        # None, as the connectors of awslabs and Flink write it.
        *(("subSequenceNumber", pa.array([-1, -2, 5], kind), "without the second") for kind in WHOLE),
        ("subSequenceNumber", pa.array(["-1", "-2", "5"]), "without the second"),
        ("subSequenceNumber", pa.array([-1.0, -2.0, 5.0]), "without the second"),
        ("partitionKey", pa.array([b"k", b"\xff", b"k"]), "without the second"),
        ("partitionKey", pa.array([b"k", b"l", None]), "all"),
        ("sequenceNumber", pa.array([1, 2, 3]), "all"),
        ("sequenceNumber", pa.array([1e55, 2.0, 3.0]), "none"),
        *((name, NOT_UTF_8, "without the second") for name in TEXTS),
        *((name, NOT_UTF_8.dictionary_encode(), "without the second") for name in TEXTS),
        (ARRIVAL, pa.array([2**31 - 1, 0, -(2**31)], pa.int32()).view(pa.date32()), "all"),
        (ARRIVAL, pa.array([2**62, 0, 1], pa.int64()).view(pa.time64("us")), "all"),
        (ARRIVAL, pa.array([2**62, 0, 1], pa.int64()).view(pa.duration("s")), "all"),
        (ARRIVAL, NOT_UTF_8, "all"),
        ("subSequenceNumber", pa.array([2**31 - 1, 0, None], pa.int32()).view(pa.date32()), "only the last"),
        ("subSequenceNumber", NOT_UTF_8, "without the second"),
    ],
)  # fmt: skip
def test_a_column_of_another_type_costs_the_rows_it_cannot_tell(
    column: str, values: pa.Array, held: str, tmp_path: Path
) -> None:
    columns = {"sequenceNumber": ["1", "2", "3"], "data": [b"a", b"b", b"c"], column: values}
    pq.write_table(pa.table(columns), tmp_path / "of.parquet")
    rows = read(tmp_path / "of.parquet")
    wanted = {
        "all": [b"a", b"b", b"c"], "without the second": [b"a", b"c"], "only the last": [b"c"], "none": [],
    }[held]  # fmt: skip
    assert [row["data"] for row in rows if row["data"] is not None] == wanted
    told = [row["position"] for row in rows if row["captureError"] is not None]
    if held != "all":
        assert told == [row for row in range(3) if b"abc"[row : row + 1] not in wanted]
    for row in rows:
        number = row["subSequenceNumber"]  # -1 is none, and not 0
        assert number is None or (number >= 0 and (row["position"] or float(values[0].as_py()) >= 0))
        when = row["approximateArrivalTimestamp"]
        assert when is None or when.year == 2026 or row["position"] in told
