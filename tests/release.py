"""Tries on this machine what a release would publish: `python -m tests.release`. It publishes nothing.

Builds the sdist of what is committed, and of it the wheel. In fresh environments, without a checkout, it
installs the sdist without a compiler and the wheel with each extra, and uses what each is for. Dependencies
come in their newest versions from the package index that uv knows; `testing` and `demo` need npm. Exit
status 1 if a step fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[1]
UV = sys.executable, "-m", "uv"
#: Run in each environment: the codec works, and is compiled or is not.
CHECK = """
import kpl_codec as kpl
from kpl_codec.base.compiled import speedups
data = kpl.encode([kpl.UserRecord("key", b"one"), kpl.UserRecord("key", b"two")])
assert [record.data for record in kpl.decode(data)] == [b"one", b"two"]
assert (speedups is not None) == {compiled}
{use}
"""
#: By extra: Python that uses what it is for.
USES = {
    "aws": "from kpl_codec.producer import Producer; Producer('orders').close()",
    "aio": "import aiobotocore.session",
    "spark": "import pyarrow; from kpl_codec.arrow import deaggregate_table\n"
    "assert deaggregate_table(pyarrow.table({'data': [data]})).table.num_rows == 2",
    "spark-local": "from kpl_codec.spark import deaggregate, local_session\n"
    "df = local_session().createDataFrame([(data,)], 'data binary'); assert deaggregate(df).count() == 2",
    "otel": "from kpl_codec.watch.exporters import OpenTelemetryExporter; OpenTelemetryExporter('a')",
    "testing": "from kpl_codec.testing import strategies; strategies.aggregated_records()",
    "zstd": "from kpl_codec.format.compression import compress; compress(bytes(999), 'zstd')",
}
#: By extra: a command that does.
COMMANDS = {
    "cli": """
echo '{"Shards": [{"ShardId": "shardId-0", "SequenceNumberRange": {"StartingSequenceNumber": "1"},
  "HashKeyRange": {"StartingHashKey": "0",
    "EndingHashKey": "340282366920938463463374607431768211455"}}]}' > shards.json
echo '{"ShardId": "shardId-0", "Records": [{"SequenceNumber": "1", "PartitionKey": "a", "Data": "eA=="}]}' |
  kpl-codec validate - --shards shards.json --output out --fail-on critical""",
    "demo": "kpl-codec demo",
    "all": "kpl-codec demo",
}


def try_install(file: Path, *, extra: str = "", **environment: str) -> None:
    """Install ``file`` with an extra, and use it. Raises CalledProcessError."""
    installed = ["--isolated", "--no-project", "--with", f"kpl-codec[{extra}] @ {file.as_uri()}"]
    check = CHECK.format(compiled="CC" not in environment, use=USES.get(extra, ""))
    for command in (["python", "-c", check], ["bash", "-ec", COMMANDS.get(extra, "kpl-codec --version")]):
        run = [*UV, "run", "-q", "--python", sys.executable, *installed, *command]
        subprocess.run(run, cwd=file.parent, env={**os.environ, **environment}, check=True)
    print(f"installed and used {file.name}[{extra}]", flush=True)


def main() -> None:
    os.environ.pop("PYTHONPATH", None)  # the environments see only what is installed in them
    with tempfile.TemporaryDirectory(prefix="kpl-codec-release-") as scratch:
        clone, built = f"{scratch}/clone", Path(scratch, "built")
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        subprocess.run([*UV, "build", "-q", "--python", sys.executable, "-o", built, clone], check=True)
        (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
        try_install(sdist, CC="no-such-compiler")
        for extra in tomllib.loads(Path(clone, "pyproject.toml").read_text())["project"][
            "optional-dependencies"
        ]:
            try_install(wheel, extra=extra)


if __name__ == "__main__":
    main()
