"""PySpark over the Arrow functions: `deaggregate`, `verify`, `is_aggregated`, the data source `kpl-kinesis`.

    from kpl_codec.spark import deaggregate, verify

    users = deaggregate(df)                      # any DataFrame with a binary column `data`
    checked = verify(df, shard_map)              # every user record, its placement, every defect

The DataFrame functions need PySpark 3.5 or newer; the data source 4.0 or newer. Nothing here starts a
session but `local_session`. Names are imported when asked for.
Specification: spec/07-spark.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # type checkers see what `__getattr__` gives
    from .functions import deaggregate as deaggregate
    from .functions import is_aggregated as is_aggregated
    from .functions import verify as verify
    from .session import ensure_java as ensure_java
    from .session import local_session as local_session
    from .source.datasource import KinesisDataSource as KinesisDataSource
    from .source.metrics import metrics_of as metrics_of
    from .source.metrics import with_metrics as with_metrics

_HOMES = {
    "deaggregate": "functions",
    "verify": "functions",
    "is_aggregated": "functions",
    "KinesisDataSource": "source.datasource",
    "with_metrics": "source.metrics",
    "metrics_of": "source.metrics",
    "local_session": "session",
    "ensure_java": "session",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
