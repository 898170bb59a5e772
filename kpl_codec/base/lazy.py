"""Imports the names of a package on first use, so that a name needs only the extra of its own module; an
error names a missing extra."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

#: What a module or a name needs beside the core: the longest beginning counts. Extras, or another package.
NEEDS = {
    "kpl_codec.arrow": "spark",
    "kpl_codec.aws": "aws",
    "kpl_codec.aws.aio": "aws,aio",
    "kpl_codec.aws_lambda.parser": "aws-lambda-powertools[parser]>=3",
    "kpl_codec.aws_lambda.powertools": "aws-lambda-powertools>=3",
    "kpl_codec.captures": "cli",
    "kpl_codec.producer": "aws",
    "kpl_codec.producer.OpenTelemetryMetrics": "otel",
    "kpl_codec.spark": "spark,aws",
    "kpl_codec.testing": "testing",
    "kpl_codec.validate": "cli",
    "kpl_codec.validate.validate_stream": "cli,aws",
    "kpl_codec.watch": "otel",
}
#: The packages that these install.
PACKAGES = {
    "aiobotocore", "argcomplete", "aws_kinesis_agg", "aws_lambda_powertools", "boto3", "botocore",
    "hypothesis", "jinja2", "numpy", "opentelemetry", "pandas", "pyarrow", "pydantic", "pyspark", "pytest",
    "rich", "six",
}  # fmt: skip


def install(needed: str) -> str:
    """The command that installs extras, from where this package was installed; or another package."""
    return f'pip install "{needed}"' if ">" in needed else f"pip install {_own(needed)}"


def _own(extras: str) -> str:
    """What pip shall install: the checkout or wheel on this machine that it has noted, else the name."""
    # Not before: Lambda functions import this module at every start.
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path

    try:
        origin = json.loads(distribution("kpl-codec").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    place = origin.get("url", "").removeprefix("file://")
    if not Path(place).is_absolute() or not Path(place).exists():  # of an index, or gone
        return f'"kpl-codec[{extras}]"'
    editable = origin.get("dir_info", {}).get("editable", False)
    return f'{"-e " if editable else ""}"{place}[{extras}]"'


@contextmanager
def require_extras(name: str) -> Iterator[None]:
    """A context for the imports of ``name``: its ModuleNotFoundError says how to install all it needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in PACKAGES:
            raise
        needed = NEEDS[max((begin for begin in NEEDS if name.startswith(begin)), key=len)]
        from importlib.util import find_spec  # not before: Lambda functions import this module at every start

        if name.startswith("kpl_codec.spark") and find_spec("pyspark") is None:  # platforms bring theirs
            needed = "spark-local,aws"
        raise ModuleNotFoundError(
            f"{name} needs {missing}. Run: {install(needed)}", name=error.name
        ) from error


def public_names(module: str) -> Callable[[], list[str]]:
    """``__dir__`` for ``module``: its ``__all__``, and what Python sets."""

    def names() -> list[str]:
        own = vars(import_module(module))
        return sorted({*own["__all__"], *(name for name in own if name.startswith("__"))})

    return names


def lazy_names(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for ``module``; ``homes``: the submodule of each name. A
    ModuleNotFoundError names the missing extra."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        with require_extras(f"{module}.{name}"):
            return getattr(import_module(f"{module}.{homes[name]}"), name)

    return get, public_names(module)
