"""``kpl-codec inspect``: every way in, and the defect marked."""

from __future__ import annotations

import base64
import hashlib
import io
import json

import pytest

import kpl_codec as kpl
from kpl_codec.cli.main import main

from ..spec.vectors import wild

TWO = bytes.fromhex("f3899ac20a01610a01621a0508001a01781a0508011a0179b0031909ae75891ca94acec2ecce3125")


def frame(message: bytes) -> bytes:
    return b"\xf3\x89\x9a\xc2" + message + hashlib.md5(message).digest()


def run(capsys, *argv, code=0):
    assert main(["inspect", *map(str, argv)]) == code
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def test_every_way_in_gives_the_same_picture(capsys, tmp_path, monkeypatch):
    raw, b64, hexa = tmp_path / "raw", tmp_path / "b64", tmp_path / "hex"
    raw.write_bytes(TWO)
    b64.write_bytes(base64.encodebytes(TWO))
    hexa.write_text(TWO.hex() + "\n")
    expected = run(capsys, raw)
    assert "2 user records, canonical" in expected
    for way in (b64, hexa, TWO.hex(), base64.b64encode(TWO).decode()):
        assert run(capsys, way) == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TWO)))
    assert run(capsys, "-") == expected


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n"])
def test_line_ends_behind_a_record_are_no_part_of_it_as_for_cat(capsys, tmp_path, end):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(TWO + end)
    assert main(["cat", str(one)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert run(capsys, one) == run(capsys, TWO.hex())
    two.write_bytes(TWO + end + TWO)
    assert main(["inspect", str(two)]) == 2
    assert "several aggregated records" in capsys.readouterr().err


@pytest.mark.parametrize("data", [b"abcd", b"a\xff", b"", b"q80" * 9])
def test_what_only_looks_like_base64_or_hex_is_taken_as_it_is(capsys, tmp_path, data):
    path = tmp_path / "record"
    path.write_bytes(data)
    assert run(capsys, path).startswith(f"{len(data)} bytes: plain")


def test_base64_that_is_cut_is_refused(capsys, tmp_path):
    path = tmp_path / "record"
    path.write_bytes(base64.b64encode(TWO)[:-1])
    assert main(["inspect", str(path)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "base64 text: decode it first" in said
    assert "(kpl_codec.explain takes it as one record's data)" in said
    assert kpl.explain(path.read_bytes()).kind == "plain"


def test_the_defect_is_marked_where_it_is(capsys):
    broken = frame(bytes.fromhex("0a0161" + "1a0508071a0178"))  # index 7 into a table of one
    out = run(capsys, broken.hex(), code=1)
    lines = out.splitlines()
    (mark,) = [i for i, line in enumerate(lines) if "▲" in line]
    assert lines[mark - 1].split()[:3] == ["7", "7", "records[0]"]
    assert "partition_key_index  7" in out
    assert "MSG-7" in lines[mark] + lines[mark + 1]
    assert "the KCL: delivers 0 of 1 user record" in out
    facts = json.loads(run(capsys, broken.hex(), "--json", code=1))
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


def test_a_record_is_taken_out_of_a_capture(capsys, tmp_path, monkeypatch):
    path = tmp_path / "get-records.json"
    path.write_text(captured(("7", TWO)))
    expected = run(capsys, TWO.hex())
    assert run(capsys, path) == expected
    path.write_text(captured(("7", b"plain"), ("9", TWO)))
    assert run(capsys, path, "--sequence-number", "9") == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert run(capsys, "-", "--sequence-number", "9") == expected


def test_the_magic_of_a_record_that_is_too_short_to_be_a_frame_is_named(capsys):
    assert main(["inspect", "84mawgxx"]) == 0
    assert "an aggregated record's first four bytes, but has only 6" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "argv", "told"),
    [
        (captured(("7", TWO), ("9", TWO)), [], "several captured records"),
        (captured(("7", TWO)), ["--sequence-number", "8"], "without such a record"),
        (captured(), [], "without such a record"),
        ('{"Records": [{"Data": "!"}]}', [], "Records[0].Data is not base64"),
    ],
)
def test_a_capture_is_never_a_plain_record(text, argv, told, capsys, tmp_path):
    path = tmp_path / "capture.json"
    path.write_text(text)
    assert main(["inspect", str(path), *argv]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("wrap", [lambda b: b, base64.b64encode, lambda b: b'"' + b + b'"'])
def test_a_frame_turned_into_text_is_said_to_be_one(wrap, capsys, tmp_path):
    path = tmp_path / "get-records.json"
    path.write_text(captured(("7", wrap(base64.b64encode(TWO)))))
    out = run(capsys, path, code=1)
    assert "encoded frame" in out
    assert "plain record  an aggregated record as base64" in out


def test_colours_only_where_they_are_welcome(capsys, monkeypatch):
    assert "\x1b[" not in run(capsys, TWO.hex())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[31" in run(capsys, (TWO[:-1] + b"\0").hex(), code=1)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run(capsys, TWO.hex())


def test_the_likely_writer_is_named(capsys, tmp_path):
    (output,) = wild()["zio"][0].outputs
    data = tmp_path / "frame"
    data.write_bytes(output.data)
    assert "certain: zio-kinesis (an unused explicit hash key" in run(capsys, data)
    assert json.loads(run(capsys, data, "--json"))["writer"].startswith("certain: zio-kinesis (")
    assert json.loads(run(capsys, TWO.hex(), "--json"))["writer"] == "unknown"


@pytest.mark.parametrize(("outer_key", "said"), [("a", "likely: the KPL or kpl_codec ("), ("b", "unknown\n")])
def test_a_captured_record_s_outer_key_tells_its_writer(capsys, tmp_path, outer_key, said):
    two = kpl.encode([kpl.UserRecord("c", b"x"), kpl.UserRecord("d", b"y")])
    record = {"SequenceNumber": "7", "PartitionKey": outer_key, "Data": base64.b64encode(two).decode()}
    (tmp_path / "answer.json").write_text(json.dumps({"Records": [record]}))
    assert f"its writer: {said}" in run(capsys, tmp_path / "answer.json")
