"""PySpark: `deaggregate`, `verify`, `is_aggregated`, `handled_runs`, and the data source `kpl-kinesis`.

    users = deaggregate(df)                      # any DataFrame with a binary column `data`
    checked = verify(df, shard_map)              # every user record, its placement, every defect

The DataFrame functions need PySpark 3.5 or newer; the data source 4.0 or newer. Nothing here starts a
session but `local_session`. Names are imported when asked for. Specification: spec/07-spark.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names, needing_extras

with needing_extras("kpl_codec.spark"):
    import pyarrow as _pyarrow  # noqa: F401 - every part needs it

if TYPE_CHECKING:  # what `lazy_names` gives, for type checkers
    from .functions import deaggregate as deaggregate
    from .functions import is_aggregated as is_aggregated
    from .functions import register_table_function as register_table_function
    from .functions import verify as verify
    from .handled import handled_runs as handled_runs
    from .session import local_session as local_session
    from .source.datasource import KinesisDataSource as KinesisDataSource

_HOMES = {
    "deaggregate": "functions",
    "verify": "functions",
    "is_aggregated": "functions",
    "register_table_function": "functions",
    "handled_runs": "handled",
    "KinesisDataSource": "source.datasource",
    "local_session": "session",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
