"""Column names of the Kinesis connectors, and what they are called here."""

#: A Kinesis record in columns, as this library names them.
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
#: Other names that connectors give: Databricks says stream.
_BY_LOWER_CASE |= {
    "stream": "streamName",
    "shard": "shardId",
    "arrivaltimestamp": "approximateArrivalTimestamp",
}


def standard_name(name: str) -> str | None:
    """Which of COLUMNS a connector means by ``name``, in any case and with or without underscores; None for
    any other column."""
    return _BY_LOWER_CASE.get(name.lower().replace("_", ""))
