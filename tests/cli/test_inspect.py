"""``kpl-codec inspect``: every way in, and the defect marked."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

import kpl_codec as kpl
from fuzz.invariants import frame

from ..every import every
from ..spec.vectors import wild
from .commands import run

TWO = bytes.fromhex("f3899ac20a01610a01621a0508001a01781a0508011a0179b0031909ae75891ca94acec2ecce3125")


def inspected(*argv: object, code: int = 0, stdin: bytes = b"", **environment: str) -> str:
    ended = run(["inspect", *map(str, argv)], stdin=stdin, **environment)
    assert ended.status == code
    return ended.out


def refused(*argv: object) -> str:
    ended = run(["inspect", *map(str, argv)])
    assert ended.status == 2
    return ended.err


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def test_every_way_in_gives_the_same_picture(tmp_path: Path) -> None:
    raw, b64, hexa = tmp_path / "raw", tmp_path / "b64", tmp_path / "hex"
    raw.write_bytes(TWO)
    b64.write_bytes(base64.encodebytes(TWO))
    hexa.write_text(TWO.hex() + "\n")
    expected = inspected(raw)
    assert "2 user records, canonical" in expected
    for way in (b64, hexa, TWO.hex(), base64.b64encode(TWO).decode()):
        assert inspected(way) == expected
    assert inspected("-", stdin=TWO) == expected
    for end in (b"\n", b"\r\n", b"\n\n"):  # no part of a record, as for cat
        raw.write_bytes(TWO + end)
        assert inspected(raw) == expected
        assert len(run(["cat", str(raw)]).out.splitlines()) == 2
        raw.write_bytes(TWO + end + TWO)
        assert "several aggregated records" in refused(raw)


def test_what_only_looks_like_base64_or_hex_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "record"
    for data in (b"abcd", b"a\xff", b"", b"q80" * 9):
        path.write_bytes(data)
        assert inspected(path).startswith(f"{len(data)} bytes: plain")
    path.write_bytes(base64.b64encode(TWO)[:-1])
    said = refused(path)
    assert "base64 text: decode it first" in said
    assert "(kpl_codec.explain takes it as one record's data)" in said
    assert kpl.explain(path.read_bytes()).kind == "plain"


def test_the_defect_is_marked_where_it_is() -> None:
    broken = frame(bytes.fromhex("0a0161" + "1a0508071a0178"))  # index 7 into a table of one
    out = inspected(broken.hex(), code=1)
    lines = out.splitlines()
    (mark,) = [i for i, line in enumerate(lines) if "▲" in line]
    assert lines[mark - 1].split()[:3] == ["7", "7", "records[0]"]
    assert "partition_key_index  7" in out
    assert "MSG-7" in lines[mark] + lines[mark + 1]
    assert "the KCL: delivers 0 of 1 user record" in out
    facts = json.loads(inspected(broken.hex(), "--json", code=1))
    (defect,) = facts["defects"]
    assert (defect["code"], defect["requirement"], defect["recordIndex"]) == (
        "index-out-of-table",
        "MSG-7",
        0,
    )
    assert facts["tree"]["children"][0]["name"] == "magic"
    assert not facts["sound"]


def captured(*records: tuple[str, bytes]) -> str:
    parts = [
        {"SequenceNumber": number, "PartitionKey": "k", "Data": base64.b64encode(data).decode()}
        for number, data in records
    ]
    return json.dumps({"Records": parts, "MillisBehindLatest": 0})


def test_a_record_is_taken_out_of_a_capture(tmp_path: Path) -> None:
    path = tmp_path / "get-records.json"
    path.write_text(captured(("7", TWO)))
    expected = inspected(TWO.hex())
    assert inspected(path) == expected
    path.write_text(captured(("7", b"plain"), ("9", TWO)))
    assert inspected(path, "--sequence-number", "9") == expected
    assert inspected("-", "--sequence-number", "9", stdin=path.read_bytes()) == expected


def test_the_magic_of_a_record_that_is_too_short_to_be_a_frame_is_named() -> None:
    assert "an aggregated record's first four bytes, but has only 6" in inspected("84mawgxx")


@every(
    ("text", "argv", "said"),
    [
        (captured(("7", TWO), ("9", TWO)), [], "several captured records"),
        (captured(("7", TWO)), ["--sequence-number", "8"], "without such a record"),
        (captured(), [], "without such a record"),
        ('{"Records": [{"Data": "!"}]}', [], "Records[0].Data is not base64"),
    ],
)
def test_a_capture_is_never_a_plain_record(text: str, argv: list[str], said: str, tmp_path: Path) -> None:
    path = tmp_path / "capture.json"
    path.write_text(text)
    assert said in refused(path, *argv)


def test_a_frame_turned_into_text_is_said_to_be_one(tmp_path: Path) -> None:
    path, once = tmp_path / "get-records.json", base64.b64encode(TWO)
    for text in (once, base64.b64encode(once), b'"' + once + b'"'):
        path.write_text(captured(("7", text)))
        out = inspected(path, code=1)
        assert "encoded frame" in out
        assert "plain record  an aggregated record as base64" in out
    path.write_text(captured(("7", kpl.encode([kpl.UserRecord("a", once)]))))
    assert "nested-aggregate: user record 0" in inspected(path, code=1)


def test_colours_only_where_they_are_welcome() -> None:
    broken = (TWO[:-1] + b"\0").hex()
    assert "\x1b[" not in inspected(broken, code=1)
    assert "\x1b[31" in inspected(broken, code=1, FORCE_COLOR="1")
    assert "\x1b[" not in inspected(broken, code=1, FORCE_COLOR="1", NO_COLOR="1")


def test_the_likely_writer_is_named(tmp_path: Path) -> None:
    (output,) = wild()["zio"][0].outputs
    data = tmp_path / "frame"
    data.write_bytes(output.data)
    assert "certain: zio-kinesis (an unused explicit hash key" in inspected(data)
    assert json.loads(inspected(data, "--json"))["writer"].startswith("certain: zio-kinesis (")
    assert json.loads(inspected(TWO.hex(), "--json"))["writer"] == "unknown"
    # The partition key of a captured record tells, too.
    two = kpl.encode([kpl.UserRecord("c", b"x"), kpl.UserRecord("d", b"y")])
    for outer_key, said in (("a", "likely: the KPL or kpl_codec ("), ("b", "unknown\n")):
        record = {"SequenceNumber": "7", "PartitionKey": outer_key, "Data": base64.b64encode(two).decode()}
        (tmp_path / "answer.json").write_text(json.dumps({"Records": [record]}))
        assert f"its writer: {said}" in inspected(tmp_path / "answer.json")
