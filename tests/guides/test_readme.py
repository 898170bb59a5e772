"""The README's code runs, its commands and options exist; so do those that other pages name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import boto3
import pytest

import kpl_codec as kpl
from kpl_codec.cli.main import _parser
from kpl_codec.testing.local_kinesis import LocalKinesis

from .blocks import Block, Run, blocks

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "spec").rglob("*.md"))]


def commands(page: str) -> list[str]:
    """What a page has its reader type after ``kpl-codec``."""
    lines = page.replace("\\\n", " ")
    typed = re.findall(r"^(?: {4,})?kpl-codec +([a-z].*)$", lines, re.MULTILINE)
    typed += re.findall(r"`kpl-codec ([a-z][^`]*)`", lines)
    return [line.partition("  #")[0].strip() for line in typed]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_and_options_exist(path: Path) -> None:
    for command in commands(path.read_text()):
        wanted, *options = shlex.split(re.sub(r"\[[^]]*\]|\.\.\.", "", command))
        given = [option for option in options if option.startswith("--")]
        for form in wanted.split("|"):
            known = _options(_parser([form]))
            assert form in known, f"{path.name}: kpl-codec {command}"
            assert {option.partition("=")[0] for option in given} <= known[form], f"{path.name}: {command}"


def _options(parser: Any) -> dict[str, set[str]]:
    """Every command and the long options that it, or one of its own commands, takes."""
    found: dict[str, set[str]] = {}
    for action in parser._actions:
        for name, command in (action.choices or {}).items() if hasattr(action.choices, "items") else ():
            found[name] = {option for inner in command._actions for option in inner.option_strings}
            for names in _options(command).values():
                found[name] |= names
    return found


README = list(blocks((ROOT / "README.md").read_text()))


def of_spark(block: Block) -> bool:
    return "kpl_codec.spark" in block.text


def test_the_code_runs(kinesis_local: LocalKinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", kinesis_local.endpoint_url)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for secret in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(secret, "x")
    client = boto3.client("kinesis")
    kinesis_local.create_stream("orders")
    data = kpl.encode([kpl.UserRecord("k", b"data")])
    client.put_record(StreamName="orders", Data=data, PartitionKey="a")
    place = {"StreamName": "orders", "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
    handled: list[Any] = []
    run = Run(tmp_path)
    run.names |= {
        "iterator": client.get_shard_iterator(**place)["ShardIterator"],
        "handle": lambda *record: handled.append(record),
        "data": data,
        "text": kpl.ShardMap([kpl.Shard("shardId-000000000000", kpl.ALL_HASH_KEYS)]).to_json(),
        "records": [kpl.KinesisRecord("a", data, "1", "shardId-000000000000")],
        "my_consumer": lambda data: list(kpl.decode(data)),
    }
    try:
        for block in README:
            if not of_spark(block):
                run.block(block)
        run.names["test_my_consumer"]()
    finally:
        kinesis_local.delete_stream("orders")
    assert [record[:2] for record in handled] == [("k", b"data")]
    assert run.names["delivery"].shard_id == "shardId-000000000000"


@pytest.mark.spark
def test_the_code_on_spark_runs(tmp_path: Path) -> None:
    from kpl_codec.spark import local_session

    spark = local_session("kpl-codec tests", cores=2, memory="1g", quick_start=True)
    schema = "data binary, shardId string, sequenceNumber string, partitionKey string"
    rows = [(kpl.encode([kpl.UserRecord("k", b"data")]), "shardId-000000000000", "1", "a")]
    run = Run(tmp_path)
    run.names |= {
        "spark": spark,
        "df": spark.createDataFrame(rows, schema),
        "shard_map": kpl.ShardMap([kpl.Shard("shardId-000000000000", kpl.ALL_HASH_KEYS)]),
    }
    try:
        for block in README:
            if of_spark(block):
                run.block(block)
        assert [row.data for row in run.names["users"].collect()] == [b"data"]
        assert [row.placement for row in run.names["checked"].collect()] == ["expected"]
        assert "sequenceNumber" in run.names["stream"].columns
    finally:
        spark.stop()


def test_commands_are_found() -> None:
    page = "text `kpl-codec cat --x` and\n\n    kpl-codec validate --a b \\\n      --c  # why\n"
    assert commands(page) == ["validate --a b        --c", "cat --x"]
