"""kcl_rs on a local Kinesis and a local DynamoDB: a split, a merge, killed workers, aggregates of many
shards. The audit names what the KCL dropped, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest

import kpl_codec as kpl
from kpl_codec.audit import Ledger
from kpl_codec.audit.audit_run import audit
from kpl_codec.aws import fetch_shard_map, read_stream
from kpl_codec.producer import Producer
from kpl_codec.testing.local_kinesis import LocalKinesis

from ..audit.test_for_real import FAST, Name, kcl, name_of, names_of, put_faulty
from ..audit.test_law import names_with
from ..moto_server import moto_server
from ..validate.test_stream import Stream
from .leases import create_leases

pytest.importorskip("kcl_rs")
pytestmark = [pytest.mark.slow, pytest.mark.server]


@pytest.fixture
def dynamodb(kinesis_local: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A DynamoDB for leases; both services by the variables of AWS's SDKs."""
    with moto_server() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", kinesis_local.endpoint_url)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "local")
        yield boto3.client("dynamodb", region_name="us-east-1")


def read_truth(path: Path) -> Counter[Name]:
    if not path.exists():
        return Counter()
    whole, _, _ = path.read_text().rpartition("\n")  # what follows is being written
    rows = [line.split() for line in whole.splitlines()]
    return Counter((shard_id, number, int(sub)) for shard_id, number, sub in rows)


def merge(client: Any, stream: str) -> None:
    """The last two shards."""
    shard_map = fetch_shard_map(client, stream)
    first, second = sorted(shard_map.open_shards, key=lambda shard: shard.hash_key_range)[-2:]
    client.merge_shards(StreamName=stream, ShardToMerge=first.shard_id, AdjacentShardToMerge=second.shard_id)


@pytest.mark.requirement("AUD-24", "AUD-25", "AUD-26", "CAP-7")
def test_the_audit_names_what_the_kcl_dropped(
    kinesis_local: LocalKinesis, dynamodb: Any, stream_name: str, tmp_path: Path
) -> None:
    """The first worker is killed after 1,000 user records. The second takes its lease over after ten
    seconds, and reads the children of a split and of a merge ten seconds after their parents (those of one
    generation, so that it waits once)."""
    kinesis_local.create_stream(stream_name, 3)
    client = kinesis_local.client()
    create_leases(dynamodb, stream_name, list(fetch_shard_map(client, stream_name).values()))
    ledger, truth = Ledger(tmp_path / "produced"), tmp_path / "truth"
    with Producer(
        stream_name, ledger=ledger, config=FAST, client_settings=kinesis_local.client_settings
    ) as producer:
        for part in range(3):
            futures = [producer.put(f"key-{n}", b"%d" % n) for n in range(1500)]
            assert all(future.result(60) for future in futures)
            put_faulty(client, stream_name, ledger, ((f"key-{n}", b"x%d" % n) for n in range(80)))
            if part == 0:
                Stream(kinesis_local, stream_name).split()
            if part == 1:
                merge(client, stream_name)
                kinesis_local.wait_active(stream_name)
    gets = set(kcl(client, stream_name))
    for name, dies in (("first", 1000), ("second", 0)):
        command = [sys.executable, "-m", "tests.kcl.worker", stream_name, name]
        command += [str(tmp_path / "handled"), str(truth), str(dies)]
        with (
            open(tmp_path / f"log-{name}", "wb") as log,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log) as worker,
        ):
            while worker.poll() is None and (dies or not gets <= read_truth(truth).keys()):
                time.sleep(0.1)
            if worker.stdin:
                worker.stdin.close()
        ended = (worker.returncode != 0) if dies else (worker.returncode == 0)
        assert ended, (worker.returncode, (tmp_path / f"log-{name}").read_text()[-2000:])
    handled = read_truth(truth)
    # The KCL drops nothing while it does not know the shard: for some seconds after a split or a merge.
    unknown_shard = any(
        "Cannot get the shard for this ProcessTask" in log.read_text() for log in tmp_path.glob("log-*")
    )
    assert handled.keys() >= gets
    assert handled.keys() == gets or unknown_shard
    audited = audit(
        [str(tmp_path / "produced")],
        [str(tmp_path / "handled")],
        put_before=datetime.now(timezone.utc),
        client=client,
        stream=stream_name,
    )
    by_kind: dict[str, set[Name]] = {}
    for kind in {one.kind for one in audited.findings}:
        by_kind[kind] = names_with(audited, lambda one, kind=kind: one.kind == kind)  # type: ignore[misc]
    # What our producer has sent again because the split overtook it is no loss.
    every = {name_of(one) for one in kpl.deaggregate(list(read_stream(client, stream_name)), "report")}
    lost = every - handled.keys() - names_of(tmp_path / "produced", "again").keys()
    assert by_kind.pop("audit-dropped") == lost
    assert len(lost) >= 100  # of the faulty writer
    again = {name for name, times in handled.items() if times > 1}
    assert by_kind.pop("audit-twice", set()) <= again
    assert by_kind == {}
