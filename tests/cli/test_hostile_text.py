"""Foreign text never reaches a terminal as it is: commands times texts that rewrite a terminal."""

from __future__ import annotations

import base64
import json
import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from kpl_codec import ShardMap, UserRecord, encode
from kpl_codec.cli.main import main
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.shard import Shard
from kpl_codec.testing.local_kinesis import LocalKinesis

#: Escape sequences (also as C1), a bell, a return, other ends of lines, a text that runs backwards, and a
#: bare delete.
HOSTILE = "a\x1b[2J\x1b]0;t\x07\x9b31m\r\x85\u2028\u2029\u202ex\u2066\x7f"
_UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
#: HOSTILE stands for the text; the files have it in keys, names, sequence numbers and shard ids.
COMMANDS = [
    "HOSTILE",
    "--HOSTILE",
    "cat capture.json",
    "cat HOSTILE",
    "cat HOSTILE.json",
    "conformance --kind decode --failures -- PYTHON program.py",
    "conformance --kind decode --failures --json -- PYTHON program.py",
    "conformance -- PYTHON refuses.py",
    "conformance -- HOSTILE",
    "conformance --publish HOSTILE",
    "explain HOSTILE",
    "findings results",
    "findings results --json",
    "findings HOSTILE",
    "inspect HOSTILE",
    "inspect frame.bin",
    "inspect frame.bin --json",
    "inspect broken.bin",
    "keys hash HOSTILE",
    "keys hash HOSTILE --json",
    "keys hot results",
    "keys hot results --json",
    "repair HOSTILE",
    "shards history --shards shards.json",
    "shards list --shards shards.json",
    "shards list --shards shards.json --json",
    "shards list --shards HOSTILE",
    "shards predict --shards shards.json HOSTILE",
    "validate capture.json --shards shards.json --output new",
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


def _folder(folder: Path, text: str) -> None:
    shard_id = f"shardId-{text}"
    shards = ShardMap([Shard(shard_id, ALL_HASH_KEYS, starting_sequence_number="1")])
    (folder / "shards.json").write_text(shards.to_json())
    frame = encode([UserRecord(text, b"1"), UserRecord("b", text.encode(), "7")])
    (folder / "frame.bin").write_bytes(frame)
    broken = frame[:-1] + bytes([frame[-1] ^ 1])
    (folder / "broken.bin").write_bytes(broken)
    records = [
        {"SequenceNumber": f"{number}{text}", "PartitionKey": text, "Data": base64.b64encode(data).decode()}
        for number, data in ((7, frame), (8, broken), (9, text.encode()))
    ]
    capture = json.dumps({"StreamName": text, "ShardId": shard_id, "Records": records})
    (folder / "capture.json").write_text(capture)
    (folder / f"{text}.json").write_text(capture + "{")
    (folder / "program.py").write_text(_PROGRAM.format(text, "answer"))
    (folder / "refuses.py").write_text(_PROGRAM.format(text, f"{{'no': {text!r}}}"))


@pytest.mark.slow
def test_no_command_writes_foreign_text_raw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _folder(tmp_path, HOSTILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    main(["validate", "capture.json", "--shards", "shards.json", "--output", "results", "--quiet"])
    capsys.readouterr()
    raw = []
    for command in COMMANDS:
        words = command.replace("PYTHON", sys.executable).split()
        words = [word.replace("HOSTILE", HOSTILE) for word in words]
        with suppress(SystemExit):
            main(words)
        out, err = capsys.readouterr()
        assert out + err, command
        raw += [(command, found[0]) for found in (_UNSAFE.search(out), _UNSAFE.search(err)) if found]
        if words[-1] == "--json" and out:
            json.loads(out)
    assert not raw


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
