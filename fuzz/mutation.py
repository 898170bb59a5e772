"""Mutation check: how many small changes to the core do its tests notice?

    python -m fuzz.mutation --directory /somewhere/empty            all of them; compares survivors
    python -m fuzz.mutation --directory ... --only format.wire      these modules only
    python -m fuzz.mutation --directory ... --show                  the last run's survivors, as diffs
    python -m fuzz.mutation --directory ... --write                 the last run's survivors to survivors.txt

Needs mutmut. Copies the committed files into ``--directory`` and lets mutmut write the mutants there; pure
Python, for the compiled twin would hide them. Each mutant then stands `fuzz.mutation_probe`: the vectors,
fuzzed inputs and the core's tests, in one process that is forked for each mutant. Exit code 1 if one survives
that fuzz/survivors.txt does not name. A run that was interrupted goes on where it was, in the same directory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
SURVIVORS = Path(__file__).with_name("survivors.txt")

#: What is mutated: the core, from below.
FOLDERS = ("format", "shards", "deaggregation", "adapters", "producer")
MODULES = (
    "errors", "backoff",
    *(
        f"{name}.{path.stem}"
        for name in FOLDERS
        for path in sorted((REPOSITORY / "kpl_codec" / name).glob("[a-z]*.py"))
    ),
)  # fmt: skip

_SETTINGS = """[mutmut]
source_paths=kpl_codec
only_mutate={modules}
also_copy=
    spec
    fuzz
pytest_add_cli_args_test_selection=
    tests/spec/test_refusals.py
pytest_add_cli_args=
    -q
    -p
    no:cacheprovider
"""


def path_of(module: str) -> str:
    return f"kpl_codec/{module.replace('.', '/')}.py"


def prepare(directory: Path) -> None:
    """The committed files, and mutmut's settings, in ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=REPOSITORY, check=True, capture_output=True)
    subprocess.run(["tar", "x"], cwd=directory, input=archive.stdout, check=True)
    modules = "".join(f"\n    {path_of(module)}" for module in MODULES)
    (directory / "setup.cfg").write_text(_SETTINGS.format(modules=modules))


def run(directory: Path, *command: str, stderr: int | None = None) -> str:
    """Standard output of a Python module, run in ``directory`` on pure Python."""
    environment = {**os.environ, "KPL_CODEC_PURE": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": str(directory)}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=directory, env=environment, text=True, stdout=subprocess.PIPE,
        stderr=stderr,
    )  # fmt: skip
    return done.stdout


def described(directory: Path, mutant: str) -> str:
    """Module and function, the lines a mutant takes away, and those it puts there: in one line."""
    shown = run(directory, "mutmut", "show", mutant).splitlines()
    diff = [line for line in shown if not line.startswith(("---", "+++"))]
    gone = " ".join(line[1:].strip() for line in diff if line.startswith("-"))
    new = " ".join(line[1:].strip() for line in diff if line.startswith("+"))
    function = mutant.removeprefix("kpl_codec.").rpartition("__mutmut_")[0]
    return f"{function} | {gone} | {new}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=MODULES, default=list(MODULES))
    parser.add_argument("--show", action="store_true", help="only show the survivors of the last run")
    parser.add_argument("--write", action="store_true", help="only write the survivors of the last run")
    args = parser.parse_args()
    results = args.directory / "results.json"
    if not (args.show or args.write):
        if not results.exists():
            prepare(args.directory)
        # A pattern that fits no mutant: mutmut writes the mutants, and runs the quickest tests once.
        # It then complains that nothing fits.
        run(args.directory, "mutmut", "run", "no.such.mutant", stderr=subprocess.DEVNULL)
        run(args.directory / "mutants", "fuzz.mutation_probe", str(results.resolve()), *args.only)
    verdicts: dict[str, str] = json.loads(results.read_text())
    survivors = [name for name, verdict in verdicts.items() if verdict == "survived"]
    if args.show:
        print(*(run(args.directory, "mutmut", "show", name) for name in survivors), sep="\n")
        return 0
    for module in args.only:
        some = [verdict for name, verdict in verdicts.items() if name.startswith(f"kpl_codec.{module}.")]
        noticed = sum(verdict != "survived" for verdict in some)
        print(f"{module:24} {noticed:5} of {len(some):5} noticed")
    print(f"{'all':24} {len(verdicts) - len(survivors):5} of {len(verdicts):5} noticed")
    lines = sorted({described(args.directory, name) for name in survivors})
    if args.write:
        SURVIVORS.write_text("".join(f"{line}\n" for line in lines))
    new = sorted(set(lines) - set(SURVIVORS.read_text().splitlines()))
    print(*(f"survives, and is not in {SURVIVORS.name}: {line}" for line in new), sep="\n")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
