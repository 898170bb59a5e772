"""The archive of vectors: whole, the same every time, right about the KCL by the executable specification."""

from __future__ import annotations

import hashlib
import json
from itertools import groupby
from pathlib import Path

import pytest

from kpl_codec.cli.main import main
from kpl_codec.conformance import export
from kpl_codec.conformance.program import answer_of, question_lines
from spec.reference.kcl import deliver

from ..spec.vectors import VECTORS, load


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("archive")
    assert main(["conformance", "--export", str(directory)]) == 0
    return directory


DECODING = {vector["id"]: vector for vector in load() if vector["kind"] == "decode"}


def test_every_file_is_there_with_its_digest(archive: Path) -> None:
    manifest = json.loads((archive / "manifest.json").read_text())
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in archive.iterdir()
        if path.name != "manifest.json"
    }
    assert manifest == {"version": export.version(), "sha256": digests}
    assert digests.keys() - {path.name for path in VECTORS.iterdir()} == {"decode.txt", "kcl.json"}
    for path in VECTORS.iterdir():
        assert (archive / path.name).read_bytes() == path.read_bytes()
    assert export.archive() == {path.name: path.read_bytes() for path in archive.iterdir()}


def test_what_the_kcl_delivers_is_what_the_executable_specification_says(archive: Path) -> None:
    told = json.loads((archive / "kcl.json").read_text())["vectors"]
    assert [vector["id"] for vector in told] == list(DECODING)
    for vector in told:
        data = bytes.fromhex(DECODING[vector["id"]]["input"]["data"])
        if vector.get("raw"):
            assert deliver(data).raw
            continue
        rows = [
            (row["partition_key"], bytes.fromhex(row["data"]), row.get("explicit_hash_key"))
            for row in vector["user_records"]
        ]
        assert len(vector["ranges"]) >= 5
        for part in vector["ranges"]:
            right = deliver(data, int(part["starting_hash_key"]), int(part["ending_hash_key"]))
            assert right.user_records == rows[: part["delivered"]]
            assert (right.dropped, right.reason) == (part["dropped"], part.get("reason"))


def test_the_lines_say_what_the_json_says(archive: Path) -> None:
    lines = (archive / "decode.txt").read_text().splitlines()
    blocks = [list(group) for end, group in groupby(lines, lambda line: line == "end") if not end]
    assert len(blocks) == len(DECODING)
    for (head, question, *answer), vector in zip(blocks, DECODING.values(), strict=True):
        assert head == f"vector {vector['id']} {vector['result']}"
        assert f"{question}\n" == question_lines({"op": "decode", "data": vector["input"]["data"]})
        told = answer_of(answer, "decode")
        if "error" in vector:
            assert told["error"] == vector["error"]["code"]
        elif vector.get("plain"):
            assert told["plain"]
        else:
            untagged = [
                {name: value for name, value in record.items() if name != "tags"}
                for record in vector["user_records"]
            ]
            assert told["user_records"] == untagged
