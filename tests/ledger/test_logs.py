"""`Ledger(print)` writes into a log. The guide's commands make a ledger of the log of each service again, and
what the way has lost is named. Zcat, jq and Spark open a ledger as it is."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.audit import Ledger, Row
from kpl_codec.audit.audit_run import audit
from kpl_codec.ledger.ledger_rows import KINDS, RowKind

from ..audit.model import ledger_of, printed, rows_of
from ..audit.test_law import SHARDS

GUIDE = (Path(__file__).parents[2] / "spec/guides/was-everything-handled.md").read_text()
(COMMANDS,) = re.findall(r"^# CloudWatch Logs, by.*?(?=^```)", GUIDE, re.DOTALL | re.MULTILINE)
NUMBERS = range(10**55, 10**55 + 20)


Files = dict[str, bytes]


def text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def by_the_cli(lines: list[str]) -> Files:
    """Stands for the AWS CLI: it filters by the word, and prints all pages as one object."""
    events = [
        {"logStreamName": "x", "timestamp": 1, "message": f"{line}\n", "eventId": "1"} for line in lines
    ]
    answer = {"events": [one for one in events if "kpl_ledger" in str(one)], "searchedLogStreams": []}
    return {"bin/aws": f"#!/bin/sh\ncat <<'ANSWER'\n{json.dumps(answer, indent=4)}\nANSWER\n".encode()}


def exported(lines: list[str]) -> Files:
    stamped = [f"2026-01-31T12:00:00.000Z {line}" for line in lines]
    parts = {f"exported/task/stream-{n}/000000.gz": stamped[n::2] for n in range(2)}
    return {name: gzip.compress(text(some)) for name, some in parts.items()}


def fluent_bit(lines: list[str]) -> Files:
    objects = [json.dumps({"date": 1.5, "log": f"{line}\n", "stream": "stdout"}) for line in lines]
    return {"fluent-bit/1": text(objects[:9]), "fluent-bit/2": text(objects[9:])}


def firehose(lines: list[str]) -> Files:
    """Objects one behind the other, as a subscription sends them, each compressed."""
    parts = [lines[:7], lines[7:]]
    messages = [
        {"messageType": "CONTROL_MESSAGE", "logEvents": [{"id": "0", "message": "CWL CONTROL MESSAGE"}]},
        *(
            {"messageType": "DATA_MESSAGE", "logEvents": [{"id": "1", "message": line} for line in part]}
            for part in parts
        ),
    ]
    return {"firehose/1": b"".join(gzip.compress(json.dumps(one).encode()) for one in messages)}


def any_text(lines: list[str]) -> Files:
    return {"logs/a": text([f"[7] INFO {line}" for line in lines[:9]]), "logs/b": text(lines[9:])}


SERVICES: dict[str, Callable[[list[str]], Files]] = {
    "cloudwatch": by_the_cli,
    "exported": exported,
    "fluent-bit": fluent_bit,
    "firehose": firehose,
    "text": any_text,
}


@pytest.mark.requirement("AUD-3", "AUD-23", "AUD-30")
def test_the_command_of_each_log_service_makes_a_ledger_of_its_log(tmp_path: Path) -> None:
    """Also of a log that has lost a line, and of one whose line was cut."""
    commands = {}
    for command in re.split(r"^# .*\n", COMMANDS, flags=re.MULTILINE)[1:]:
        (name,) = re.findall(r"> ([\w-]+)\.ledger\.jsonl\n$", command)
        commands[name] = command
    assert commands.keys() == SERVICES.keys()
    whole = ["START RequestId: 1"]
    members = [[row] for row in rows_of("handled", *NUMBERS, user_records=3)]
    for line in printed(*members):
        whole += [line, 'handled a batch of "orders" {3}']
    lost, cut = (next(at for at, line in enumerate(whole) if f'"member":{n},' in line) for n in (4, 8))
    logs = {
        "whole": whole,
        "lost": whole[:lost] + whole[lost + 1 :],
        "cut": [*whole[:cut], whole[cut][:150], *whole[cut + 1 :]],
    }
    wrong = []
    for name, write in SERVICES.items():
        for what, lines in logs.items():
            folder = tmp_path / name / what
            files = {
                **write(lines),
                "put": ledger_of("produced", rows_of("delivered", *NUMBERS, user_records=3)),
            }
            for file, data in files.items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_bytes(data)
                (folder / file).chmod(0o755)
            path = f"{folder}/bin:{os.environ['PATH']}"
            subprocess.run(
                ["bash", "-c", commands[name]], cwd=folder, check=True, env={**os.environ, "PATH": path}
            )
            result = audit([str(folder / "put")], [str(folder / f"{name}.ledger.jsonl")])
            sums = result.facts["userRecords"]
            named = " ".join(str(one.detail) for one in result.findings)
            expected = {"whole": (60, 0), "lost": (57, 3), "cut": (57, 3)}[what]
            number = {"whole": "", "lost": "member 4: not there", "cut": "member 8: not there"}[what]
            if (sums["handled"], sums["unknown"]) != expected or number not in named:
                wrong.append((name, what, sums, named))
    assert wrong == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger/produced with two files and rows of every kind."""
    others: list[RowKind] = [kind for kind in KINDS if kind != "delivered"]
    for _ in range(2):
        with closing(Ledger(tmp_path / "ledger/produced").writer("orders")) as ledger:
            for shard in SHARDS:
                ledger.note(rows_of("delivered", 10**55, shard_id=shard, user_records=3))
            ledger.note(
                [
                    Row(kind, SHARDS[0], sequence_number="7", user_records=1, at=1 << 40, digest=b"12345678")
                    for kind in others
                ]
            )
    return tmp_path


def test_zcat_and_jq(folder: Path) -> None:
    (zcat,) = re.findall(r"^zcat ledger.*", GUIDE, re.MULTILINE)
    (jq,) = re.findall(r"`(zcat [^`]* jq [^`]*)`", GUIDE)
    expected = {zcat: ["4"], jq: [f"{shard}\t3" for shard in SHARDS for _ in range(2)]}
    for command, lines in expected.items():
        done = subprocess.run(command, shell=True, cwd=folder, check=True, capture_output=True, text=True)
        assert sorted(done.stdout.splitlines()) == lines, command


@pytest.mark.slow
@pytest.mark.spark
def test_spark(folder: Path, spark: Any) -> None:
    assert "spark.read.json(" in GUIDE
    table = spark.read.json(str(folder / "ledger/produced"))
    files = (folder / "ledger/produced").iterdir()
    lines = [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert {key for line in lines for key in line} == set(table.columns)
    delivered = table.where("kind = 'delivered'").groupBy("shard").sum("user_records").collect()
    assert sorted(map(tuple, delivered)) == [(shard, 6) for shard in SHARDS]
