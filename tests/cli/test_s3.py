"""Every path argument of every command, in S3 and on this machine, with and without a slash at the end: the
same answers, the same files. The S3 is moto's, over HTTP."""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet as pq
import pytest

from kpl_codec import UserRecord, encode
from kpl_codec.captures import Location, plan, read_piece
from kpl_codec.captures.account import Account
from kpl_codec.captures.files import PIECE_BYTES
from kpl_codec.cli.main import COMMANDS as NAMES
from kpl_codec.cli.main import _parser, main
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap

from ..moto_server import moto_server
from .test_every_command import ledger_of

LEDGER = ledger_of({"9": b"plain"}).encode()

pytestmark = [pytest.mark.timeout(120), pytest.mark.requirement("SPK-47")]
BUCKET = "captures"
MAP = ShardMap(
    Shard(f"shardId-{n:012d}", held, starting_sequence_number="1")
    for n, held in enumerate(ALL_HASH_KEYS.split(2))
)


#: Command, the path it is given (AT is a folder of this machine or of S3), and its exit status.
#: The others are slow.
QUICK = {"cat AT/in/", "findings AT/out/", "repair AT/out/"}
COMMANDS = [
    ("audit --produced AT/put.jsonl --handled AT/handled.csv", 0),
    ("audit --produced AT/put.jsonl --handled AT/handled.csv --repaired AT/out/ --output AT/audited/", 0),
    ("cat AT/in/", 1),
    ("cat AT/in/shardId-000000000000.json", 0),
    ("cat --stream orders --only AT/shards.json", 2),
    ("conformance --export AT/vectors/", 0),
    ("conformance --kind hash-key --publish AT/published/", 0),
    ("findings AT/out/", 1),
    ("findings AT/out/ --json", 1),
    ("findings AT/out/ --json --limit 1", 1),
    ("generate --output AT/generated/ --user-records 100", 0),
    ("inspect AT/frame.bin", 0),
    ("inspect AT/in/shardId-000000000001.json --sequence-number 9", 1),
    ("keys allocate 2 --existing AT/keys.txt", 0),
    ("keys allocate 2 --shards AT/shards.json", 0),
    ("keys hash --keys-from AT/keys.txt", 0),
    ("keys hot AT/out/", 0),
    ("repair AT/out/", 0),
    ("shards history --shards AT/shards.json", 0),
    ("shards list --shards AT/shards.json", 0),
    ("shards predict --shards AT/shards.json --keys-from AT/keys.txt", 0),
    ("validate --stream orders --only AT/shards.json --output AT/new/", 2),
    ("validate --quiet AT/in/ --shards AT/shards.json --output AT/new/", 1),
]


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """A client of a moto server; nothing else of AWS is in the environment."""
    with moto_server() as url, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ENDPOINT_URL_S3", url)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "mine")
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        yield client


def write_capture(folder: Location) -> None:
    """Of two shards, with an aggregate that the KCL drops and a broken one."""
    users = [UserRecord(f"customer-{n}", b"%d" % n) for n in range(20)]
    frame = encode(users)
    for shard, frames in zip(MAP.values(), ([frame, b"plain"], [frame[:-1] + b"\0"]), strict=True):
        records = [
            {"SequenceNumber": str(9 + n), "PartitionKey": "a", "Data": base64.b64encode(data).decode()}
            for n, data in enumerate(frames)
        ]
        answer = json.dumps({"StreamName": "orders", "Records": records})
        (folder / f"in/{shard.shard_id}.json").write(answer.encode())
    (folder / "shards.json").write(MAP.to_json().encode())
    (folder / "frame.bin").write(encode(users[:2]))
    (folder / "keys.txt").write(b"17\n4\n")
    (folder / "put.jsonl").write(LEDGER)
    (folder / "handled.csv").write(b"shard,sequence_number,sub_sequence_number\nshardId-000000000000,9,0\n")


def write_results(place: str) -> None:
    given = [f"{place}/in", "--shards", f"{place}/shards.json", "--output", f"{place}/out"]
    assert main(["validate", "--quiet", *given]) == 1


@pytest.fixture
def places(s3: Any, tmp_path: Path) -> list[str]:
    """The same capture on this machine and in S3."""
    (tmp_path / "in").mkdir()
    at = [str(tmp_path), f"s3://{BUCKET}/{tmp_path.name}"]
    for place in at:
        write_capture(Location(place))
    return at


def held(folder: Location) -> dict[str, Any]:
    """Every file under ``folder``, by name; of Parquet its rows, of pages and pictures only that it is
    there."""
    found: dict[str, Any] = {}
    for item in folder.files():
        if item.kind() == "folder":
            found |= {f"{item.name}/{name}": content for name, content in held(item).items()}
        elif item.name.endswith(".parquet"):
            system, inner = item.filesystem()
            found[item.name] = pq.read_table(inner, filesystem=system).to_pylist()
        elif not item.name.endswith(".html"):
            found[item.name] = item.read()
        else:
            found[item.name] = len(item.read()) > 100
    return found


def without_place(value: Any, place: str) -> Any:
    """``value`` with AT for the place, and without times."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+", "TIME", repr(value))
    # A line is folded where its words end, which depends on how long the place is.
    return "".join(text.replace(place, "AT").replace("\\n", "").split())


@pytest.mark.parametrize("slash", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("line", "status"),
    [pytest.param(*one, marks=[pytest.mark.slow] * (one[0] not in QUICK)) for one in COMMANDS],
)
def test_a_path_in_s3_is_as_good_as_one_of_this_machine(
    line: str,
    status: int,
    slash: bool,
    places: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kpl_codec.cli.progress._SOON", 600.0)  # one of the two may wait for a busy machine
    results = []
    for place in places:
        if "AT/out" in line:
            write_results(place)
            capsys.readouterr()
        words = [word if slash else word.rstrip("/") for word in line.replace("AT", place).split()]
        assert main(words) == status, capsys.readouterr().err
        said = capsys.readouterr()
        results.append(without_place((said.out, said.err, held(Location(place))), place))
    assert results[0] == results[1]


@pytest.mark.server
@pytest.mark.slow
def test_the_demo_goes_to_s3(s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(f"demo --user-records 100 --output s3://{BUCKET}/demo/".split()) == 0
    assert f"kpl-codec validate s3://{BUCKET}/demo/capture" in capsys.readouterr().out
    names = set(held(Location(f"s3://{BUCKET}/demo")))
    assert {"shards.json", "results/report.html", "results/shards.json"} <= names


def arguments_that_are_paths(parser: argparse.ArgumentParser, command: str) -> Iterator[tuple[str, str]]:
    """Each with its command: an option, or the name of what stands alone."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from arguments_that_are_paths(inner, f"{command} {name}")
        elif action.metavar in ("PATH", "DIR", "FILE", "DATA"):
            yield command, action.option_strings[0] if action.option_strings else action.metavar


def test_every_argument_that_is_a_path_is_tried() -> None:
    """Above: an option with AT behind it, or AT with none before it."""
    tried = {("demo", "--output")}
    for line, _ in COMMANDS:
        words = line.split()
        command = " ".join(words[: 2 if words[0] in ("keys", "shards") else 1])
        for before, word in pairwise(words):
            if word.startswith("AT/"):
                tried.add((command, before if before.startswith("--") and before != "--quiet" else ""))
    wanted = {
        (command, name if name.startswith("--") else "")
        for top in NAMES
        for command, name in arguments_that_are_paths(
            _parser([top])._subparsers._group_actions[0].choices[top], top
        )  # type: ignore[union-attr, index]
    }
    assert wanted == tried


def test_a_capture_in_s3_is_named_as_it_was_given(places: list[str]) -> None:
    write_results(places[1])
    rows = held(Location(places[1]) / "out/findings")
    files = {row["file"] for part in rows.values() for row in part if row["file"]}
    assert files == {f"{places[1]}/in/shardId-{n:012d}.json" for n in (0, 1)}
    assert all(Location(file).read() for file in files)


def test_a_bucket_that_is_not_there_is_told(s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cat", "s3://no-such-bucket/in/"]) == 2
    assert "there is no bucket no-such-bucket" in capsys.readouterr().err
    assert main(["cat", f"s3://{BUCKET}/nothing/"]) == 2
    assert "no such file or folder" in capsys.readouterr().err


def test_a_profile_has_the_credentials_for_s3(
    places: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also beside other credentials in the environment; and what is started meanwhile has them, too."""
    config = tmp_path / "config"
    config.write_text("[profile theirs]\naws_access_key_id = theirs\naws_secret_access_key = x\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    keys: list[str] = []
    from kpl_codec.aws import s3 as module

    real = module._file_system
    monkeypatch.setattr(module, "_file_system", lambda *given: keys.append(given[0]) or real(*given))
    before = dict(os.environ)
    given = f"{places[1]}/in --shards {places[1]}/shards.json --output {places[1]}/theirs".split()
    assert main(["validate", "--quiet", *given, "--profile", "theirs"]) == 1
    assert set(keys) == {"theirs"}
    assert dict(os.environ) == before
    keys.clear()
    assert main(["cat", f"{places[1]}/in"]) == 1
    assert set(keys) == {"mine"}
    capsys.readouterr()
    assert main(["cat", f"{places[1]}/in", "--profile", "nobody"]) == 2
    assert "nobody" in capsys.readouterr().err


@pytest.mark.requirement("ACC-1")
@pytest.mark.parametrize("piece_bytes", [200, PIECE_BYTES], ids=["pieces", "whole"])
@pytest.mark.parametrize("end", ["", "\n"], ids=["no-line-end", "line-end"])
def test_an_object_is_accounted_for_to_its_last_byte(s3: Any, end: str, piece_bytes: int) -> None:
    """The figure is the listing's. What was cut off since then, if only its last line, is told."""
    lines = [json.dumps({"SequenceNumber": str(n), "PartitionKey": "k", "Data": "eA=="}) for n in range(9)]
    for kept in (9, 8):
        text = "\n".join(lines) + end
        s3.put_object(Bucket=BUCKET, Key="account/a.jsonl", Body=text.encode())
        account, records = Account(), 0
        pieces = plan([f"s3://{BUCKET}/account"], piece_bytes=piece_bytes)
        if kept < 9:
            cut = "\n".join(lines[:kept]) + "\n"
            s3.put_object(Bucket=BUCKET, Key="account/a.jsonl", Body=cut.encode())
        for piece in pieces:
            records += sum(batch.num_rows for batch in read_piece(piece, account=account))
        found = list(account.findings({piece.path for piece in pieces}, checked=False))
        assert records == kept
        assert [finding.kind for finding in found] == ["not-accounted"] * (kept < 9)
