"""Builds the sdist and the wheel, and installs them in fresh environments: `python -m tests.packaging`.

For every Python 3.10 to 3.13 found on this machine: an sdist and a wheel are built in a clean folder, with a
C compiler and without one; the base install and each extra go into an environment of their own, are imported
and used. Prints one line each: what was installed, its size on disk, the import time, whether it is compiled.

    python -m tests.packaging                      every Python found, the base install and `all`
    python -m tests.packaging --extras cli aws     these extras as well
    python -m tests.packaging --extras EACH        every extra (needs some GB and half an hour)

Exit status 1 if one of them fails. Needs the package index; not part of the test command.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
#: Run in the fresh environment: does the codec work, is it compiled, how long does the import take?
CHECK = """
import time
started = time.perf_counter()
import kpl_codec as kpl
elapsed = time.perf_counter() - started
from kpl_codec.compiled import speedups
data = kpl.encode([kpl.UserRecord("key", b"one"), kpl.UserRecord("key", b"two")])
assert [record.data for record in kpl.decode(data)] == [b"one", b"two"]
print(f"{elapsed * 1000:.0f} {'compiled' if speedups is not None else 'pure'}")
"""


def pythons() -> dict[str, str]:
    """The interpreters found, by version: on PATH, and beside the one that runs this."""
    folders = [*os.environ.get("PATH", "").split(os.pathsep)]
    folders += [str(path) for path in Path(sys.base_prefix).parent.glob("3.*/bin")]
    found = {}
    for version in VERSIONS:
        for folder in folders:
            python = Path(folder) / f"python{version}"
            works = (
                python.exists()
                and not subprocess.run(
                    [python, "-c", "import venv, ensurepip"], capture_output=True, check=False
                ).returncode
            )
            if works:
                found[version] = str(python)
                break
    return found


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What the command prints. Raises SystemExit with its errors if it fails."""
    ran = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{ran.stdout[-2000:]}{ran.stderr[-4000:]}")
    return ran.stdout


def environment(python: str, folder: Path) -> Path:
    """A fresh virtual environment's interpreter."""
    run(python, "-m", "venv", folder, cwd=folder.parent)
    return folder / "bin" / "python"


def site_bytes(python: Path) -> int:
    """Bytes of all installed packages but pip and setuptools."""
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site = Path(run(python, "-c", code, cwd=python.parent).strip())
    return sum(
        path.stat().st_size
        for path in site.rglob("*")
        if path.is_file() and not path.relative_to(site).parts[0].startswith(("pip", "setuptools"))
    )


def try_install(python: str, what: str, source: Path, scratch: Path, *, compiler: bool) -> str:
    """Install ``source`` and use it; one line about it."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    inside = environment(python, folder / "venv")
    settings = {} if compiler else {"CC": "no-such-compiler"}
    run(inside, "-m", "pip", "install", "-q", "-c", ROOT / "requirements.lock", what, cwd=folder, **settings)
    milliseconds, kind = run(inside, "-c", CHECK, cwd=folder).split()
    if (kind == "compiled") != compiler:
        raise SystemExit(f"{what}: {kind}, with{'' if compiler else 'out'} a compiler")
    size = site_bytes(inside) / 1e6
    shutil.rmtree(folder)
    return f"{source.name:50} {size:8.1f} MB  import {milliseconds:>4} ms  {kind}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.packaging", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--extras", nargs="*", default=["all"], metavar="EXTRA")
    parser.add_argument("--pythons", nargs="*", default=list(VERSIONS), metavar="VERSION")
    args = parser.parse_args()
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras = [name for name in known if name != "dev"] if args.extras == ["EACH"] else args.extras
    found = {version: path for version, path in pythons().items() if version in args.pythons}
    if not found:
        raise SystemExit("no Python 3.10 to 3.13 with venv found")
    with tempfile.TemporaryDirectory(prefix="kpl-codec-packaging-") as name:
        scratch = Path(name)
        clean = scratch / "source"
        run("git", "clone", "-q", ROOT, clean, cwd=scratch)
        for version, python in found.items():
            dist = scratch / f"dist-{version}"
            builder = environment(python, scratch / f"builder-{version}")
            run(builder, "-m", "pip", "install", "-q", "build", cwd=scratch)
            run(builder, "-m", "build", "-o", dist, clean, cwd=scratch)
            (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
            print(f"Python {version}: {sdist.name} {sdist.stat().st_size / 1e6:.1f} MB, {wheel.name} "
                  f"{wheel.stat().st_size / 1e6:.1f} MB")  # fmt: skip
            print(" ", try_install(python, str(wheel), wheel, scratch, compiler=True), flush=True)
            print(" ", try_install(python, str(sdist), sdist, scratch, compiler=False), flush=True)
            for extra in extras:
                print(f"  [{extra}]", end=" ")
                print(try_install(python, f"{wheel}[{extra}]", wheel, scratch, compiler=True), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
