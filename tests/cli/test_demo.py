"""The demo, as a user runs it: a real server, real encoders, a split, and what is lost by name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kpl_codec.cli.main import main
from tests.widths import too_wide

pytestmark = pytest.mark.server


@pytest.mark.slow
@pytest.mark.requirement("PLC-5", "KCL-4")
def test_the_demo_names_who_loses_what(tmp_path: Path) -> None:
    program = (
        "from kpl_codec.testing import demo_command; demo_command._PUT = 300\n"
        "from kpl_codec.cli.main import entry; entry()"
    )
    command = [sys.executable, "-c", program, "demo"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    out = done.stdout
    assert not too_wide(out)
    table = {
        found[1]: tuple(int(number.replace(",", "")) for number in found[2].split())
        for found in re.finditer(r"^  (\S+) +((?:[\d,]+ *){3})$", out, re.MULTILINE)
    }
    assert table["kpl_codec.producer.Producer"] == (300, 300, 0)
    assert table["aws_kinesis_agg"] == (300, 0, 300)
    put, got, lost = table["aws_kinesis_agg/shard"]
    assert put == got + lost
    assert 0 < lost < 300
    assert len(out.splitlines()) <= 24, "it is one screen"
    assert out.splitlines()[-1].endswith("kpl-codec watch --stream NAME")
    folder = tmp_path / "kpl-codec-demo"
    for name in ("shards.json", "report.html", "findings", "user-records"):
        assert (folder / name).exists()
    # Its chart, a column a second, shows the first shard before the split.
    shards = json.loads((folder / "summary.json").read_text())["shards"]
    first = {shard["shardId"][-1]: shard["firstArrival"] for shard in shards}
    assert first["0"] < min(first["4"], first["5"])
    # What it says to run next works, on what it left.
    assert main(["findings", str(folder)]) == 1
