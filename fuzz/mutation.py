"""Mutation check: how many small changes to the core do its tests notice?

    python -m fuzz.mutation --directory /somewhere/empty               run; then results and score
    python -m fuzz.mutation --directory ... --only wire shards         these modules only
    python -m fuzz.mutation --directory ... --show                     every survivor, as a diff

Copies the committed files into ``--directory`` and lets mutmut mutate the codec, hash keys, shards and
placement there; pure Python, for the compiled twin would hide them. Then, for each mutant, first
`fuzz.mutation_probe` (the vectors and a few hundred fuzzed inputs, in one process, forked for each mutant),
and pytest for those that it does not notice. Survivors are explained in fuzz/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]

#: What is mutated.
MODULES = (
    "frame", "wire", "runtime", "message", "size", "codec",
    "hash_keys", "shards", "placement", "kcl", "deaggregate",
)  # fmt: skip

NOTICED = ("killed", "timeout", "segfault")

#: The tests that have to notice.
TESTS = (
    "tests/format",
    "tests/deaggregation",
    "tests/shards/test_shard_map.py",
    "tests/shards/test_placement.py",
    "tests/spec/test_vectors.py",
    "tests/spec/test_laws.py",
    "tests/spec/test_refusals.py",
)

_SETTINGS = """[mutmut]
source_paths=kpl_codec
only_mutate={modules}
also_copy=
    spec
    fuzz
    conftest.py
pytest_add_cli_args_test_selection={tests}
pytest_add_cli_args=
    -x
    -q
    -p
    no:cacheprovider
    --deselect
    tests/test_layers.py
    --hypothesis-seed=0
    --hypothesis-profile=mutation
timeout_constant=5.0
"""

#: The vectors notice most mutants at once; the laws need not run at length against each.
_CONFTEST = """from hypothesis import settings
settings.register_profile("mutation", max_examples=25, deadline=None, derandomize=True, database=None)
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
    (directory / "conftest.py").write_text(_CONFTEST)


def mutmut(directory: Path, *arguments: str) -> str:
    environment = {**os.environ, "KPL_CODEC_PURE": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "mutmut", *arguments],
        cwd=directory, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.stdout


def probe(directory: Path, sample: int, modules: list[str]) -> dict[str, str]:
    """What the quick probe says of each mutant."""
    environment = {**os.environ, "KPL_CODEC_PURE": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.mutation_probe", str(sample), *modules],
        cwd=directory / "mutants", env=environment, text=True, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def by_tests(directory: Path, mutant: str) -> str:
    """What the tests say of one mutant."""
    environment = {**os.environ, "KPL_CODEC_PURE": "1", "PYTHONHASHSEED": "0", "MUTANT_UNDER_TEST": mutant}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "not layers",
        "--hypothesis-profile=mutation",
        *TESTS,
    ]
    try:
        done = subprocess.run(
            command, cwd=directory / "mutants", env=environment, capture_output=True, timeout=600
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    return "survived" if done.returncode == 0 else "killed"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=MODULES, default=list(MODULES))
    parser.add_argument("--sample", type=int, default=10**9, help="only so many mutants of each module")
    parser.add_argument("--show", action="store_true", help="only show the survivors of the last run")
    args = parser.parse_args()
    results = args.directory / "results.json"
    if not args.show:
        prepare(args.directory)
        # A pattern that fits no mutant: mutmut writes the mutants and collects which test uses what.
        mutmut(args.directory, "run", "no.such.mutant")
        verdicts = probe(args.directory, args.sample, args.only)
        unnoticed = [name for name, verdict in verdicts.items() if verdict == "survived"]
        if unnoticed and by_tests(args.directory, "") != "survived":
            parser.error("the tests fail without a mutant: nothing they say would mean anything")
        verdicts.update({name: by_tests(args.directory, name) for name in unnoticed})
        results.write_text(json.dumps(verdicts, indent=1))
    verdicts = json.loads(results.read_text())
    if args.show:
        for name, verdict in verdicts.items():
            if verdict not in NOTICED:
                print(f"# {name}: {verdict}\n{mutmut(args.directory, 'show', name)}")
    modules = sorted({name.split(".")[1] for name in verdicts})
    for module in [*modules, ""]:
        some = [verdict for name, verdict in verdicts.items() if name.startswith(f"kpl_codec.{module}")]
        noticed = sum(verdict in NOTICED for verdict in some)
        print(
            f"{module or 'all':12} {noticed:5} of {len(some):5} noticed  {100 * noticed / len(some):5.1f} %"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
