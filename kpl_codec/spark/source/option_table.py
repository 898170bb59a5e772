"""The options of `kpl-kinesis`, as tables: those of its own, and those of the other connectors.

A test compares the tables of the guide and of section 7.9, and what `parse_options` does, with these.
Specification: spec/07-spark-source.md, SPK-65 and section 7.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Option(NamedTuple):
    """An option, or a few that belong together, as the guide shows it: in Markdown."""

    names: str
    default: str
    meaning: str


class OtherOption(NamedTuple):
    """An option of another connector. ``of``: A (awslabs), D (Databricks), Glue. ``here``: same, accepted as
    another, not needed (accepted with a warning, ``note`` says why it changes nothing) or missing."""

    name: str
    of: str
    here: str
    note: str = ""


#: In the order of the guide.
OPTIONS: Final = (
    Option("`streamName`, or `streamARN`", "required", "the stream"),
    Option("`region`, `endpointUrl`", "boto3's", "where it is"),
    Option(
        "`roleArn`", "none",
        "assume this role; with `roleSessionName`, `roleExternalId`, `stsEndpointUrl`",
    ),
    Option("`profile`", "boto3's", "a profile of the AWS configuration"),
    Option("`awsAccessKeyId`, `awsSecretAccessKey`, `awsSessionToken`", "boto3's", "keys"),
    Option(
        "`startingPosition`", "`TRIM_HORIZON`",
        "`LATEST`, `AT_TIMESTAMP` and a time, a time, or JSON by shard",
    ),
    Option("`endingPosition`", "`LATEST`", "batch reads: the same forms"),
    Option("`policy`", "`strict`", "`strict`, `kcl`, `report`; `none`: do not deaggregate"),
    Option("`placement`", "`false`", "judge every user record; adds columns"),
    Option("`tags`", "`false`", "the user record's tags; adds a column"),
    Option(
        "`decompress`", "`false`",
        "undo gzip, zlib and zstd of the data: `true`, or the largest size in bytes",
    ),
    Option("`failOnDataLoss`", "`true`", "fail when records were gone before they were read"),
    Option("`maxFetchRecordsPerShard`", "0: no limit", "Kinesis records per shard and batch, exactly"),
    Option("`maxSecondsPerShard`", "600", "seconds of arrival time per shard and batch; 0: all"),
    Option("`maxSecondsPerPartition`", "300", "longer batches of a shard are cut; 0: never"),
    Option("`shardsPerTask`", "automatic", "shards that one task reads, at the same time"),
    Option("`idleTimeBetweenReadsInMs`", "250", "between two looks for new records"),
    Option("`describeShardInterval`", "10s", "between two listings of the shards"),
    Option("`fetchCallsPerSecondPerShard`", "4", "of the 5 that a shard allows all its readers"),
    Option("`fetchBytesPerSecondPerShard`", "2097152", "of the 2 MiB that a shard allows all its readers"),
    Option("`retryTimeoutSeconds`", "300", "how long throttling and errors are tried again"),
    Option("`maxBatchBytes`", "4194304", "bytes of an Arrow batch"),
    Option("`maxPartitions`", "no limit", "tasks of a batch"),
    Option(
        "`consumerType`", "`polling`",
        "`efo`: enhanced fan-out, 2 MiB a second per shard for this query alone",
    ),
    Option("`consumerName`", "none", "efo: the consumer, registered if it is not there"),
    Option("`consumerArn`", "none", "efo, instead of a name: a consumer that is there"),
    Option("`requireConsumerDeregistration`", "`false`", "efo: deregister the consumer when the query ends"),
    Option("`proxyAddress`", "boto3's", "an HTTP proxy; with `proxyPort`, `proxyUsername`, `proxyPassword`"),
    Option("`sink.aggregationEnabled`", "`true`", "writes: many user records in a Kinesis record"),
    Option("`sink.recordMaxBufferedTimeMs`", "100", "writes: how long a user record may wait for others"),
    Option("`sink.maxConnections`", "24", "writes: calls at a time, per task"),
    Option("`sink.recordTtl`", "300000", "writes: ms until a row that is not delivered fails its task"),
    Option("`sink.ordering`", "`none`", "writes: `partition-key` keeps each key in order"),
    Option(
        "`sink.compression`", "`none`",
        "writes: gzip, zlib or zstd of each row's data; readers undo it with `decompress`",
    ),
)

_RETRIES = "retryTimeoutSeconds says how long a call is tried again"
_NO_STORE = "Spark's checkpoint is all that is kept"
_FIXED_ENDS = "the end of a batch is fixed before it is read; maxSecondsPerShard limits it"
_NO_QUEUE = "a task ends with the last record of its batch, which is known"
_FROM_OFFSET = "the offset says how many records a task asks for"
_NO_BLOCKS = "records are not kept in blocks"
#: In the order of section 7.9.
OTHERS: Final = (
    OtherOption("streamName", "A, D", "same", "one stream; D takes several"),
    OtherOption("streamARN", "D", "same"),
    OtherOption("region", "A, D", "same"),
    OtherOption("regionOverride", "D", "accepted as `region`"),
    OtherOption("kinesisRegion", "A", "accepted as `region`"),
    OtherOption("endpointUrl", "A", "same", "here optional; the region is taken from it where none is given"),
    OtherOption("endpoint", "D", "accepted as `endpointUrl`"),
    OtherOption("proxyAddress", "A", "same", "an HTTP proxy; else boto3's (`HTTPS_PROXY`)"),
    OtherOption("proxyPort", "A", "same"),
    OtherOption("proxyUsername", "A", "same"),
    OtherOption("proxyPassword", "A", "same"),
    OtherOption("awsAccessKeyId", "A", "same"),
    OtherOption("awsAccessKey", "D", "accepted as `awsAccessKeyId`"),
    OtherOption("awsSecretKey", "A, D", "accepted as `awsSecretAccessKey`"),
    OtherOption("sessionToken", "A", "accepted as `awsSessionToken`"),
    OtherOption("roleArn", "D", "same"),
    OtherOption("roleExternalId", "D", "same"),
    OtherOption("roleSessionName", "D", "same"),
    OtherOption("stsRoleArn", "A", "accepted as `roleArn`"),
    OtherOption("stsSessionName", "A", "accepted as `roleSessionName`"),
    OtherOption("stsEndpointUrl", "A", "same"),
    OtherOption("stsEndpoint", "D", "accepted as `stsEndpointUrl`"),
    OtherOption("serviceCredential", "D", "missing", "a Unity Catalog credential; use a role or a profile"),
    OtherOption("credentialProviderClass", "A", "missing", "a Java class; use a role or a profile"),
    OtherOption("credentialProviderParam", "A", "missing", "as above"),
    OtherOption("startingPosition", "A", "same", "here TRIM_HORIZON unless given, there LATEST"),
    OtherOption(
        "initialPosition", "D", "accepted as `startingPosition`",
        "as above; `at_timestamp` with `format` too",
    ),
    OtherOption("failOnDataLoss", "A", "same", "here true unless given"),
    OtherOption(
        "consumerType", "A", "same",
        "`GetRecords` or `polling`, `SubscribeToShard` or `efo` (chapter 11)",
    ),
    OtherOption("consumerMode", "D", "accepted as `consumerType`", "as above"),
    OtherOption(
        "consumerName", "A, D", "same",
        "required for efo unless `consumerArn` is given; D's default is the query's id",
    ),
    OtherOption("consumerNamePrefix", "D", "same", "none unless given, there `databricks_`"),
    OtherOption("registeredConsumerId", "D", "accepted as `consumerArn`", "one"),
    OtherOption(
        "registeredConsumerIdType", "D", "same",
        "`ARN` unless given; with `name` the consumer must be there, too",
    ),
    OtherOption("fanoutConsumerARN", "Glue", "accepted as `consumerArn`", "and `consumerType` is then efo"),
    OtherOption("requireConsumerDeregistration", "D", "same", "A always deregisters, Glue never"),
    OtherOption(
        "consumerRefreshInterval", "D", "not needed",
        "it is looked up when a query starts and when a task does not find it",
    ),
    OtherOption("subscribeToShard.timeoutSec", "A", "not needed", _RETRIES),
    OtherOption("subscribeToShard.maxRetries", "A", "not needed", _RETRIES),
    OtherOption("maxFetchRecordsPerShard", "A", "same", "exact; no limit unless given, there 100,000"),
    OtherOption("describeShardInterval", "A", "same"),
    OtherOption("shardFetchInterval", "D", "accepted as `describeShardInterval`"),
    OtherOption("shardsPerTask", "D", "same", "automatic unless given"),
    OtherOption("maxFetchRate", "D", "accepted as `fetchBytesPerSecondPerShard`", "in MiB a second"),
    OtherOption(
        "getRecords.fetchIntervalMs", "A", "accepted as `fetchCallsPerSecondPerShard`",
        "as its inverse",
    ),
    OtherOption("minFetchPeriod", "D", "accepted as `fetchCallsPerSecondPerShard`", "as its inverse"),
    OtherOption("maxPartitions", "D", "same", "no limit unless given"),
    OtherOption("avoidEmptyBatches", "A, Glue", "not needed", "a batch is only made where there are records"),
    OtherOption("minBatchesToRetain", "A", "not needed", _NO_STORE),
    OtherOption("metadataCommitterType", "A", "not needed", _NO_STORE),
    OtherOption("metadataPath", "A", "not needed", _NO_STORE),
    OtherOption("metadataNumRetries", "A", "not needed", _NO_STORE),
    OtherOption("metadataRetryIntervalsMs", "A", "not needed", _NO_STORE),
    OtherOption("metadataMaxRetryIntervalMs", "A", "not needed", _NO_STORE),
    OtherOption("dynamodb.tableName", "A", "not needed", _NO_STORE),
    OtherOption("checkNewRecordThreads", "A", "not needed", "the driver uses 32 threads"),
    OtherOption("clientNumRetries", "A", "not needed", _RETRIES),
    OtherOption("clientRetryIntervalsMs", "A", "not needed", _RETRIES),
    OtherOption("clientMaxRetryIntervalMs", "A", "not needed", _RETRIES),
    OtherOption("maxFetchTimePerShardSec", "A", "not needed", _FIXED_ENDS),
    OtherOption("maxFetchTimeInMs", "Glue", "not needed", _FIXED_ENDS),
    OtherOption("maxFetchDuration", "D", "not needed", _FIXED_ENDS),
    OtherOption("fetchBufferSize", "D", "not needed", "nothing is read before its batch begins"),
    OtherOption("getRecords.numberOfRecordsPerFetch", "A", "not needed", _FROM_OFFSET),
    OtherOption("maxRecordsPerFetch", "D", "not needed", _FROM_OFFSET),
    OtherOption("coalesceThresholdBlockSize", "D", "not needed", _NO_BLOCKS),
    OtherOption("coalesce", "D", "not needed", _NO_BLOCKS),
    OtherOption("coalesceBinSize", "D", "not needed", _NO_BLOCKS),
    OtherOption("maxShardsPerDescribe", "D", "not needed", "a listing has as many pages as it needs"),
    OtherOption(
        "internal.avoidEmptyBatches", "A", "not needed",
        "a batch is only made where there are records",
    ),
    OtherOption("internal.dataQueueCapacity", "A", "not needed", _NO_QUEUE),
    OtherOption("internal.maxDataQueueEmptyCount", "A", "not needed", _NO_QUEUE),
    OtherOption("internal.dataQueueWaitTimeoutSec", "A", "not needed", _NO_QUEUE),
    OtherOption("internal.maintenanceTaskIntervalSec", "A", "not needed", _NO_STORE),
    OtherOption(
        "addIdleTimeBetweenReads", "Glue", "not needed",
        "fetchCallsPerSecondPerShard limits the calls",
    ),
    OtherOption(
        "addRecordTimestamp", "Glue", "not needed",
        "the column approximateArrivalTimestamp is always there",
    ),
    OtherOption(
        "emitConsumerLagMetrics", "Glue", "not needed",
        "the query's progress says how far behind it is",
    ),
    OtherOption("maxRecordPerRead", "Glue", "not needed", _FROM_OFFSET),
    OtherOption("numRetries", "Glue", "not needed", _RETRIES),
    OtherOption("retryIntervalMs", "Glue", "not needed", _RETRIES),
    OtherOption("maxRetryIntervalMs", "Glue", "not needed", _RETRIES),
    OtherOption("idleTimeBetweenReadsInMs", "Glue", "same", "between two looks for new records"),
    OtherOption("awsSTSRoleARN", "Glue", "accepted as `roleArn`"),
    OtherOption("awsSTSSessionName", "Glue", "accepted as `roleSessionName`"),
    OtherOption("startingTimestamp", "Glue", "missing", "`startingPosition` takes a time"),
    OtherOption("classification", "Glue", "missing", "the column `data` is bytes; parse it in Spark"),
    OtherOption("delimiter", "Glue", "missing", "as above"),
    OtherOption("inferSchema", "Glue", "missing", "as above"),
    OtherOption(
        "sink.flushWaitTimeMs", "A", "not needed",
        "a task waits until each of its rows is in the stream",
    ),
    OtherOption("sink.aggregationEnabled", "A", "same"),
    OtherOption("sink.recordMaxBufferedTimeMs", "A", "same", "here 100 unless given, there 1,000"),
    OtherOption("sink.maxConnections", "A", "same", "here 24 unless given, there 1"),
    OtherOption(
        "sink.recordTtl", "A", "same",
        "a row that is not delivered in time fails its task; there it is dropped",
    ),
)
#: Options of the other connectors that change nothing here, and why. Accepted with a warning.
NOT_NEEDED: Final[Mapping[str, str]] = {one.name: one.note for one in OTHERS if one.here == "not needed"}
