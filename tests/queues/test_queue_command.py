"""``kpl-codec cat --queue``: what is in a queue and in its dead letters; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.cli.main import main

from .queue_model import loader_of, model_of
from .queue_service import QueueServer, QueueService, RealClock


@pytest.fixture
def service(newest_boto3: Path, monkeypatch: pytest.MonkeyPatch) -> QueueService:
    # What a user of an older boto3 can do, too: give it the newer model.
    monkeypatch.setattr("botocore.session.create_loader", lambda *_: loader_of(newest_boto3))
    return QueueService(model_of(newest_boto3), RealClock(speed=10))


@pytest.fixture
def there(service: QueueService) -> Iterator[list[str]]:
    with QueueServer(service) as url:
        yield ["--endpoint-url", url, "--region", "us-east-1"]


def lines(capsys: Any, *argv: str, code: int = 0) -> list[dict[str, Any]]:
    assert main(["cat", *argv]) == code
    return [json.loads(row) for row in capsys.readouterr().out.splitlines()]


def put(service: QueueService, count: int) -> None:
    for number in range(count):
        service.put("a", kpl.encode([kpl.UserRecord("k", b"%d.%d" % (number, user)) for user in range(3)]))


@pytest.mark.requirement("QUE-12")
def test_a_queue_is_browsed(service: QueueService, there: list[str], capsys: Any) -> None:
    queue = service.create()
    put(service, 12)
    rows = lines(capsys, "--queue", "orders-queue", *there)
    assert len(rows) == 36
    assert {row["recordId"] for row in rows} == {record.record_id for record in service.records}
    assert not {"sequenceNumber", "shardId"} & rows[0].keys()
    assert len(lines(capsys, "--queue", queue, *there, "--key", "k", "--limit", "5")) == 5
    # all was given back, also after the limit
    answer = service.call("ReceiveQueueRecords", {"QueueARN": queue, "WaitTimeSeconds": 1})
    assert len(answer["QueueRecords"]) == 10


@pytest.mark.requirement("QUE-12")
def test_dead_letters_are_browsed_and_restored(service: QueueService, there: list[str], capsys: Any) -> None:
    queue = service.create(most_receives=1)
    put(service, 2)
    assert lines(capsys, "--queue", queue, "--dead-letters", *there) == []
    assert len(lines(capsys, "--queue", queue, *there)) == 6
    assert len(lines(capsys, "--queue", queue, "--dead-letters", *there)) == 6
    assert main(["cat", "--queue", queue, "--dead-letters", "--restore", *there]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "kpl-codec: 2 dead letters restored"
    assert len(lines(capsys, "--queue", queue, *there)) == 6


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ("--queue q --shard-id shardId-000000000000", "do not say their shard"),
        ("--queue q --stream s", "either"),
        ("--stream s --dead-letters", "goes with --queue"),
        ("--queue q --restore", "goes with"),
        ("--queue q --only x", "goes with --stream"),
    ],
)
def test_options_that_do_not_go_together(argv: str, text: str, capsys: Any) -> None:
    assert main(["cat", *argv.split()]) == 2
    assert text in capsys.readouterr().err


def test_failures_have_one_line(service: QueueService, there: list[str], capsys: Any) -> None:
    assert main(["cat", "--queue", "none", *there]) == 2
    assert "no queue of this account and region has that name" in capsys.readouterr().err
    arn = "arn:aws:kinesis:us-east-1:123456789012:queue/none"
    assert main(["cat", "--queue", arn, *there]) == 2
    assert "ResourceNotFoundException" in capsys.readouterr().err
