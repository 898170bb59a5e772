"""Mutation check: how many small changes to the core do its tests notice?

    python -m fuzz.mutation --directory /somewhere/empty            all of them; compares survivors
    python -m fuzz.mutation --directory ... --only format.wire      these modules only
    python -m fuzz.mutation --directory ... --again --seconds 5     its survivors again, with HEAD's tests
    python -m fuzz.mutation --directory ... --show                  only compare the last run's survivors
    python -m fuzz.mutation --directory ... --write                 write them to survivors.txt

Needs mutmut. Copies the committed files into ``--directory`` and lets mutmut write the mutants there.
`fuzz.mutation_probe` then runs the core's tests with each mutant, in one process that is forked for each:
first on pure Python, for compiled code takes the place of much of it; then, with what survived, on the
compiled extension, for some code is called by that alone. Exit code 1 if one survives that fuzz/survivors.txt
does not name. A run that was interrupted goes on where it was, in the same directory.
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
SURVIVORS = Path(__file__).with_name("survivors.txt")
#: Verdicts of mutants that no test notices: some tests call the function, or none does.
OPEN = ("survived", "no test")

#: What is mutated: the core, from below.
FOLDERS = ("format", "shards", "deaggregation", "adapters", "producer")
MODULES = (
    "errors", "backoff", "aws_errors",
    *(
        f"{name}.{path.stem}"
        for name in FOLDERS
        for path in sorted((REPOSITORY / "kpl_codec" / name).glob("[a-z]*.py"))
    ),
)  # fmt: skip

#: Functions that only the compiled extension's presence brings to life.
_GLUE = (
    "_read", "_certain_and_others", "CodedShards", "Judgeǁcoded", "_partition_key_hashes", "Openerǁopen",
    "template", "_most_are_plain",
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
REST = "A rule, bound, offset, count or order that the tests of half a CPU second do not hold"

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


def named() -> list[str]:
    """The survivors that survivors.txt names."""
    return [line for line in SURVIVORS.read_text().splitlines() if not line.startswith("# ")]


def write(lines: Iterable[str]) -> None:
    """Name these survivors, grouped by why they survive."""
    groups: dict[str, list[str]] = {heading: [] for heading in [*REASONS, REST]}
    for line in sorted(set(lines)):
        function, gone, new = line.split(" | ", 2)
        fits = (heading for heading, applies in REASONS.items() if applies(function, gone, new))
        groups[next(fits, REST)].append(line)
    with SURVIVORS.open("w") as out:
        for heading, some in groups.items():
            out.write("".join(f"{line}\n" for line in (f"# {heading}: {len(some)}", *some)))


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
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=MODULES, default=list(MODULES))
    parser.add_argument("--again", action="store_true", help="survivors only, with the tests of HEAD")
    parser.add_argument("--seconds", type=float, default=0.5, help="of tests, for each mutant (0.5)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at once (one per core)")
    parser.add_argument("--show", action="store_true", help="run nothing")
    parser.add_argument("--write", action="store_true", help="run nothing; write the survivors")
    args = parser.parse_args()
    results, compiled = args.directory / "results.json", args.directory / "compiled.json"
    if not (args.show or args.write):
        if not results.exists():
            prepare(args.directory)
        if args.again:
            unpack(args.directory / "mutants", over=["tests/", "fuzz/", "spec/"])
        options = ["--seconds", str(args.seconds), "--processes", str(args.processes)]
        options += ["--again"] if args.again else []
        for path in (results, compiled) if extension() else (results,):
            probe = ("fuzz.mutation_probe", *options, str(path.resolve()), *args.only)
            run(args.directory / "mutants", *probe, compiled=path == compiled)
    verdicts = found(results)
    again = found(compiled)
    verdicts |= {name: again.get(name, verdict) for name, verdict in verdicts.items() if verdict in OPEN}
    survivors = [name for name, verdict in verdicts.items() if verdict in OPEN]
    for module in args.only:
        some = [verdict for name, verdict in verdicts.items() if name.startswith(f"kpl_codec.{module}.")]
        print(f"{module:28} {told(some)}")
    print(f"{'all':28} {told(list(verdicts.values()))}")
    lines = sorted({described(args.directory, name) for name in survivors})
    if args.write:
        # Those of modules that were not run stay.
        ran = {name.removeprefix("kpl_codec.").rpartition(".")[0] for name in verdicts}
        lines += [line for line in named() if line.split(" | ")[0].rpartition(".")[0] not in ran]
        write(lines)
    new = sorted(set(lines) - set(named()))
    print(*(f"survives, and is not in {SURVIVORS.name}: {line}" for line in new), sep="\n")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
