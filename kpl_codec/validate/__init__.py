"""Kinesis records in files or on a stream -> user records with verdicts, findings and a report.

    result = validate(["captures/"], shard_map, "out/", engine=LocalEngine())

The work is a list of tasks; an engine runs them: `LocalEngine` in processes of this machine,
`kpl_codec.spark.validate_engine.SparkEngine` on Spark. Both write the same files. Specification:
spec/07-spark.md.
"""

from ..lazy import needing_extras

with needing_extras("kpl_codec.validate"):
    from .local import LocalEngine
    from .validate_job import Engine as Engine
    from .validate_job import OutputError, Validation, validate, validate_stream
    from .validate_job import read_shard_map as read_shard_map

__all__ = [
    "LocalEngine",
    "OutputError",
    "Validation",
    "validate",
    "validate_stream",
]
