"""Imports names of a package on first use, so that each needs only its own extra. Names the missing extra."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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


@contextmanager
def needing_extras(name: str) -> Iterator[None]:
    """Around the imports of ``name``: ModuleNotFoundError says which extra brings what is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        told = f"{name} needs {missing}: install kpl-codec with its extra {EXTRAS[missing]}"
        raise ModuleNotFoundError(told, name=error.name) from error


def lazy_names(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for ``module``, whose names are in the submodules that ``homes`` gives.

    ``__getattr__`` raises AttributeError for other names. It raises ModuleNotFoundError, which names the
    missing extra, where a submodule cannot be imported.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        with needing_extras(f"{module}.{name}"):
            return getattr(import_module(f"{module}.{homes[name]}"), name)

    return get, lambda: sorted([*vars(import_module(module)), *homes])
