"""Build a Lambda layer: ``python -m kpl_codec.aws_lambda.layer kpl-codec-layer.zip``

The zip has only what a function needs: protobuf, and kpl_codec without Spark, reports, pictures, commands and
test helpers. boto3 is in Lambda's runtime; Powertools has a layer of its own.

For another platform give its name as pip does; then the compiled extension is left out (same results,
slower):

    python -m kpl_codec.aws_lambda.layer layer.zip --platform manylinux2014_aarch64 --python 3.13

    aws lambda publish-layer-version --layer-name kpl-codec --zip-file fileb://layer.zip \\
        --compatible-runtimes python3.13
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
#: The folders that a function may use.
PARTS = (
    "adapters",
    "aws",
    "aws_lambda",
    "compat",
    "deaggregation",
    "findings",
    "format",
    "producer",
    "shards",
    "watch",
)
_IGNORED = shutil.ignore_patterns(
    "__pycache__", "*.pyx", "*.c", "*.h", "*.txt", "_build.py", "node_packages.py"
)
# Zip entries have a time; with a fixed one, equal layers have equal bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


def build(out: Path, *, platform: str | None = None, python: str | None = None) -> int:
    """Write the layer to ``out``; gives its size in bytes.

    ``platform``, ``python``: as pip's ``--platform`` and ``--python-version``; this machine's if None.
    Raises subprocess.CalledProcessError where pip finds no protobuf for them.
    """
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "python"
        shutil.copytree(PACKAGE, root / PACKAGE.name, ignore=_left_out)
        if platform is not None or python is not None:
            for compiled in (root / PACKAGE.name).glob("*.so"):
                compiled.unlink()
        _install("protobuf", root, platform, python)
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as layer:
            for path in sorted(p for p in root.rglob("*") if p.is_file()):
                entry = zipfile.ZipInfo(str(path.relative_to(scratch)), _TIME)
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                layer.writestr(entry, path.read_bytes())
    return out.stat().st_size


def _left_out(folder: str, names: list[str]) -> set[str]:
    at = Path(folder)
    others = {name for name in names if at == PACKAGE and (at / name).is_dir() and name not in PARTS}
    return others | _IGNORED(folder, names)


def _install(distribution: str, root: Path, platform: str | None, python: str | None) -> None:
    """The version that is installed here, for that platform."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--no-deps"]
    command += ["--target", str(root)]
    if platform is not None or python is not None:
        command += ["--only-binary", ":all:"]
    command += ["--platform", platform] if platform else []
    command += ["--python-version", python] if python else []
    subprocess.run([*command, f"{distribution}=={importlib.metadata.version(distribution)}"], check=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kpl_codec.aws_lambda.layer", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("out", type=Path, help="the zip file to write")
    parser.add_argument("--platform", help="as pip names it: manylinux2014_x86_64, manylinux2014_aarch64")
    parser.add_argument("--python", help="the runtime's version: 3.13")
    given = parser.parse_args(arguments)
    size = build(given.out, platform=given.platform, python=given.python)
    sys.stdout.write(f"{given.out}: {size:,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
