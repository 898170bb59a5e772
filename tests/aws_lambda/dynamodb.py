"""A real DynamoDB server for the Powertools idempotency table: dynalite (npm), in its own process."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError

from kpl_codec.testing.local_kinesis import find_node, install

VERSION = "4.0.0"
# Listens on a free port of 127.0.0.1, says which, ends when our end of its standard input closes.
_SCRIPT = """
const server = require(process.argv[1])({createTableMs: 0, deleteTableMs: 0, updateTableMs: 0});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.kill(process.pid, 'SIGKILL')); process.stdin.resume();
"""
_FAKE = {"region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": "x"}


@contextlib.contextmanager
def idempotency_table(name: str) -> Iterator[Any]:
    """A boto3 DynamoDB client whose server has the table that Powertools' documentation asks for."""
    package = install("dynalite", VERSION)
    process = subprocess.Popen(
        [find_node(), "-e", _SCRIPT, str(package)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        client = boto3.client("dynamodb", endpoint_url=f"http://127.0.0.1:{port}", **_FAKE)
        client.create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with contextlib.suppress(BotoCoreError):
                if client.describe_table(TableName=name)["Table"]["TableStatus"] == "ACTIVE":
                    break
            time.sleep(0.05)
        yield client
    finally:
        process.kill()
        process.communicate()
