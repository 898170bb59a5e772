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
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.requirement("PLC-5", "KCL-4")
def test_the_demo_names_who_loses_what(tmp_path: Path) -> None:
    """The numbers are those of README and its picture, also on a loaded machine: what the producer sends
    twice counts once."""
    command = [sys.executable, "-m", "kpl_codec", "demo"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    out = done.stdout
    assert not too_wide(out)
    table = {
        found[1]: tuple(int(number.replace(",", "")) for number in found[2].split())
        for found in re.finditer(r"^  (\S+) +((?:[\d,]+ *){3})$", out, re.MULTILINE)
    }
    assert table["kpl_codec.producer.Producer"] == (1000, 1000, 0)
    assert table["aws_kinesis_agg"] == (1000, 0, 1000)
    put, got, lost = (f"{sum(column):,}" for column in zip(*table.values(), strict=True))
    said = f"Three producers put {put} user records; a KCL consumer gets {got} and drops {lost}."
    picture = (ROOT / "spec/pictures/demo.svg").read_text()
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"<title>{said}</title>" in picture
    assert all(f" {number} " in readme and f">{number}" in picture for number in (put, got, lost))
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
