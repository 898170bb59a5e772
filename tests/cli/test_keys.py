"""``kpl-codec keys``: the article's numbers from the command line; the hottest keys, exactly counted."""

from __future__ import annotations

import io
import json

from kpl_codec.cli.main import main
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
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
