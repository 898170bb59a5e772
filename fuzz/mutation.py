"""Mutation check: how many small changes to the core do its tests notice?

    python -m fuzz.mutation --directory /somewhere/empty            all of them; compares the scores
    python -m fuzz.mutation --directory ... --only format.wire      these modules only

Needs mutmut. Copies the committed files into ``--directory`` and lets mutmut write the mutants there.
`fuzz.mutation_probe` then runs the core's tests with each mutant, in a process of its own: first on pure
Python, for compiled code takes the place of much of it; then, with what survived, on the compiled extension.
Writes the names of the survivors to survivors.txt in the directory; `mutmut show NAME` there shows one. Exit
code 1 if the tests notice a smaller part of a folder's mutants than fuzz/mutation_scores.json says. An
interrupted run goes on in the same directory.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
#: By folder: the share of mutants that tests notice, in per cent. `main` fails where it is smaller now.
SCORES = Path(__file__).with_name("mutation_scores.json")
#: Verdicts of mutants that no test notices: some tests call the function, or none does.
OPEN = ("survived", "no test")

#: What is mutated: the core, from below.
FOLDERS = ("format", "shards", "deaggregation", "adapters", "producer")
MODULES = (
    "errors", "aws_errors",
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


def unpack(directory: Path) -> None:
    """Write the committed files into ``directory`` that are not there."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=REPOSITORY, check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        for member in tar:
            if not (directory / member.name).exists():
                tar.extract(member, directory, filter="data")


def prepare(directory: Path) -> None:
    """The committed files and mutmut's settings in ``directory``, the mutants in ``directory``/mutants."""
    directory.mkdir(parents=True, exist_ok=True)
    unpack(directory)
    modules = "".join(f"\n    {path_of(module)}" for module in MODULES)
    (directory / "setup.cfg").write_text(_SETTINGS.format(modules=modules))
    # A pattern that fits no mutant: mutmut writes the mutants, and runs the quickest tests once.
    # It then complains that nothing fits.
    run(directory, "mutmut", "run", "no.such.mutant", stderr=subprocess.DEVNULL)
    unpack(directory / "mutants")
    if built := extension():
        shutil.copy(built, directory / "mutants" / "kpl_codec")


def run(directory: Path, *command: str, stderr: int | None = None, compiled: bool = False) -> None:
    """Run a Python module in ``directory``."""
    pure = "0" if compiled else "1"
    environment = {**os.environ, "KPL_CODEC_PURE": pure, "PYTHONHASHSEED": "0", "PYTHONPATH": str(directory)}
    stdout = subprocess.DEVNULL if stderr else None
    subprocess.run(
        [sys.executable, "-m", *command], cwd=directory, env=environment, stdout=stdout, stderr=stderr
    )


def extension() -> Path | None:
    """The compiled extension of this checkout, where it is built."""
    return next((REPOSITORY / "kpl_codec").glob("_speedups*.so"), None)


def scores(verdicts: dict[str, str]) -> dict[str, float]:
    """The share of noticed mutants, in per cent, of each folder (or module beside the folders)."""
    parts: dict[str, list[bool]] = {}
    for name, verdict in verdicts.items():
        parts.setdefault(name.split(".")[1], []).append(verdict not in OPEN)
    return {part: round(100 * sum(noticed) / len(noticed), 1) for part, noticed in sorted(parts.items())}


def verdicts_in(directory: Path) -> dict[str, str]:
    """Verdicts by mutant of a run: on pure Python, and for what survived that, on the compiled extension."""
    verdicts, again = found(directory / "results.json"), found(directory / "compiled.json")
    open_ones = {name: verdict for name, verdict in verdicts.items() if verdict in OPEN}
    return verdicts | {name: again.get(name, verdict) for name, verdict in open_ones.items()}


def found(path: Path) -> dict[str, str]:
    """Verdicts by mutant, as `fuzz.mutation_probe` wrote them."""
    return json.loads(path.read_text()) if path.exists() else {}


def told(verdicts: list[str]) -> str:
    """How many of some mutants were noticed, and how."""
    ways = [f"{verdicts.count(way)} {way}" for way in ("timeout", "crash") if way in verdicts]
    noticed = sum(verdict not in OPEN for verdict in verdicts)
    return f"{noticed:5} of {len(verdicts):5} noticed" + (f"; of these {', '.join(ways)}" if ways else "")


def main() -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=MODULES, default=list(MODULES))
    parser.add_argument("--seconds", type=float, default=2.0, help="of tests, for each mutant (2)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only one mutant in N (1)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at once (one per core)")
    args = parser.parse_args()
    results, compiled = args.directory / "results.json", args.directory / "compiled.json"
    if not results.exists():
        prepare(args.directory)
    options = ["--seconds", str(args.seconds), "--processes", str(args.processes), "--every", str(args.every)]
    for path in (results, compiled) if extension() else (results,):
        probe = ("fuzz.mutation_probe", *options, str(path.resolve()), *args.only)
        run(args.directory / "mutants", *probe, compiled=path == compiled)
    verdicts = verdicts_in(args.directory)
    for module in args.only:
        some = [verdict for name, verdict in verdicts.items() if name.startswith(f"kpl_codec.{module}.")]
        print(f"{module:28} {told(some)}")
    print(f"{'all':28} {told(list(verdicts.values()))}")
    survivors = sorted(name for name, verdict in verdicts.items() if verdict in OPEN)
    (args.directory / "survivors.txt").write_text("".join(f"{name}\n" for name in survivors))
    if set(args.only) != set(MODULES):
        return 0  # a score is that of a whole folder
    lower = {
        part: (score, now) for part, score in json.loads(SCORES.read_text()).items()
        if (now := scores(verdicts).get(part, 0.0)) < score
    }  # fmt: skip
    for part, (score, now) in lower.items():
        print(f"{part}: {now} % noticed, {SCORES.name} says {score}")
    return 1 if lower else 0


if __name__ == "__main__":
    sys.exit(main())
