"""``kpl-codec keys hot``: the fullest keys, exactly."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpl_codec.cli.main import main
from kpl_codec.format.hash_keys import hash_key_to_bytes, partition_key_hash


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
    expected = sorted(Counter(keys).items(), key=lambda item: (-item[1], item[0]))[:5]
    monkeypatch.setattr("kpl_codec.cli.keys_command._COUNTED_PARTS", 64)  # far fewer than there are keys
    assert main(["keys", "hot", str(tmp_path), "--limit", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["userRecords"] == 20_000
    assert [(row["key"], row["userRecords"]) for row in found["keys"]] == expected
    assert all(int(row["hashKey"]) == partition_key_hash(row["key"]) for row in found["keys"])
    assert main(["keys", "hot", str(tmp_path)]) == 0
    assert expected[0][0] in capsys.readouterr().out
