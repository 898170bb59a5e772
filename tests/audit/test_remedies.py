"""The remedies that findings advise, in every order: no user record stays lost, and none is handled twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.audit import Ledger
from kpl_codec.aws import fetch_shard_map, read_stream
from kpl_codec.cli.main import main
from kpl_codec.deaggregation.policies import deaggregate
from kpl_codec.producer import Producer, ProducerConfig
from kpl_codec.testing.local_kinesis import LocalKinesis

from .test_for_real import put_faulty
from .test_law import write_table

FAST = ProducerConfig(record_max_buffered_time_ms=50)


class Consumer:
    """Under the KCL's rule, with a checkpoint for each shard that has a worker."""

    def __init__(self, client: Any, stream: str, table: Path) -> None:
        self._client, self._stream, self._table = client, stream, table
        self._checkpoints: dict[str, int] = {}
        self._handled: list[tuple[str, str, int]] = []
        self.got: Counter[bytes] = Counter()

    def read(self, *shard_ids: str, skips: Callable[[int], bool] = lambda number: False) -> None:
        """Read these shards, from their checkpoints, to their ends. ``skips``: a bug."""
        shard_map = fetch_shard_map(self._client, self._stream)
        for shard_id in shard_ids:
            after = self._checkpoints.get(shard_id, -1)
            records = [
                record
                for record in read_stream(self._client, self._stream, shard_ids=[shard_id])
                if int(record.sequence_number or 0) > after
            ]
            for number, one in enumerate(deaggregate(records, "kcl", shard_map=shard_map)):
                if not skips(number):
                    self.got[one.data] += 1
                    self._handled.append(
                        (one.shard_id or "", one.sequence_number or "", one.sub_sequence_number)
                    )
            if records:
                self._checkpoints[shard_id] = max(int(record.sequence_number or 0) for record in records)
        write_table(self._table, self._handled)


ORDERS = [*permutations(["worker", "repair"]), *permutations(["worker", "repair", "validate"])]


@pytest.mark.requirement("SPK-120", "AUD-16")
@pytest.mark.parametrize(
    "order",
    [
        pytest.param(order, id="-then-".join(order), marks=[pytest.mark.slow] if len(order) > 2 else [])
        for order in ORDERS
    ],
)
@pytest.mark.parametrize("audits", ["one-audit", "an-audit-each"])
def test_the_remedies_for_a_shard_that_was_never_read_repeat_nothing(
    kinesis_local: LocalKinesis, stream_name: str, tmp_path: Path, order: tuple[str, ...], audits: str
) -> None:
    """The audit names three losses: user records that the consumer skipped, those that the KCL drops, and
    those of a shard without a worker. One is advised to give it a worker, and to repair; `validate` finds
    those that the KCL drops, too, and advises the same."""
    kinesis_local.create_stream(stream_name, 2)
    client = kinesis_local.client()
    ledger, put = Ledger(tmp_path / "produced"), set[bytes]()
    with Producer(
        stream_name, ledger=ledger, config=FAST, client_settings=kinesis_local.client_settings
    ) as producer:
        for n in range(400):
            producer.put(f"key-{n}", b"%d" % n)
            put.add(b"%d" % n)
    put_faulty(client, stream_name, ledger, ((f"key-{n}", b"x%d" % n) for n in range(80)))
    put |= {b"x%d" % n for n in range(80)}
    shards = sorted(fetch_shard_map(client, stream_name))
    consumer = Consumer(client, stream_name, tmp_path / "handled.csv")
    consumer.read(shards[0], skips=lambda number: number % 50 == 25)
    endpoint = ["--stream", stream_name, "--region", "us-east-1"]
    endpoint += ["--endpoint-url", kinesis_local.endpoint_url]

    def audit(out: Path) -> None:
        sides = ["--produced", str(tmp_path / "produced"), "--handled", str(tmp_path / "handled.csv")]
        sides += ["--until", datetime.now(timezone.utc).isoformat(), "--output", str(out)]
        assert main(["audit", *sides, *applied, *endpoint]) in (0, 1)

    applied: list[str] = []
    audit(tmp_path / "out-0")
    for number, remedy in enumerate(order):
        if remedy == "worker":
            consumer.read(*shards)
            continue
        out = tmp_path / "out-0"
        if remedy == "validate":
            out = tmp_path / f"checked-{number}"
            assert main(["validate", *endpoint, "--quiet", "--engine", "local", "--output", str(out)]) in (
                0,
                1,
            )
        elif number and (applied or audits == "an-audit-each"):  # `repair` asks for it where it was applied
            out = tmp_path / f"out-{number}"
            audit(out)
        assert main(["repair", str(out)]) == 0
        assert main(["repair", str(out), "--apply", *endpoint]) == 0
        applied += ["--repaired", str(out)]
    consumer.read(*shards)
    assert set(consumer.got) == put
    assert {data: count for data, count in consumer.got.items() if count > 1} == {}


@pytest.mark.requirement("SPK-120")
def test_what_nobody_will_read_is_put_when_asked_for(
    kinesis_local: LocalKinesis, stream_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker that begins at LATEST never reads what was there before."""
    kinesis_local.create_stream(stream_name, 2)
    client, ledger = kinesis_local.client(), Ledger(tmp_path / "produced")
    with Producer(
        stream_name, ledger=ledger, config=FAST, client_settings=kinesis_local.client_settings
    ) as producer:
        for n in range(100):
            producer.put(f"key-{n}", b"%d" % n)
    shards = sorted(fetch_shard_map(client, stream_name))
    consumer = Consumer(client, stream_name, tmp_path / "handled.csv")
    consumer.read(shards[0])
    unread = 100 - consumer.got.total()
    endpoint = ["--stream", stream_name, "--region", "us-east-1"]
    endpoint += ["--endpoint-url", kinesis_local.endpoint_url]
    sides = ["--produced", str(tmp_path / "produced"), "--handled", str(tmp_path / "handled.csv")]
    sides += ["--until", datetime.now(timezone.utc).isoformat(), "--output", str(tmp_path / "out")]
    assert main(["audit", *sides, *endpoint]) == 1
    capsys.readouterr()
    assert main(["repair", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().out
    assert f"{unread}  on shards that the consumer has never read" in told
    assert "--with-unread" in told
    assert main(["repair", str(tmp_path / "out"), "--with-unread"]) == 0
    assert f"{unread}  to re-send" in capsys.readouterr().out
    assert main(["repair", str(tmp_path / "out"), "--apply", *endpoint]) == 0
    assert f"{unread}  sent" in capsys.readouterr().out
