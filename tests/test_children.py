"""The processes that the library starts run no code of the working folder that their parent would not run:
captures may lie there (SECURITY.md). Law: in a folder that has a module of every name that Python and the
library import, each child does its work, and none of these modules is run."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "kpl_codec"

#: By the module that starts a child: a program that has it do its work. (`test_layers` knows all modules.)
CHILDREN = {
    "validate/local.py": """
from kpl_codec.captures import Location
from kpl_codec.shards.shard_map import ShardMap
from kpl_codec.validate.local import _Worker
from kpl_codec.validate.task import Job, make_folders, work_folder
output = Location(FOLDER)
make_folders(work_folder(output))
worker = _Worker(Job([[]], ShardMap.from_json(SHARDS), output))
worker.run(0)
worker.kill()
""",
    "testing/local_kinesis.py": """
from kpl_codec.testing.local_kinesis import LocalKinesis
with LocalKinesis() as server:
    assert server.client().list_streams()["StreamNames"] == []
""",
    "spark/session.py": """
from kpl_codec.spark.session import local_session
session = local_session(cores=1)
frame = session.range(3).mapInArrow(lambda batches: batches, "id long")
assert frame.count() == 3
from kpl_codec.spark import KinesisDataSource
session.dataSource.register(KinesisDataSource)
session.read.format("kpl-kinesis").options(stream="orders", region="us-east-1").load()
session.stop()
""",
}
#: As Python 3.10 does it, which knows no PYTHONSAFEPATH.
CHILDREN["spark/session.py, 3.10"] = f"""
import kpl_codec.spark.session
kpl_codec.spark.session._HAS_SAFE_PATH = False
{CHILDREN["spark/session.py"]}"""
SHARDS = """{"Shards": [{"ShardId": "shardId-000000000000",
 "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "340282366920938463463374607431768211455"},
 "SequenceNumberRange": {"StartingSequenceNumber": "5"}}]}"""


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module of Python for each name, and some of Node; each that is run writes its name
    into `ran`."""
    folder = tmp_path_factory.mktemp("poisoned")
    names = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions(), "sitecustomize"}
    for name in names:
        if name.isidentifier():
            (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write('{name}\\n')\n")
    for name in ("fs", "net", "preload", "main"):
        (folder / f"{name}.js").write_text(
            f"require('fs').appendFileSync({str(folder / 'ran')!r}, '{name}.js\\n')\n"
        )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("module", CHILDREN)
def test_a_child_runs_nothing_of_the_working_folder(module: str, poisoned: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"FOLDER, SHARDS = {str(tmp_path / 'out')!r}, {SHARDS!r}\n{CHILDREN[module]}")
    path = os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(
        [sys.executable, str(program)],  # its folder is in the path, the working folder is not
        cwd=poisoned, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    ran = (poisoned / "ran").read_text() if (poisoned / "ran").exists() else ""
    (poisoned / "ran").unlink(missing_ok=True)
    assert (run.returncode, ran) == (0, ""), run.stderr[-2000:]
