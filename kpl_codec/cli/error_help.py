"""Whom each class of errors concerns and what to do. The class itself says what it means."""

from __future__ import annotations

from typing import NamedTuple


class Help(NamedTuple):
    """``codes``: those that the class takes from a table and does not declare."""

    concerns: str
    todo: str
    codes: tuple[str, ...] = ()


_CALLER = "The caller of this library. Nothing on the stream has changed."
_READERS = "Everybody who deaggregates this Kinesis record; `kpl-codec explain CODE` tells more."
_REPORT = 'The policy "report" gives every user record that the bytes still hold. Find its writer.'
_OPERATOR = "Whoever runs the command. Nothing was written."

HELP = {
    "NotAggregated": Help(
        "Nobody: a plain record is not an error.",
        "decode() takes aggregated records only. Ask is_aggregated() first, or use deaggregate(), which "
        "passes plain records through.",
    ),
    "ChecksumMismatch": Help(_READERS, "Find where the bytes were changed: a proxy, a re-encoding, a cut."),
    "MalformedMessage": Help(_READERS, _REPORT),
    "WrongWireType": Help(_READERS, _REPORT),
    "MissingField": Help(_READERS, _REPORT),
    "InvalidKey": Help(_READERS, _REPORT),
    "InvalidHashKey": Help(_READERS, _REPORT),
    "UnusedHashKey": Help(
        "Nobody: a warning, never raised. Every consumer delivers all user records of the aggregate.",
        "Nothing. Its writer should leave the entry out.",
    ),
    "IndexOutOfTable": Help(_READERS, _REPORT),
    "NoUserRecords": Help(_READERS, "Find the writer: the aggregate's user records are not on the stream."),
    "DecompressionError": Help(
        _READERS,
        "Raise the limit if the data may be that large; without `decompress` it is delivered as it is.",
    ),
    "EncodeError": Help(
        _CALLER,
        "Fix the user record that the error names: a key of 1 to 256 characters, data as bytes.",
        ("partition-key-type", "partition-key-empty", "partition-key-too-long", "partition-key-utf-8",
         "explicit-hash-key", "data-type", "tag", "no-user-records", "null"),
    ),
    "AggregateFull": Help(_CALLER, "Take the aggregate as it is, and begin another with this user record."),
    "RecordTooLarge": Help(_CALLER, "Make the data smaller, or raise the stream's maximum record size."),
    "HashKeyError": Help(
        _CALLER,
        "Give a decimal number from 0 to 2^128 - 1.",
        ("outside", "overlap", "exhausted", "not-allocated"),
    ),
    "ShardMapError": Help(
        "Whoever uses the map: with a gap or an overlap, a hash key may have no shard, or two.",
        "Take the listing again, all pages of it: aws kinesis list-shards --stream-name NAME.",
        ("empty", "incomplete", "malformed", "duplicate", "gap", "overlap", "cycle", "contradiction"),
    ),
    "UnknownShard": Help(_CALLER, "Take a newer listing, or one of the stream that the records are from."),
    "CaptureError": Help(
        _CALLER,
        "Capture that part again. The finding capture-CODE tells more.",
        ("not-representable", "bad-path"),
    ),
    "S3Error": Help(
        _OPERATOR,
        "Do what the text says. AWS_ENDPOINT_URL_S3 names another server than AWS.",
        ("NoCredentialsError", "NoSuchBucket", "EndpointConnectionError"),
    ),
    "InputError": Help(
        _OPERATOR,
        "Check the path, and that this machine may read it.",
        ("no-such-path", "no-files", "unreadable"),
    ),
    "SequenceNumberError": Help(_CALLER, "Give it as the service wrote it, without leading zeros."),
    "KeptStateError": Help(
        "The scheduled sentinel: this run starts without what earlier runs knew, and says so.",
        "Nothing, if the version changed: the next run saves a new state. Otherwise look at the table.",
    ),
    "ConfigError": Help(_CALLER, "Set the named option as the text says."),
    "DeliveryError": Help(
        "The application that put the user record. The error says whether it may be on the stream.",
        "Put it again if it must not be lost and its readers recognise copies.",
    ),
    "ProducerFull": Help(_CALLER, "Wait for futures, put less, or raise the limits of ProducerConfig."),
    "ProducerClosed": Help(_CALLER, "Make a new producer after close() or a fork."),
    "StreamUnavailable": Help(
        "Whoever needs the shard map now. A map read before stays in use.",
        "The code is AWS's own. ResourceNotFoundException: check name and region. AccessDeniedException: "
        "allow kinesis:ListShards and kinesis:DescribeStreamSummary. LimitExceededException: wait.",
        ("ResourceNotFoundException", "AccessDeniedException", "LimitExceededException"),
    ),
    "LocalKinesisError": Help(
        "Tests and the demo, which need a Kinesis server on this machine.",
        'Install the extra testing (it brings Node), or start kinesis-local yourself.',
    ),
    "ProgramError": Help(_OPERATOR, "Run it by hand; spec/09-conformance.md says what it must answer."),
    "UsageError": Help(_OPERATOR, "Read the command's --help."),
    "SparkFailed": Help(_OPERATOR, "Read the log that the text names."),
    "OutputError": Help(_OPERATOR, "Name a new or empty folder: results of two runs must not mix."),
    "FormatError": Help(_OPERATOR, "Use parquet, or start Spark with the packages of that format."),
    "WorkerLost": Help(_OPERATOR, "It probably ran out of memory: give --memory or fewer --cores."),
    "RepairError": Help(_OPERATOR, "First kpl-codec validate, then repair, then repair with --apply."),
    "NoJava": Help(_OPERATOR, "Install the extra spark-local, which brings a Java, or use --engine local."),
    "OptionError": Help("The Spark query, which did not start.", "Set the option to what the text expects."),
    "OffsetError": Help("The Spark query, which did not start.", "Give it a checkpoint folder of its own."),
    "DataLoss": Help(
        "Whoever reads the query's output: it lacks the records between two places.",
        "Read within the stream's retention, or raise it. To go on without them: "
        "failOnDataLoss=false.",
        ("trimmed", "shard-gone", "record-missing", "unread-too-long"),
    ),
    "RowsNotWritten": Help(
        "Readers of the stream that the query writes to: some rows are missing.",
        "Let Spark run the task again; rows already put come twice.",
        ("ProvisionedThroughputExceededException",),
    ),
    "StreamNameError": Help(_CALLER, "Give the name or the ARN of a stream."),
    "CannotListen": Help(_OPERATOR, "Choose a free port, or an address of this machine."),
    "EventError": Help(
        "Readers with enhanced fan-out. None of the event's records was given.",
        "Nothing: the reader subscribes again. If it recurs, look at the server or the proxy.",
    ),
    "WouldDeadlock": Help(
        _CALLER, "Do what the text says: leave the signal handler first.", ("in-signal-handler",)
    ),
    "NoDataSource": Help("The Spark query, which did not start.", "Use PySpark 4.0 or newer for streams."),
}  # fmt: skip
