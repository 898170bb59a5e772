"""Foreign text never reaches a terminal as it is: commands times texts that rewrite a terminal."""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from kpl_codec import UserRecord, encode
from kpl_codec.cli.main import main
from kpl_codec.testing.local_kinesis import LocalKinesis

from .test_every_command import JSON, TEXTS, write_inputs

#: Escape sequences (also as C1), a bell, a return, other ends of lines, a text that runs backwards, and a
#: bare delete.
HOSTILE = "a\x1b[2J\x1b]0;t\x07\x9b31m\r\x85\u2028\u2029\u202ex\u2066\x7f"
_UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
#: HOSTILE stands for the text. These have it as an argument; `JSON` and `TEXTS` have it in what they read.
COMMANDS = [
    "HOSTILE",
    "--HOSTILE",
    "cat HOSTILE",
    "cat HOSTILE.json",
    "conformance --kind decode --failures -- PYTHON program.py",
    "conformance --kind decode --failures --json -- PYTHON program.py",
    "conformance -- PYTHON refuses.py",
    "conformance -- HOSTILE",
    "conformance --publish HOSTILE",
    "explain HOSTILE",
    "findings HOSTILE",
    "inspect HOSTILE",
    "keys hash HOSTILE",
    "keys hash HOSTILE --json",
    "repair HOSTILE",
    "shards list --shards HOSTILE",
    "shards predict --shards shards.json HOSTILE",
    "validate HOSTILE.json --shards shards.json --output other --quiet --json",
    "validate HOSTILE --shards shards.json --output third",
]
#: These read a stream with such keys, and name no other.
STREAM_COMMANDS = [
    "cat",
    "cat --follow --since 1h --limit 4",
    "inspect --shard-id shardId-000000000000 --sequence-number NUMBER",
    "watch --once",
    "watch --all --since 1h --once",
    "watch --all --since 1h --once --json --names",
]
_PROGRAM = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    answer = {{"name": {0!r}, "version": {0!r}, "protocol": 1, "ops": ["decode"]}}
    if asked["op"] != "hello":
        answer = {{"id": asked["id"], "error": {0!r}}} if len(asked["id"]) % 2 else {{"user_records": {0!r}}}
    print(json.dumps({1}), flush=True)
"""


@pytest.mark.slow
def test_no_command_writes_foreign_text_raw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_inputs(tmp_path, HOSTILE)
    (tmp_path / f"{HOSTILE}.json").write_text((tmp_path / "capture.json").read_text() + "{")
    (tmp_path / "program.py").write_text(_PROGRAM.format(HOSTILE, "answer"))
    (tmp_path / "refuses.py").write_text(_PROGRAM.format(HOSTILE, f"{{'no': {HOSTILE!r}}}"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    main(["validate", "capture.json", "--shards", "shards.json", "--output", "results", "--quiet"])
    capsys.readouterr()
    raw, shown = [], 0
    for command in [*COMMANDS, *JSON, *TEXTS]:
        words = command.replace("PYTHON", sys.executable).split()
        words = [word.replace("HOSTILE", HOSTILE) for word in words]
        with suppress(SystemExit):
            main(words)
        out, err = capsys.readouterr()
        assert out + err, command
        shown += "31m" in out  # a part of the text that does no harm
        raw += [(command, found[0]) for found in (_UNSAFE.search(out), _UNSAFE.search(err)) if found]
        if "--json" in words and out:
            json.loads(out)
    assert not raw
    assert shown > 15


@pytest.mark.slow
@pytest.mark.server
def test_no_command_writes_the_keys_of_a_stream_raw(
    kinesis_local: LocalKinesis, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, client, url = "hostile", kinesis_local.client(), kinesis_local.endpoint_url
    kinesis_local.create_stream(name, shards=1)
    frame = encode([UserRecord(HOSTILE, b"1"), UserRecord("b", HOSTILE.encode(), "7")])
    stored = [
        client.put_record(StreamName=name, Data=data, PartitionKey=HOSTILE)["SequenceNumber"]
        for data in (frame, frame[:-1] + bytes([frame[-1] ^ 1]), HOSTILE.encode())
    ]
    monkeypatch.setenv("COLUMNS", "120")
    raw, shown = [], 0
    for command in STREAM_COMMANDS:
        words = command.replace("NUMBER", stored[0]).split()
        with suppress(SystemExit):
            main([*words, "--stream", name, "--region", "us-east-1", "--endpoint-url", url])
        out, err = capsys.readouterr()
        shown += "31m" in out  # a part of the key that does no harm
        raw += [(command, found[0]) for found in (_UNSAFE.search(out), _UNSAFE.search(err)) if found]
    kinesis_local.delete_stream(name)
    assert not raw
    assert shown >= 3
