"""Checks the Kinesis records in files or on a stream: writes user records with verdicts, findings and a
report.

    >>> import boto3
    >>> from kpl_codec.aws import fetch_shard_map
    >>> from kpl_codec.validate import LocalEngine, validate_stream
    >>> shard_map = fetch_shard_map(boto3.client("kinesis"), "orders")
    >>> engine = LocalEngine(cores=1)
    >>> result = validate_stream({}, "orders", shard_map=shard_map, output="checked", engine=engine)
    >>> result.clean, result.summary["totals"]["userRecords"]
    (True, 40)
    >>> validate_stream({}, "orders", shard_map=shard_map, output="checked", engine=engine)
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
    from ..findings import Finding as Finding
    from .local import LocalEngine as LocalEngine
    from .report.schema import Arrivals as Arrivals
    from .report.schema import CauseFacts as CauseFacts
    from .report.schema import Facts as Facts
    from .report.schema import KindFacts as KindFacts
    from .report.schema import ReadFacts as ReadFacts
    from .report.schema import ShardFacts as ShardFacts
    from .report.schema import Totals as Totals
    from .validate_job import Engine as Engine
    from .validate_job import OutputError as OutputError
    from .validate_job import Validation as Validation
    from .validate_job import read_shard_map as read_shard_map
    from .validate_job import validate as validate
    from .validate_job import validate_stream as validate_stream
else:
    _JOB = ("Engine", "OutputError", "Validation", "read_shard_map", "validate", "validate_stream")
    _FACTS = ("Arrivals", "CauseFacts", "Facts", "KindFacts", "ReadFacts", "ShardFacts", "Totals")
    _HOMES = {"Finding": "report.facts", "LocalEngine": "local"}
    _HOMES |= dict.fromkeys(_FACTS, "report.schema") | dict.fromkeys(_JOB, "validate_job")
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = [
    "Arrivals",
    "CauseFacts",
    "Facts",
    "Finding",
    "KindFacts",
    "LocalEngine",
    "OutputError",
    "ReadFacts",
    "ShardFacts",
    "Totals",
    "Validation",
    "validate",
    "validate_stream",
]
