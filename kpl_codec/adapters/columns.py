"""Column names of the Kinesis connectors, and this library's names for them."""

#: The columns of a Kinesis record, as this library names them.
COLUMNS = (
    "streamName",
    "shardId",
    "sequenceNumber",
    "partitionKey",
    "explicitHashKey",
    "subSequenceNumber",
    "data",
    "approximateArrivalTimestamp",
)
_BY_LOWER_CASE = {name.lower(): name for name in COLUMNS}
#: Other connectors' names: Databricks says stream.
_BY_LOWER_CASE |= {
    "stream": "streamName",
    "shard": "shardId",
    "arrivaltimestamp": "approximateArrivalTimestamp",
}


def standard_name(name: str) -> str | None:
    """The name in COLUMNS for a connector's ``name``, in any case, with or without underscores; None for
    others."""
    return _BY_LOWER_CASE.get(name.lower().replace("_", ""))
