"""Mutation check: how many small changes to the core do its tests notice?

    python -m fuzz.mutation --directory /somewhere/empty            all of them; compares the scores
    python -m fuzz.mutation --directory ... --only format.wire      these modules only
    python -m fuzz.mutation --directory ... --again --seconds 9     its survivors again, with HEAD's tests
    python -m fuzz.mutation --directory ... --show                  run nothing, only tell of the last run
    python -m fuzz.mutation --directory ... --than EARLIER    survivors that this run did not have

Needs mutmut. Copies the committed files into ``--directory`` and lets mutmut write the mutants there.
`fuzz.mutation_probe` then runs the core's tests with each mutant, in one process that is forked for each:
first on pure Python, for compiled code takes the place of much of it; then, with what survived, on the
compiled extension, for some code is called by that alone. Writes the survivors, grouped by why they
survive, to survivors.txt in the directory. Exit code 1 if the tests notice a smaller part of a folder's
mutants than fuzz/mutation_scores.json says. A run that was interrupted goes on where it was, in the same
directory.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable
from functools import cache
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

#: Functions that only the compiled extension's presence brings to life.
_GLUE = (
    "_read", "CodedShards", "Judgeǁcoded", "Openerǁopen",
    "_most_are_plain",
)  # fmt: skip


def _letters(text: str) -> str:
    return text.replace("XX", "").casefold()


#: Why a mutant may survive: a heading, and whether it applies to a function, the line before and the new one.
REASONS: dict[str, Callable[[str, str, str], bool]] = {
    "Letters of a text for people, or of a name that no test reads": (
        lambda function, gone, new: _letters(gone) == _letters(new)
    ),
    "Calls into compiled code: pure Python does not run them": (
        lambda function, gone, new: "speedups" in gone or any(name in function for name in _GLUE)
    ),
    "Runs when the module is imported, before a mutant is chosen": (
        lambda function, gone, new: function.endswith(("__init_subclass__", "schema.x__build"))
    ),
    "Another value of the same meaning: a flag, a default that is overwritten, a check that zip makes": (
        lambda function, gone, new: (
            "usedforsecurity" in gone
            or "strict=" in gone
            or new.replace('""', "None") == gone
            or new.replace("None", "False") == gone
        )
    ),
    "What an error or an account tells": (
        lambda function, gone, new: (
            "raise " in gone or "reason" in gone or "Node(" in gone or "__repr__" in function
        )
    ),
}
REST = "A rule, bound, offset, count or order that the tests of two CPU seconds do not hold"

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


def unpack(directory: Path, *, over: Iterable[str] = (), missing: bool = False) -> None:
    """Write committed files into ``directory``: those under ``over``; with ``missing`` also the absent."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=REPOSITORY, check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        for member in tar:
            absent = missing and not (directory / member.name).exists()
            if absent or member.name.startswith(tuple(over)):
                tar.extract(member, directory, filter="data")


def prepare(directory: Path) -> None:
    """The committed files and mutmut's settings in ``directory``, the mutants in ``directory``/mutants."""
    directory.mkdir(parents=True, exist_ok=True)
    unpack(directory, over=[""])
    modules = "".join(f"\n    {path_of(module)}" for module in MODULES)
    (directory / "setup.cfg").write_text(_SETTINGS.format(modules=modules))
    # A pattern that fits no mutant: mutmut writes the mutants, and runs the quickest tests once.
    # It then complains that nothing fits.
    run(directory, "mutmut", "run", "no.such.mutant", stderr=subprocess.DEVNULL)
    unpack(directory / "mutants", missing=True)
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


@cache
def functions(path: Path) -> dict[str, list[str]]:
    """The lines of every function that mutmut wrote into a module, by name; the names are taken out."""
    text = path.read_text()
    lines = text.splitlines()
    return {
        node.name: [
            re.sub(r"__mutmut_(orig|\d+)\b", "", line).strip()
            for line in lines[node.lineno - 1 : node.end_lineno]
        ]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "__mutmut_" in node.name
    }


def described(directory: Path, mutant: str) -> str:
    """Module and function, the lines a mutant takes away, and those it puts there: in one line."""
    module, _, name = mutant.removeprefix("kpl_codec.").rpartition(".")
    function = name.rpartition("__mutmut_")[0]
    there = functions(directory / "mutants" / path_of(module))
    diff = [
        line
        for line in difflib.unified_diff(there[f"{function}__mutmut_orig"], there[name], n=0, lineterm="")
        if not line.startswith(("---", "+++", "@@"))
    ]
    gone = " ".join(line[1:] for line in diff if line.startswith("-"))
    new = " ".join(line[1:] for line in diff if line.startswith("+"))
    return f"{module}.{function} | {gone} | {new}"


def grouped(lines: Iterable[str]) -> str:
    """Descriptions of survivors, grouped by why they survive."""
    groups: dict[str, list[str]] = {heading: [] for heading in [*REASONS, REST]}
    for line in sorted(set(lines)):
        function, gone, new = line.split(" | ", 2)
        fits = (heading for heading, applies in REASONS.items() if applies(function, gone, new))
        groups[next(fits, REST)].append(line)
    headed = ((f"# {heading}: {len(some)}", *some) for heading, some in groups.items())
    return "".join(f"{line}\n" for group in headed for line in group)


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


def survivors_in(directory: Path) -> list[str]:
    """Descriptions of the survivors of a run."""
    open_ones = (name for name, verdict in verdicts_in(directory).items() if verdict in OPEN)
    return sorted({described(directory, name) for name in open_ones})


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
    parser.add_argument("--again", action="store_true", help="survivors only, with the tests of HEAD")
    parser.add_argument("--seconds", type=float, default=2.0, help="of tests, for each mutant (2)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only one mutant in N (1)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at once (one per core)")
    parser.add_argument("--show", action="store_true", help="run nothing")
    parser.add_argument("--than", type=Path, metavar="DIRECTORY", help="of an earlier run")
    args = parser.parse_args()
    results, compiled = args.directory / "results.json", args.directory / "compiled.json"
    if not args.show:
        if not results.exists():
            prepare(args.directory)
        if args.again:
            unpack(args.directory / "mutants", over=["tests/", "fuzz/", "spec/"])
        options = ["--seconds", str(args.seconds), "--processes", str(args.processes)]
        options += ["--every", str(args.every)]
        options += ["--again"] if args.again else []
        for path in (results, compiled) if extension() else (results,):
            probe = ("fuzz.mutation_probe", *options, str(path.resolve()), *args.only)
            run(args.directory / "mutants", *probe, compiled=path == compiled)
    verdicts = verdicts_in(args.directory)
    for module in args.only:
        some = [verdict for name, verdict in verdicts.items() if name.startswith(f"kpl_codec.{module}.")]
        print(f"{module:28} {told(some)}")
    print(f"{'all':28} {told(list(verdicts.values()))}")
    survivors = survivors_in(args.directory)
    (args.directory / "survivors.txt").write_text(grouped(survivors))
    if args.than:
        new = sorted(set(survivors) - set(survivors_in(args.than)))
        print(*(f"new survivor: {line}" for line in new), sep="\n")
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
