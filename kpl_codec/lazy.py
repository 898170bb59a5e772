"""Imports names of a package on first use, so that each name needs only its own extra."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

#: The extra of kpl-codec that installs a package.
EXTRAS: dict[str, str] = {
    "aiobotocore": "aio",
    "aws_kinesis_agg": "demo",
    "boto3": "aws",
    "botocore": "aws",
    "hypothesis": "testing",
    "numpy": "spark",
    "pandas": "spark",
    "pyarrow": "spark",
    "pyspark": "spark-local",
    "prometheus_client": "watch",
    "rich": "cli",
}


def lazy_names(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for ``module``, whose names are in the submodules that ``homes`` gives.

    ``__getattr__`` raises AttributeError for other names. It raises ModuleNotFoundError, which names the
    missing extra, where a submodule cannot be imported.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            return getattr(import_module(f"{module}.{homes[name]}"), name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in EXTRAS:
                raise
            told = f"{module}.{name} needs {missing}: install kpl-codec with its extra {EXTRAS[missing]}"
            raise ModuleNotFoundError(told, name=error.name) from error

    return get, lambda: sorted([*vars(import_module(module)), *homes])
