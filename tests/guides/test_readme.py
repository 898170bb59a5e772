"""The README's code runs, its commands and options exist; so do those that other pages name."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import shlex
from pathlib import Path
from typing import Any

import boto3
import pytest

import kpl_codec as kpl
from kpl_codec.cli.main import COMMANDS, _parser
from kpl_codec.testing.local_kinesis import LocalKinesis

from .blocks import Block, Run, blocks

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "spec").rglob("*.md"))]


#: Options that are not those of kpl-codec: of Glue's jobs, pip, pytest, and this repository's own tools.
_OF_OTHERS = {"--additional-python-modules", "--hypothesis-profile", "--platform", "--table"}


def commands(page: str) -> list[str]:
    """What a page has its reader type after ``kpl-codec``."""
    lines = page.replace("\\\n", " ")
    started = r"(?:kpl-codec|spark-submit \"\$\(python -m kpl_codec\.spark\.job\)\")"
    typed = re.findall(rf"^(?: {{4,}})?{started} +([a-z].*)$", lines, re.MULTILINE)
    typed += re.findall(r"`kpl-codec ([a-z][^`]*)`", lines)
    return [line.partition("  #")[0].strip() for line in typed]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_and_options_exist(path: Path) -> None:
    for command in commands(path.read_text()):
        wanted, *options = shlex.split(re.sub(r"\[[^]]*\]|\.\.\.", "", command))
        ours = options[: options.index("--")] if "--" in options else options  # behind it is another program
        given = [option for option in ours if option.startswith("--")]
        for form in wanted.split("|"):
            known = _options(_parser([form]))
            assert form in known, f"{path.name}: kpl-codec {command}"
            assert {option.partition("=")[0] for option in given} <= known[form], f"{path.name}: {command}"


def test_the_readme_names_every_command() -> None:
    page = (ROOT / "README.md").read_text()
    missing = {name for name in COMMANDS if f"kpl-codec {name}" not in page}
    assert missing == set(), "README.md shows every command"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_names_in_the_text_exist(path: Path) -> None:
    """Names of this package, files of this repository, extras, wheels, and options without a command."""
    page = path.read_text()
    for name in re.findall(r"\bkpl_codec(?:\.\w+)+", page):
        if not name.endswith((".py", ".so", ".repair")):  # .repair: a tag
            assert _exists(name), f"{path.name}: {name}"
    for name in re.findall(r"`((?:tests|fuzz|kpl_codec|spec)/[\w/.-]+?)/?`", page):
        assert any(ROOT.glob(name)), f"{path.name}: {name}"
    extras = importlib.metadata.metadata("kpl-codec").get_all("Provides-Extra") or []
    for named in re.findall(r"(?:kpl-codec|\.whl|\"\.)\[([a-z][a-z,-]*)\]", page):
        assert set(named.split(",")) <= {*extras, "dev"}, f"{path.name}: {named}"
    for version in re.findall(r"kpl_codec-([\d.]+)-cp", page):
        assert version == kpl.__version__
    known = set().union(*(names for one in COMMANDS for names in _options(_parser([one])).values()))
    for option in re.findall(r"`(--[a-z][a-z-]*)", page):
        assert option in known | _OF_OTHERS, f"{path.name}: {option}"


def _exists(name: str) -> bool:
    parts = name.split(".")
    for at in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:at]))
        except ModuleNotFoundError:
            continue
        for inner in parts[at:]:
            if not hasattr(found, inner):
                return False
            found = getattr(found, inner)
        return True
    return False


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


def test_the_code_on_spark_runs(spark: Any, tmp_path: Path) -> None:
    schema = "data binary, shardId string, sequenceNumber string, partitionKey string"
    rows = [(kpl.encode([kpl.UserRecord("k", b"data")]), "shardId-000000000000", "1", "a")]
    run = Run(tmp_path)
    run.names |= {
        "spark": spark,
        "df": spark.createDataFrame(rows, schema),
        "shard_map": kpl.ShardMap([kpl.Shard("shardId-000000000000", kpl.ALL_HASH_KEYS)]),
    }
    for block in README:
        if of_spark(block):
            run.block(block)
    assert [row.data for row in run.names["users"].collect()] == [b"data"]
    assert [row.placement for row in run.names["checked"].collect()] == ["expected"]
    assert "sequenceNumber" in run.names["stream"].columns


def test_commands_are_found() -> None:
    page = "text `kpl-codec cat --x` and\n\n    kpl-codec validate --a b \\\n      --c  # why\n"
    assert commands(page) == ["validate --a b        --c", "cat --x"]
    assert commands('    spark-submit "$(python -m kpl_codec.spark.job)" validate --a\n') == ["validate --a"]


@pytest.mark.parametrize(
    "page",
    [
        "`kpl_codec.aws.Consumer`",
        "`tests/nothing.py`",
        'pip install ".[nothing]"',
        "pip install kpl_codec-9.9.9-cp311-cp311-linux_x86_64.whl",
        "with `--no-such-option`",
    ],
)
def test_a_stale_name_fails(page: str, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(page)
    with pytest.raises(AssertionError):
        test_names_in_the_text_exist(path)
