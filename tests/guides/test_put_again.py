"""The program of guides/put-again.md beside the other remedies that findings advise, in either order: no user
record stays lost, and none is handled twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from kpl_codec.audit import Ledger
from kpl_codec.aws import fetch_shard_map, read_stream
from kpl_codec.cli.main import main
from kpl_codec.deaggregation.policies import deaggregate
from kpl_codec.producer import Producer, ProducerConfig
from kpl_codec.testing.local_kinesis import LocalKinesis

from ..audit.model import table_of
from ..audit.test_for_real import put_faulty
from .blocks import blocks

PAGE = Path(__file__).parents[2] / "spec/guides/put-again.md"
FAST = ProducerConfig(record_max_buffered_time_ms=50)


def put_again(stream: str, results: Path) -> int:
    """Run the program of the guide. Returns how many user records it has put."""
    (program,) = (one.text for one in blocks(PAGE.read_text()) if one.options.get("file") == "put_again.py")
    first = 'STREAM, RESULTS = "orders", "checked"'
    assert first in program
    names: dict[str, Any] = {}
    exec(program.replace(first, f"STREAM, RESULTS = {stream!r}, {str(results)!r}"), names)
    return int(names["put"])


class Consumer:
    """Under the KCL's rule, with a checkpoint for each shard that has a worker."""

    def __init__(self, client: Any, stream: str, table: Path) -> None:
        self._client, self._stream, self._table = client, stream, table
        self._checkpoints: dict[str, str] = {}
        self._handled: list[tuple[str, str, int]] = []
        self.got: Counter[bytes] = Counter()

    def read(self, *shard_ids: str, skips: Callable[[int], bool] = lambda number: False) -> None:
        """Read these shards, from their checkpoints, to their ends. ``skips``: a bug."""
        shard_map = fetch_shard_map(self._client, self._stream)
        start = self._checkpoints
        records = [*read_stream(self._client, self._stream, shard_ids=shard_ids, start=start)]
        for number, one in enumerate(deaggregate(records, "kcl", shard_map=shard_map)):
            if not skips(number):
                self.got[one.data] += 1
                self._handled.append((str(one.shard_id), str(one.sequence_number), one.sub_sequence_number))
        for record in records:
            self._checkpoints[str(record.shard_id)] = str(record.sequence_number)
        self._table.write_bytes(table_of(self._handled))


@pytest.mark.slow
@pytest.mark.requirement("AUD-15", "AUD-16")
@pytest.mark.parametrize("order", [("worker", "audit", "validate"), ("validate", "audit", "worker")])
def test_the_remedies_for_a_shard_that_was_never_read_repeat_nothing(
    order: tuple[str, ...],
    kinesis_local: LocalKinesis,
    stream: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The audit names three losses: user records that the consumer skipped, those that the KCL drops, and
    those of a shard without a worker. One is advised to give it a worker, and to put the lost ones again;
    `validate` finds those that the KCL drops, too, and advises the same. Each remedy is tried before and
    after each other one."""
    for name, value in (
        ("AWS_ENDPOINT_URL_KINESIS", kinesis_local.endpoint_url),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
    ):
        monkeypatch.setenv(name, value)
    client, ledger = kinesis_local.client(), Ledger(tmp_path / "produced")
    with Producer(
        stream, ledger=ledger, config=FAST, client_settings=kinesis_local.client_settings
    ) as producer:
        for n in range(400):
            producer.put(f"key-{n}", b"%d" % n)
    put_faulty(client, stream, ledger, ((f"key-{n}", b"x%d" % n) for n in range(80)))
    shards = sorted(fetch_shard_map(client, stream))
    consumer = Consumer(client, stream, tmp_path / "handled.parquet")
    consumer.read(shards[0], skips=lambda number: number % 50 == 25)
    endpoint = ["--stream", stream, "--region", "us-east-1", "--endpoint-url", kinesis_local.endpoint_url]
    for number, remedy in enumerate(order):
        out = tmp_path / f"out-{number}"
        if remedy == "worker":
            consumer.read(*shards)
        elif remedy == "validate":
            assert main(["validate", *endpoint, "--quiet", "--output", str(out)]) == 1
            put_again(stream, out)
        else:
            sides = ["--produced", str(tmp_path / "produced"), "--handled", str(tmp_path / "handled.parquet")]
            sides += ["--put-before", datetime.now(timezone.utc).isoformat(), "--output", str(out)]
            assert main(["audit", *sides, *endpoint]) == 1
            # AUD-15: a shard that has no worker yet is unread, not missing.
            rows = ds.dataset(out / "user-records").to_table(columns=["shardId", "kcl"]).to_pylist()
            states = Counter((row["shardId"], row["kcl"]) for row in rows)
            had_worker = "worker" in order[:number]
            assert (states[shards[1], "unread"] > 0) != had_worker
            assert states[shards[0], "unread"] == states[shards[1], "missing"] == 0
            assert put_again(stream, out) > 0 or "validate" in order[:number]
            assert put_again(stream, out) == 0
    consumer.read(*shards)
    put = [b"%d" % n for n in range(400)] + [b"x%d" % n for n in range(80)]
    assert consumer.got == Counter(put)
