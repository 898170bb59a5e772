"""Functions for PySpark (`deaggregate`, `verify`, `is_aggregated`, `handled_runs`), and the data source
`kpl-kinesis`.

The DataFrame functions need PySpark 3.5 or newer, the data source 4.0. Only `local_session` starts a
session. Specification: spec/07-spark.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.lazy import lazy_names, require_extras

with require_extras("kpl_codec.spark"):
    from .functions import deaggregate, is_aggregated, verify
    from .handled_runs import handled_runs
    from .session import local_session

if TYPE_CHECKING:
    from .source.datasource import KinesisDataSource
else:  # PySpark 3.5 has no data sources
    __getattr__, __dir__ = lazy_names(__name__, {"KinesisDataSource": "source.datasource"})

__all__ = [
    "KinesisDataSource",
    "deaggregate",
    "handled_runs",
    "is_aggregated",
    "local_session",
    "verify",
]
