"""A repair says that nothing was lost only where the results know it of everything that was read."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.cli.main import main

from .test_job import validate_files

SHARD = "shardId-000000000000"
USERS = [kpl.UserRecord("a", b"x"), kpl.UserRecord("a", b"y")]
SOUND = kpl.encode(USERS)


def page(data: bytes, **more: Any) -> str:
    record = {"SequenceNumber": str(10**55), "PartitionKey": "a", "Data": base64.b64encode(data).decode()}
    return json.dumps({"StreamName": "orders", "ShardId": SHARD, "Records": [record], **more})


#: What is captured, and whether it is known of all of it that it was not lost.
CAPTURES: dict[str, tuple[str, bool]] = {
    "sound": (page(SOUND), True),
    "of another stream": (page(SOUND, StreamName="payments"), False),
    "of a shard that is not in the map": (page(SOUND, ShardId="shardId-000000000009"), False),
    "that cannot be opened": (page(SOUND[:-1] + b"?"), False),
    "with a line that is not JSON": (page(SOUND) + "\n{broken", False),
    "with a value that is no record": (page(SOUND) + '\n{"a": 1}\n{"b": 2}', False),
}


@pytest.mark.requirement("ACC-1")
@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("lost", [False, True])
def test_nothing_was_lost_is_said_of_what_is_known(
    lost: bool, capture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, known = CAPTURES[capture]
    shards = [kpl.Shard(f"shardId-{n:012d}", held) for n, held in enumerate(kpl.ALL_HASH_KEYS.split(2))]
    shard_map = kpl.ShardMap(shards, stream="orders")
    mixed = kpl.encode([kpl.UserRecord(f"key-{number}", b"x") for number in range(20)])
    (tmp_path / "in").mkdir()
    (tmp_path / "in/one.json").write_text(text)
    if lost:
        (tmp_path / "in/two.json").write_text(page(mixed).replace(str(10**55), str(10**55 + 1)))
    validate_files(tmp_path / "in", shard_map, tmp_path / "out", "--cores", "1")
    verdict = json.loads((tmp_path / "out/summary.json").read_text())["verdict"]
    capsys.readouterr()
    assert main(["repair", "--quiet", str(tmp_path / "out")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert ("Nothing was lost at the KCL" in said) == (known and not lost)
    assert ("Nothing was known to be lost" in said) == (not known and not lost)
    assert (" ".join(verdict.split()) in said) == (not known)
