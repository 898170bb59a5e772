"""``kpl-codec keys``: the article's numbers from the command line; the hottest keys, exactly counted."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpl_codec.cli.main import main
from kpl_codec.format.hash_keys import ALL_HASH_KEYS, hash_key_to_bytes, partition_key_hash
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap


def run(capsys, *argv, code=0):
    assert main(["keys", *map(str, argv)]) == code
    return capsys.readouterr().out


def stdin(monkeypatch, text):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_hash(capsys):
    out = run(capsys, "hash", "partition-key-0001")
    assert "243789333289005976465737331408549979447" in out
    (found,) = json.loads(run(capsys, "hash", "1", "--json"))
    assert found == {
        "key": "1",
        "hashKey": "261578874264819908609102035485573088411",
        "hex": "c4ca4238a0b923820dcc509a6f75849b",
    }


def test_allocate_over_shards_thinnest_first(capsys, tmp_path):
    ranges = ALL_HASH_KEYS.split(4)
    listing, existing = tmp_path / "shards.json", tmp_path / "existing"
    listing.write_text(
        ShardMap([Shard(f"shardId-{i:012d}", keys) for i, keys in enumerate(ranges)]).to_json()
    )
    existing.write_text("5\n")
    lines = run(capsys, "allocate", 3, "--shards", listing, "--existing", existing).split()
    assert [next(i for i, keys in enumerate(ranges) if int(key) in keys) for key in lines] == [1, 2, 3]
    assert int(run(capsys, "allocate")) == 2**127


def write(folder: Path, keys: list[str | None]) -> None:
    hashes = [hash_key_to_bytes(partition_key_hash(key)) if key is not None else None for key in keys]
    table = pa.table(
        {"partitionKey": pa.array(keys, pa.string()), "hashKey": pa.array(hashes, pa.binary(16))}
    )
    for number, part in enumerate((table[:1000], table[1000:])):
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(part, folder / f"part-{number}.parquet")


def test_the_fullest_keys_are_named_with_exact_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rnd = random.Random(1)
    keys = [f"key-{int(rnd.paretovariate(0.6))}" for _ in range(20_000)]
    write(tmp_path / "user-records" / "batch=0", [*keys, None, None])
    summary = {"kinds": [], "totals": {"userRecords": 20_002}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    expected = sorted(Counter(keys).items(), key=lambda item: (-item[1], item[0]))[:5]
    monkeypatch.setattr("kpl_codec.captures.keys_command._COUNTED_PARTS", 64)  # far fewer than there are keys
    assert main(["keys", "hot", str(tmp_path), "--limit", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["userRecords"] == 20_000
    assert [(row["key"], row["userRecords"]) for row in found["keys"]] == expected
    assert all(int(row["hashKey"]) == partition_key_hash(row["key"]) for row in found["keys"])
    assert main(["keys", "hot", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert expected[0][0] in out
    assert "not counted: 2 user records whose partition key is not known" in err
    summary["totals"] |= {"brokenFrames": 3}  # type: ignore[operator]
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert main(["keys", "hot", str(tmp_path)]) == 0
    assert "3 Kinesis records cannot be opened" in capsys.readouterr().err
