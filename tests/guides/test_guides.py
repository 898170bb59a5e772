"""Every guide and every example of a docstring works word for word: it runs, and prints what it says."""

from __future__ import annotations

import doctest
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from unittest import mock

import boto3
import pytest

import kpl_codec as kpl
from kpl_codec.adapters import to_lambda
from kpl_codec.aws import read_stream
from kpl_codec.testing.local_kinesis import LocalKinesis

from ..every import every
from ..moto_server import moto_server
from ..test_surface import PUBLIC, names_of
from .blocks import Block, Run, blocks, outside

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GUIDES = sorted((ROOT / "spec" / "guides").glob("*.md"))
#: Pages about a stream: they find one on a local server.
WITH_STREAM = {
    "check-a-stream.md", "check-captures.md", "ci.md", "dead-letters.md", "forward.md",
    "how-records-get-lost.md", "kcl.md", "move-over.md", "notebooks.md", "put-again.md", "read.md",
    "s3-and-accounts.md", "schema-registry.md", "services.md", "several-streams.md", "spark.md",
    "spark-write.md", "was-everything-handled.md", "watch.md", "write.md",
}  # fmt: skip
#: Public modules whose examples find one, too.
MODULES_WITH_STREAM = {".aws", ".aws.aio", ".aws_lambda", ".producer", ".spark", ".validate"}
STREAM = "orders"
ARN = f"arn:aws:kinesis:us-east-1:123456789012:stream/{STREAM}"


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path) -> Iterator[None]:
    """A PATH with kpl-codec, python and what stands for the AWS CLI; credentials of nobody. What a guide sets
    ends with it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, command in (
        ("aws", f"{ROOT}/tests/guides/aws.py"),
        ("kpl-codec", "-m kpl_codec.cli.main"),
        ("python", ""),
        ("python3.13", ""),
        ("pip", "-m pip"),
        ("pytest", "-m pytest -p no:cacheprovider"),
    ):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "100",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    with mock.patch.dict(os.environ, environment):
        yield


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip finds as kpl-codec: a wheel of this tree, without the extension, so for every platform."""
    tree, wheels = tmp_path / "tree", tmp_path / "wheels"
    left_out = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "kpl_codec", tree / "kpl_codec", ignore=left_out)
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    project = (ROOT / "pyproject.toml").read_text()
    (tree / "pyproject.toml").write_text(project.replace("tool.setuptools.ext-modules", "tool.left-out"))
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "-w", wheels, tree], check=True, capture_output=True)
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))


@pytest.fixture
def orders(kinesis_local: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The stream of the guides: two shards, and aggregates that the KPL could have put."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", kinesis_local.endpoint_url)
    kinesis_local.create_stream(STREAM, shards=2)
    client = boto3.client("kinesis", endpoint_url=kinesis_local.endpoint_url)
    for half in kpl.ALL_HASH_KEYS.split(2):
        users = [
            kpl.UserRecord(f"customer-{n}", b"order %d" % n)
            for n in range(40)
            if kpl.effective_hash_key(f"customer-{n}") in half
        ]
        client.put_record(
            StreamName=STREAM,
            Data=kpl.encode(users),
            PartitionKey="a",
            ExplicitHashKey=str(half.starting_hash_key),
        )
    before = client.list_streams()["StreamNames"]
    yield
    # Those that the page has made, too: another page may make one of the same name.
    made = set(client.list_streams()["StreamNames"]) - set(before)
    for name in (STREAM, *made):
        kinesis_local.delete_stream(name)


@pytest.fixture
def orders_after_a_split(orders: None, kinesis_local: LocalKinesis) -> None:
    """The stream of the guides, of which one shard was split since."""
    client = boto3.client("kinesis", endpoint_url=kinesis_local.endpoint_url)
    middle = str(kpl.ALL_HASH_KEYS.split(4)[1].starting_hash_key)
    client.split_shard(StreamName=STREAM, ShardToSplit="shardId-000000000000", NewStartingHashKey=middle)
    kinesis_local.wait_active(STREAM)


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An S3 with a bucket, an STS that gives roles, a Glue, a DynamoDB and a CloudWatch."""
    with moto_server() as url:
        for service in ("S3", "STS", "GLUE", "DYNAMODB", "CLOUDWATCH"):
            monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", url)
        boto3.client("s3").create_bucket(Bucket="captures")
        yield


#: Run by CI only: what takes seconds, as Spark, a wheel, or waiting for a stream or a lease.
SLOW = {
    "check-a-stream.md", "check-captures.md", "ci.md", "dead-letters.md", "fuzz-your-consumer.md",
    "how-records-get-lost.md", "kcl.md", "lambda.md", "local-kinesis.md", "notebooks.md", "put-again.md",
    "read.md", "s3-and-accounts.md", "several-streams.md", "spark.md", "spark-write.md", "test-a-handler.md",
    "was-everything-handled.md", "watch.md",
}  # fmt: skip


#: Pages whose output names or counts shards as they are before a split.
NAMES_SHARDS = {"s3-and-accounts.md", "spark.md"}


#: What a function does with a layer in the folder given, where the package must not be compiled.
_IN_A_FUNCTION = """
import json
import sys
from importlib.machinery import SourceFileLoader
sys.path.insert(0, sys.argv[1])
def refuse(self, data, path, **_):
    raise SystemExit(f"no .pyc of {path}")
SourceFileLoader.source_to_code = refuse
from kpl_codec.aws_lambda import process_user_records
print(process_user_records(json.loads(sys.argv[2]), print))
del SourceFileLoader.source_to_code
from kpl_codec.aws_lambda import ShardMapCache
import kpl_codec.audit, kpl_codec.aws_lambda.aio, kpl_codec.producer
import kpl_codec.compat.aws_kinesis_agg.deaggregator
"""


def check_layer(folder: Path) -> None:
    """A function compiles nothing of the layer that a page has made."""
    archive = folder / "kpl-codec-layer.zip"
    assert archive.stat().st_size < 550_000, "0.8 MB with the extension, which has a quarter of a megabyte"
    shutil.unpack_archive(archive, folder / "opt")
    record = kpl.KinesisRecord(
        "a", kpl.encode([kpl.UserRecord("customer-1", b"one")]), "1", "shardId-000000000000"
    )
    event = json.dumps(to_lambda([record], stream_arn=ARN))
    command = [sys.executable, "-I", "-c", _IN_A_FUNCTION, folder / "opt/python", event]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.endswith("{'batchItemFailures': []}\n"), done.stderr
    assert not done.returncode, done.stderr


def create_leases() -> None:
    """The table of the page's consumer, as kcl_rs makes it; but it takes half a minute to begin."""
    table = boto3.resource("dynamodb").create_table(
        TableName="payments-consumer",
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    for number, keys in enumerate(kpl.ALL_HASH_KEYS.split(2)):
        lease = {
            "leaseKey": f"shardId-{number:012d}",
            "entityType": "LEASE",
            "checkpoint": "TRIM_HORIZON",
            "startingHashKey": str(keys.starting_hash_key),
            "endingHashKey": str(keys.ending_hash_key),
        }
        zeros = ("checkpointSubSequenceNumber", "leaseCounter", "ownerSwitchesSinceCheckpoint")
        table.put_item(Item={**lease, **dict.fromkeys(zeros, 0)})


class KilledFirst(Run):
    """Two queries on Spark are killed, Python, Java and workers, when a batch is written down, or a part of
    the copy is put. Started again, each gives what its page says, and so all that was put."""

    def _begun(self, program: str) -> bool:
        if program == "follow.py":
            return (self.folder / "checkpoint/offsets/0").exists()
        return next(read_stream(boto3.client("kinesis"), "orders-copy"), None) is not None

    def _sh(self, block: Block) -> None:
        program = block.text.strip().removeprefix("python ")
        if program in ("follow.py", "copy_stream.py"):
            with subprocess.Popen(["python", program], cwd=self.folder, start_new_session=True) as killed:
                try:
                    while not self._begun(program):
                        assert killed.poll() is None, "it ended before it could be killed"
                        time.sleep(0.05)
                finally:
                    os.killpg(killed.pid, signal.SIGKILL)
            assert killed.returncode == -signal.SIGKILL
        super()._sh(block)


@pytest.mark.timeout(900)
@pytest.mark.requirement("SPK-50")
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] * (path.name in SLOW), id=path.name) for path in GUIDES],
)
def test_a_guide_works(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Readers follow a page at any time: a shard of its stream was split since, and the records of that shard
    are now on a closed one. What the page prints, its counts too, is the same; pages that name shards have
    the stream before a split."""
    if path.name in WITH_STREAM:
        request.getfixturevalue("orders" if path.name in NAMES_SHARDS else "orders_after_a_split")
    if path.name in ("dead-letters.md", "kcl.md", "lambda.md", "s3-and-accounts.md", "schema-registry.md"):
        request.getfixturevalue("captures")
    if path.name == "kcl.md":
        pytest.importorskip("kcl_rs")
        create_leases()
    if path.name == "lambda.md":
        request.getfixturevalue("wheel")
    (tmp_path / "work").mkdir()
    KilledFirst(tmp_path / "work").page(path)
    if path.name == "lambda.md":
        check_layer(tmp_path / "work")


@pytest.mark.slow
def test_the_readme_works(orders: None, tmp_path: Path) -> None:
    """From top to bottom in one folder; then what its readers do with its files and functions."""
    run = Run(tmp_path)
    (program,) = (one for one in blocks(README.read_text()) if one.options.get("file") == "read_on_spark.py")
    run.block(program)
    run.block(Block("sh", {}, "python read_on_spark.py", 0))
    assert sum(int(count) for count in re.findall(r"\|shardId-\d+\| +(\d+)\|", run.printed)) == 40
    run.page(README)
    assert run.names["delivery"].shard_id.startswith("shardId-00000000000")
    run.block(Block("sh", {}, "pytest -q test_consumer.py && test -f checked/report.html", 0))
    data = kpl.encode([kpl.UserRecord("customer-1", b"one"), kpl.UserRecord("customer-2", b"two")])
    number = "49545115243490985018280067714973144582180062593244200961"
    event = to_lambda([kpl.KinesisRecord("a", data, number, "shardId-000000000000")], stream_arn=ARN)
    run.names["event"] = event
    run.block(Block("python", {}, "assert lambda_handler(event, None) == {'batchItemFailures': []}", 0))
    assert run.printed == "customer-1 b'one'\ncustomer-2 b'two'\n"


@pytest.mark.slow
def test_what_comes_twice_after_a_kill_is_of_one_kinesis_record(
    kinesis_local: LocalKinesis, stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """read.md's program with positions, killed in the middle and started again."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", kinesis_local.endpoint_url)
    client = kinesis_local.client()
    for n in range(60):
        users = [kpl.UserRecord("a", b"%d of %d" % (user, n)) for user in range(5)]
        client.put_record(StreamName=stream, PartitionKey=f"k{n}", Data=kpl.encode(users))
    page = blocks((ROOT / "spec/guides/read.md").read_text())
    (program,) = (block.text for block in page if block.options.get("file") == "read_on.py")
    (tmp_path / "read_on.py").write_text(program.replace('"orders"', repr(stream)))
    (tmp_path / "positions.json").write_text("{}")
    command = ["python", "read_on.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        lines = [killed.stdout.readline() for _ in range(97)]
        killed.kill()
        lines += killed.stdout.readlines()
    again = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    got = Counter([*lines, *again.stdout.splitlines(keepends=True)])
    assert sorted(got) == sorted(f"a b'{user} of {n}'\n" for n in range(60) for user in range(5))
    twice = [line for line, count in got.items() if count > 1]
    assert max(got.values()) <= 2
    assert len({line.partition(" of ")[2] for line in twice}) <= 1
    assert 0 < again.stdout.count("\n") < 300


@every("path", [README, *GUIDES], ids=lambda path: path.name)
def test_a_page_can_be_read_and_followed(path: Path) -> None:
    """Code is at most 88 columns wide; what it prints may be wider. All of it stands in fences, whose blocks
    are run or say why not."""
    page = path.read_text()
    wide = [
        f"{path.name}:{block.line + row}: {len(line)} columns"
        for block in blocks(page)
        if block.language != "text"
        for row, line in enumerate(block.text.splitlines(), start=1)
        if len(line) > 88
    ]
    assert wide == []
    lines = outside(page).splitlines()
    assert [
        f"{path.name}:{row}: {line}" for row, line in enumerate(lines, 1) if line.startswith("    ")
    ] == []


def examples_of(module: str) -> Iterator[doctest.DocTest]:
    """The examples of a public module's docstring, and of those of what it offers, each text once."""
    things = {"": import_module(f"kpl_codec{module}"), **names_of(module)}
    texts = {text: name for name, thing in things.items() if ">>>" in (text := inspect.getdoc(thing) or "")}
    for text, name in texts.items():
        yield doctest.DocTestParser().get_doctest(text, {}, f"kpl_codec{module}.{name}", None, 0)


@pytest.mark.parametrize(
    "module",
    [pytest.param(module, marks=pytest.mark.slow if module == ".spark" else ()) for module in PUBLIC],
)
def test_the_examples_of_docstrings_work(
    module: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each public module has examples, in its own docstring or in those of what it offers."""
    if module in MODULES_WITH_STREAM:
        request.getfixturevalue("orders")
    monkeypatch.chdir(tmp_path)
    found, said = [*examples_of(module)], list[str]()
    assert found
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    for example in found:
        runner.run(example, out=said.append)
    assert not said, "".join(said)


def test_every_guide_is_in_the_list() -> None:
    listed = (ROOT / "spec" / "guides" / "README.md").read_text()
    assert [path.name for path in GUIDES if f"({path.name})" not in listed] == ["README.md"]


@every(
    "page",
    [
        "```python\n1 / 0\n```\n",
        "```sh\nfalse\n```\n",
        "```sh\nkpl-codec validate --no-such-option\n```\n",
        "```sh\naws kinesis put-record --no-such-parameter x\n```\n",
        "```python\nprint(1)\n```\n```text\n2\n```\n",
        '```json\n{"Action": ["kinesis:ReadAll"]}\n```\n',
        "```yaml\nType: Kinesis\nProperties: {NoSuch: 1}\n```\n",
        "```yaml file=x\nType: AWS::Lambda::EventSourceMapping\nProperties: {Stream: orders}\n```\n",
        "```unknown\n```\n",
    ],
)
def test_a_stale_block_fails(page: str, tmp_path: Path) -> None:
    run = Run(tmp_path)
    *before, last = blocks(page)
    for block in before:
        run.block(block)
    with pytest.raises((AssertionError, ZeroDivisionError, AttributeError)):
        run.block(last)
