"""Checks the Kinesis records in files or on a stream: writes user records with verdicts, findings and a
report.

    >>> import boto3
    >>> from kpl_codec.aws import fetch_shard_map
    >>> from kpl_codec.validate import LocalEngine, validate_stream
    >>> shard_map = fetch_shard_map(boto3.client("kinesis"), "orders")
    >>> job = {"shard_map": shard_map, "output": "checked", "engine": LocalEngine(cores=1)}
    >>> result = validate_stream({}, "orders", **job)
    >>> result.clean, result.summary["totals"]["userRecords"]
    (True, 40)
    >>> validate_stream({}, "orders", **job)
    Traceback (most recent call last):
    kpl_codec.validate.results.OutputError: ...

`validate` does the same with files: ``validate(["captures/"], shard_map, output="checked", engine=...)``.

The work is a list of tasks; an engine runs them: `LocalEngine` in processes of this machine,
`kpl_codec.spark.validate_engine.SparkEngine` on Spark. Both write the same files. Specification:
spec/07-spark.md.
"""

from typing import TYPE_CHECKING

from ..base.lazy import lazy_names

if TYPE_CHECKING:  # what `lazy_names` gives, for type checkers
    from .local import LocalEngine as LocalEngine
    from .validate_job import Engine as Engine
    from .validate_job import OutputError as OutputError
    from .validate_job import Validation as Validation
    from .validate_job import read_shard_map as read_shard_map
    from .validate_job import validate as validate
    from .validate_job import validate_stream as validate_stream
else:
    _JOB = ("Engine", "OutputError", "Validation", "read_shard_map", "validate", "validate_stream")
    __getattr__, __dir__ = lazy_names(
        __name__, {"LocalEngine": "local", **dict.fromkeys(_JOB, "validate_job")}
    )

__all__ = [
    "LocalEngine",
    "OutputError",
    "Validation",
    "validate",
    "validate_stream",
]
