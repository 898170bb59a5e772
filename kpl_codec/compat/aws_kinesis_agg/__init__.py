"""aws_kinesis_agg 1.2.3 by its own names. Moving over is changing one import:

    from aws_kinesis_agg import deaggregator, aggregator                     # before
    from kpl_codec.compat.aws_kinesis_agg import deaggregator, aggregator    # after

Same functions, classes, arguments and dict shapes. A table in spec/06-lambda.md lists each difference (CMP-1
to CMP-16). In short: user records that were lost are delivered or raise, keys that were wrong are right,
sizes are true. The modules that protobuf generated are absent: use `kpl_codec.decode` and `encode`.
"""

# CMP-15: "Importing it MUST NOT need other packages, change sys.path, touch protobuf's default pool, or
# ask for MD5 as security."
from ...format.limits import DEFAULT_MAX_RECORD_SIZE, DIGEST_SIZE, MAGIC

MAX_BYTES_PER_RECORD = DEFAULT_MAX_RECORD_SIZE

__all__ = ["DIGEST_SIZE", "MAGIC", "MAX_BYTES_PER_RECORD"]
