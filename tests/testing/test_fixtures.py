"""The pytest plugin: there with a line in conftest.py, silent until asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

NAME = "kpl_codec.testing.fixtures"


def test_loading_it_loads_nothing_else() -> None:
    code = (
        f"import sys, pytest; before = set(sys.modules); import {NAME}\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new & {'boto3', 'botocore', 'hypothesis', 'google', 'numpy', 'pyarrow', 'subprocess'}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "[]\n"


def test_faults_come_on_demand(kinesis_local, kinesis_faults) -> None:
    from kpl_codec.testing.faults import error

    kinesis_faults.on("ListStreams", error("InternalFailure", status=500), times=1)
    client = kinesis_local.client(endpoint_url=kinesis_faults.endpoint_url)
    with pytest.raises(client.exceptions.ClientError, match="InternalFailure"):
        client.list_streams()
    assert "StreamNames" in client.list_streams()
