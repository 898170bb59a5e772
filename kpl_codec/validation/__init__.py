"""Kinesis records in files or on a stream -> user records with verdicts, findings and a report.

    from kpl_codec.validation import LocalEngine, validate

    result = validate(["captures/"], shard_map, "out/", engine=LocalEngine())

The work is a list of tasks; an engine runs them: `LocalEngine` in processes of this machine,
`kpl_codec.spark.validation.engine.SparkEngine` on Spark. Both write the same files.
Specification: spec/07-spark.md, SPK-17 to SPK-22 and SPK-40 to SPK-43.
"""

from ..lazy import needing_extras

with needing_extras("kpl_codec.validation"):
    from .job import Engine, validate, validate_stream
    from .local import LocalEngine
    from .results import OutputError, Validation, read_shard_map

__all__ = [
    "Engine",
    "LocalEngine",
    "OutputError",
    "Validation",
    "read_shard_map",
    "validate",
    "validate_stream",
]
