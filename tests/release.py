"""Walks through a release on this machine: `python -m tests.release`. It publishes nothing.

Builds the sdist and the wheel of what is committed, and looks at what is in them. Then, in fresh environments
and without a checkout:

1. installs the wheel and runs the `test-command` of `[tool.cibuildwheel]`, as the workflow *Release* does
   with the wheel of each Python;
2. makes the notes and the archive of the release on GitHub by the workflow's own lines;
3. installs the wheel, the sdist without a compiler, and the wheel with each extra, and uses what each is for;
4. runs README's first command, `kpl-codec demo`, with the package installed by its name from a folder;
5. unpacks the sdist, and runs README's test command.

What the packages depend on comes from the package index that pip knows; `testing` and `demo` need npm. Takes
about half an hour and some GB. Exit status 1 if a step fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

import tomllib
import yaml

from .guides.blocks import blocks

ROOT = Path(__file__).parents[1]
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
    "aio": "from kpl_codec.producer import AsyncProducer; AsyncProducer('orders')",
    "spark": "import pyarrow; from kpl_codec.arrow import deaggregate_table\n"
    "assert deaggregate_table(pyarrow.table({'data': [data]})).table.num_rows == 2",
    "spark-local": "from kpl_codec.spark import deaggregate, local_session\n"
    "df = local_session().createDataFrame([(data,)], 'data binary'); assert deaggregate(df).count() == 2",
    "otel": "from kpl_codec.watch.exporters import OpenTelemetryExporter; OpenTelemetryExporter('a')",
    "testing": "from kpl_codec.testing import strategies; strategies.aggregated_records()",
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


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What the command prints. Raises SystemExit with its errors if it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def environment(scratch: Path) -> Path:
    """The interpreter of a fresh virtual environment."""
    folder = Path(tempfile.mkdtemp(dir=scratch)) / "venv"
    run(sys.executable, "-m", "venv", folder, cwd=scratch)
    return folder / "bin" / "python"


def extras_of(wheel: Path) -> list[str]:
    """The extras that the wheel declares."""
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        return re.findall(r"^Provides-Extra: (.*)$", packed.read(name).decode(), re.MULTILINE)


def try_install(source: Path, scratch: Path, *, extra: str = "", compiler: bool = True) -> None:
    """Install ``source`` with an extra, in the versions of the lock, and use it."""
    inside = environment(scratch)
    folder = inside.parents[2]
    # With hashes pip takes nothing that has none, and so no wheel built here.
    versions = folder / "constraints.txt"
    versions.write_text(re.sub(r" \\\n +--hash=\S+", "", (ROOT / "requirements.lock").read_text()))
    settings = {} if compiler else {"CC": "no-such-compiler"}
    what = f"{source}[{extra}]" if extra else str(source)
    run(inside, "-m", "pip", "install", "-q", "-c", versions, what, cwd=folder, **settings)
    run(inside, "-c", CHECK.format(compiled=compiler, use=USES.get(extra, "")), cwd=folder)
    path = f"{inside.parent}{os.pathsep}{os.environ['PATH']}"
    run("bash", "-ec", COMMANDS.get(extra, "kpl-codec --version"), cwd=folder, PATH=path)


def commands() -> tuple[str, str]:
    """README's two commands: its demo, its tests."""
    texts = [block.text for block in blocks((ROOT / "README.md").read_text()) if block.language == "sh"]
    demo, tests = (text.replace("\\\n", "").strip() for text in texts if text.startswith("python3 -m venv"))
    return demo, tests


def check_contents(sdist: Path, wheel: Path, source: Path) -> None:
    """The sdist has what git knows; the wheel has the package and the extension, not its sources."""
    known = {*run("git", "ls-files", cwd=source).splitlines(), "PKG-INFO", "setup.cfg"}
    with tarfile.open(sdist) as packed:
        names = {one.name.partition("/")[2] for one in packed if not one.isdir()}
    names = {name for name in names if ".egg-info/" not in name}
    if names != known:
        raise SystemExit(f"the sdist: not of git {sorted(names - known)}, lacking {sorted(known - names)}")
    with zipfile.ZipFile(wheel) as packed_wheel:
        listed = packed_wheel.namelist()
    sources = (".pyx", ".pxi", ".c", ".h")
    odd = [name for name in listed if not name.startswith("kpl_codec") or Path(name).suffix in sources]
    if odd or not any(name.startswith("kpl_codec/_speedups.") for name in listed):
        raise SystemExit(f"the wheel has no extension, or has {odd}")


def try_wheel(wheel: Path, source: Path, scratch: Path) -> str:
    """What [tool.cibuildwheel] does with each wheel, with that of this Python."""
    settings = tomllib.loads((source / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    inside = environment(scratch)
    folder = inside.parents[2]
    needed = f"{wheel}[{','.join(settings['test-extras'])}]", *settings["test-requires"]
    run(inside, "-m", "pip", "install", "-q", *needed, cwd=folder)
    for name in settings["test-sources"]:
        target = folder / "empty" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (source / name).is_dir() else shutil.copy)(source / name, target)
    path = f"{inside.parent}{os.pathsep}{os.environ['PATH']}"
    command = settings["test-command"]
    printed = run("bash", "-ec", command, cwd=folder / "empty", PATH=path, **settings["test-environment"])
    return f"{wheel.name}, {command}: {printed.strip().splitlines()[-1]}"


def try_github_release(scratch: Path) -> str:
    """Run the lines of the workflow's job that make the release's notes and archive, for this version."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    (step,) = (one for one in workflow["jobs"]["github"]["steps"] if one.get("name") == "Notes and vectors")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    clone = scratch / "github"
    run("git", "clone", "-q", ROOT, clone, cwd=scratch)
    run("bash", "-ec", step["run"], cwd=clone, GITHUB_REF_NAME=f"v{version}")
    notes = (clone / "notes.md").read_text()
    with tarfile.open(next(clone.glob("kpl-codec-vectors-*.tar.gz"))) as packed:
        vectors = [name for name in packed.getnames() if name.endswith(".json")]
    if len(notes) < 100 or len(vectors) < 10:
        raise SystemExit(
            f"the release on GitHub: {len(notes)} characters of notes, {len(vectors)} vector files"
        )
    return f"the release on GitHub: {len(notes)} characters of notes, {len(vectors)} files of vectors"


def main() -> None:
    os.environ.pop("PYTHONPATH", None)  # the environments see only what is installed in them
    started = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - started:5.0f} s  {what}", flush=True)

    with tempfile.TemporaryDirectory(prefix="kpl-codec-release-") as name:
        scratch = Path(name)
        clean, built = scratch / "source", scratch / "built"
        run("git", "clone", "-q", ROOT, clean, cwd=scratch)
        builder = environment(scratch)
        run(builder, "-m", "pip", "install", "-q", "build", cwd=scratch)
        run(builder, "-m", "build", "-o", built, clean, cwd=scratch)
        (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
        sizes = [f"{file.name} ({file.stat().st_size / 1e6:.2f} MB)" for file in (sdist, wheel)]
        say(f"built {' and '.join(sizes)}")
        check_contents(sdist, wheel, clean)
        say(try_wheel(wheel, clean, scratch))
        say(try_github_release(scratch))
        try_install(wheel, scratch)
        try_install(sdist, scratch, compiler=False)
        for extra in extras_of(wheel):
            try_install(wheel, scratch, extra=extra)
            say(f"installed and used [{extra}]")
        demo, tests = commands()
        named = demo.replace('".[demo]"', f'--find-links {built} "kpl-codec[demo]"')
        (scratch / "empty").mkdir()
        say(f"{named}\n\n{run('bash', '-ec', named, cwd=scratch / 'empty')}")
        with tarfile.open(sdist) as packed:
            packed.extractall(scratch, filter="data")
        run("bash", "-ec", tests, cwd=scratch / sdist.name.removesuffix(".tar.gz"))
        say(tests)


if __name__ == "__main__":
    main()
