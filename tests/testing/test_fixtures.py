"""The pytest plugin: there with a line in conftest.py, silent until asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


@pytest.mark.slow
def test_a_users_fixture_of_the_same_name_goes_first(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(f'pytest_plugins = ["{NAME}"]\n')
    (tmp_path / "test_mine.py").write_text(
        "import pytest\n\n"
        "@pytest.fixture\ndef kinesis_local():\n    return 'mine'\n\n"
        "def test_it(kinesis_local, stream_name):\n"
        "    assert (kinesis_local, stream_name[:7]) == ('mine', 'stream-')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout


def test_faults_come_on_demand(kinesis_local, kinesis_faults) -> None:
    from kpl_codec.testing.faults import error

    kinesis_faults.on("ListStreams", error("InternalFailure", status=500), times=1)
    client = kinesis_local.client(endpoint_url=kinesis_faults.endpoint_url)
    with pytest.raises(client.exceptions.ClientError, match="InternalFailure"):
        client.list_streams()
    assert "StreamNames" in client.list_streams()
