"""Mutation check: how many small changes to the core do its tests notice?

    python -m fuzz.mutation --directory /somewhere/empty     run; then results and score
    python -m fuzz.mutation --directory ... --show           every survivor, as a diff

Copies the committed files into ``--directory``, mutates the codec, hash keys, shards and placement there
with mutmut, and runs their tests against each mutant, in pure Python (the compiled twin would hide them).
Survivors are explained in fuzz/README.md.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]

#: What is mutated.
MODULES = (
    "frame", "wire", "runtime", "message", "size", "codec",
    "hash_keys", "shards", "placement", "kcl", "deaggregate",
)  # fmt: skip

#: The tests that have to notice.
TESTS = ("tests/core", "tests/spec/test_vectors.py", "tests/spec/test_laws.py")

_SETTINGS = """[mutmut]
source_paths=kpl_codec
only_mutate={modules}
also_copy=
    spec
    fuzz
pytest_add_cli_args_test_selection={tests}
pytest_add_cli_args=
    -x
    -q
    -p
    no:cacheprovider
    --deselect
    tests/core/test_layers.py
    --hypothesis-seed=0
timeout_constant=5.0
"""


def lines(values: list[str]) -> str:
    return "".join(f"\n    {value}" for value in values)


def prepare(directory: Path) -> None:
    """The committed files, and mutmut's settings, in ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=REPOSITORY, check=True, capture_output=True)
    subprocess.run(["tar", "x"], cwd=directory, input=archive.stdout, check=True)
    settings = _SETTINGS.format(
        modules=lines([f"kpl_codec/{module}.py" for module in MODULES]), tests=lines(list(TESTS))
    )
    (directory / "setup.cfg").write_text(settings)


def mutmut(directory: Path, *arguments: str) -> str:
    environment = {**os.environ, "KPL_CODEC_PURE": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "mutmut", *arguments],
        cwd=directory, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="only show the survivors of the last run")
    args = parser.parse_args()
    if not args.show:
        prepare(args.directory)
        print(mutmut(args.directory, "run", "--max-children", str(args.processes))[-2000:])
    listed = re.findall(r"^\s*(\S+): (\w[\w ]*)$", mutmut(args.directory, "results", "--all", "true"), re.M)
    verdicts: dict[str, list[str]] = {}
    for name, verdict in listed:
        verdicts.setdefault(verdict, []).append(name)
    if args.show:
        for name in verdicts.get("survived", []):
            print(mutmut(args.directory, "show", name))
    total = sum(map(len, verdicts.values()))
    noticed = sum(len(verdicts.get(verdict, [])) for verdict in ("killed", "timeout", "segfault"))
    print({verdict: len(names) for verdict, names in verdicts.items()})
    print(f"{noticed} of {total} mutants noticed ({100 * noticed / max(total, 1):.1f} %)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
