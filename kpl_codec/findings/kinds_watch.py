"""Kinds of findings that only a live stream gives: those of a watch (`kpl_codec.watch`), and its channels."""

from __future__ import annotations

from .kind import Kind

WATCH = (
    Kind(
        "not-watched",
        "error",
        "A shard that could not be looked at",
        "For three periods no look at this shard succeeded. What happens on it meanwhile is not known.",
        "Nobody who reads the stream, as far as is known. The watch is blind here.",
        "Look at the error named: permissions, credentials, the network, or a budget that is too small.",
        "WCH-22",
    ),
    Kind(
        "hot-key",
        "warning",
        "A partition key that gets far more than its share",
        "One key alone gets at least half of what the mean shard gets.",
        "Readers and writers of its shard, which reaches its limits while others are idle.",
        "Splitting the shard does not help. Spread that key over several, or let the producer choose keys.",
        "WCH-19",
    ),
    Kind(
        "lag",
        "warning",
        "Records are read late",
        "More time than allowed passes between a record's arrival on the stream and its reading, by the "
        "consumer that watches its own events, or by this watch.",
        "Whoever waits for this consumer's output. If the watch is late, so are its findings.",
        "Give the consumer more concurrency; give the watch a larger budget, or a smaller share to read.",
        "WCH-32",
    ),
    Kind(
        "throttled",
        "info",
        "The service refuses reads",
        "The readers of this shard together ask for more than 5 calls or 2 MiB a second.",
        "All GetRecords readers of the shard, this watch too; it waits longer and longer.",
        "Use enhanced fan-out for the heaviest reader, or let each read less often.",
    ),
    Kind(
        "stream-recreated",
        "warning",
        "The stream was deleted and created again",
        "It has its old name, but none of its old records. What was known of the old one was forgotten.",
        "Consumers with checkpoints: their sequence numbers are of a stream that is gone.",
        "Nothing, if it was meant. Else find who did it; let consumers begin at TRIM_HORIZON.",
        "WCH-11",
    ),
)

_TO_DO = (
    "Switch aggregation off for this stream's producers, or deliver it with what opens aggregates: a Lambda "
    "function, Firehose or Spark. What is missing is still on the stream until its retention is over: "
    "`kpl-codec cat --stream NAME --only FILE` reads the records that a dead-letter object names."
)

CHANNELS = (
    Kind(
        "channel-aggregates",
        "error",
        "A channel that cannot deliver aggregated records",
        "A channel does not open aggregated records. They are neither JSON nor UTF-8, so all of them go to "
        "its dead letters: the table, or the objects in S3, lack their user records, and producers are told "
        "success. This follows from AWS's documentation; it was not observed.",
        "Whoever reads the channel's table or objects. All other readers of the stream get everything.",
        _TO_DO,
        "CHN-1",
    ),
    Kind(
        "channel-bytes",
        "info",
        "A channel that may deliver aggregated records unopened",
        "A channel of format BYTE_ARRAY writes each aggregated record to S3 as it is; of a channel whose "
        "format may not be read nobody knows. This follows from AWS's documentation; it was not observed.",
        "Whoever reads the channel's objects: the user records are within frames.",
        "Open them: `kpl-codec cat`, or `kpl_codec.deaggregate`. For a format that is not known allow "
        "kinesis:ListChannels and kinesis:DescribeChannel.",
        "CHN-1",
    ),
)
