"""Kinesis records in files or on a stream -> user records with verdicts, findings and a report.

    result = validate(["captures/"], shard_map, "out/", engine=LocalEngine())

The work is a list of tasks; an engine runs them: `LocalEngine` in processes of this machine,
`kpl_codec.spark.validation.SparkEngine` on Spark. Both write the same files. Specification:
spec/07-spark.md.
"""

from ..lazy import needing_extras

with needing_extras("kpl_codec.validation"):
    from .job import Engine as Engine
    from .job import OutputError, Validation, validate, validate_stream
    from .job import read_shard_map as read_shard_map
    from .local import LocalEngine

__all__ = [
    "LocalEngine",
    "OutputError",
    "Validation",
    "validate",
    "validate_stream",
]
