"""Imports the names of a package on first use, so that a name needs only the extra of its own module; an
error names a missing extra."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

#: The extras of kpl-codec that install a package; the first one installs the fewest others.
EXTRAS: dict[str, tuple[str, ...]] = {
    "aiobotocore": ("aio",),
    "argcomplete": ("cli", "demo", "watch"),
    "aws_kinesis_agg": ("demo",),
    "boto3": ("aws", "demo", "watch"),
    "botocore": ("aws", "demo", "watch"),
    "fastavro": ("avro",),
    "hypothesis": ("testing", "demo"),
    "jinja2": ("cli", "demo", "watch"),
    "numpy": ("spark", "cli", "demo", "watch"),
    "opentelemetry": ("otel",),
    "pandas": ("spark", "spark-local"),
    "pyarrow": ("spark", "cli", "demo", "watch"),
    "pyspark": ("spark-local",),
    "pytest": ("testing", "demo"),
    "rich": ("cli", "demo", "watch"),
    "six": ("demo",),
}


def extra_for(package: str, *wanted: str) -> str:
    """The extra that installs a package of EXTRAS: one of ``wanted`` if possible, else the first."""
    return next((extra for extra in wanted if extra in EXTRAS[package]), EXTRAS[package][0])


def install(extra: str) -> str:
    """The command that installs an extra: from PyPI, and from a checkout."""
    return f'pip install "kpl-codec[{extra}]" (in a checkout: ".[{extra}]")'


@contextmanager
def require_extras(name: str) -> Iterator[None]:
    """A context for the imports of ``name``: its ModuleNotFoundError says which extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        reason = f"{name} needs {missing}. Run: {install(extra_for(missing))}"
        raise ModuleNotFoundError(reason, name=error.name) from error


#: A value as HTML for notebooks. `kpl_codec` sets it: the core does not import `rendering`.
html: Callable[[Any], str]


def repr_html(value: Any) -> str:
    """The ``_repr_html_`` of a value."""
    return html(value)  # noqa: F821 - `kpl_codec` sets it


def lazy_names(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for ``module``; ``homes``: the submodule of each name. A
    ModuleNotFoundError names the missing extra."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        with require_extras(f"{module}.{name}"):
            return getattr(import_module(f"{module}.{homes[name]}"), name)

    return get, lambda: sorted([*vars(import_module(module)), *homes])
