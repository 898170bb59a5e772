"""Findings about placement, about what the KCL drops because of it, and about the shards."""

from __future__ import annotations

from .kind import NOBODY, ONLY_THE_CHECK, Kind

_RANGE_RULE = (
    "KCL consumers: they alone compare hash keys with the range of the shard, and lose these user records. "
    "Lambda functions, Firehose and Spark sources that deaggregate deliver them."
)

PLACEMENT = (
    Kind(
        "naive-aggregator",
        "critical",
        "Aggregates put together without looking at shards",
        "User records of several shards were put into one aggregate, as a plain RecordAggregator does on a "
        "stream with more than one shard. No shard, now or earlier, held all their hash keys, so no reshard "
        "explains it. The KCL drops every such aggregate whole, and writes no log line about it.",
        _RANGE_RULE,
        "Change the writer: aggregate per shard (kpl_codec.aws.Producer or the KPL do), or give all user "
        "records of an aggregate one explicit hash key. Until then do not read this stream with the KCL: "
        "read it with the report policy. `kpl-codec repair` puts the user records again where "
        "they belong.",
        "PLC-5",
    ),
    Kind(
        "mixed-aggregate",
        "critical",
        "Aggregate with user records of other shards",
        "Some of its user records belong to the shard it lies on, others do not. The KCL drops all of them, "
        "also those that are in their right place.",
        _RANGE_RULE,
        "If the cause is a split: KPL 0.15.11 and later reports such user records as put, and they are lost; "
        "put them again (`kpl-codec repair`). If no reshard explains it: see naive-aggregator.",
        "PLC-5",
    ),
    Kind(
        "foreign-aggregate",
        "critical",
        "Aggregate on a shard that none of its user records belongs to",
        "The KCL drops it. Either it was put under a wrong key, or a producer sent the same user records "
        "again after a split; then they are also on the right shard.",
        _RANGE_RULE,
        "If the user records are not on the expected shard, put them again (`kpl-codec repair`) and fix the "
        "writer: it must put an aggregate under the hash key of its user records.",
        "PLC-3",
    ),
    Kind(
        "repaired",
        "info",
        "Dropped by the KCL, and put again",
        "By `kpl-codec repair`: a tag on the copies or the log of the repair says so.",
        "Consumers that do not drop (Lambda, Firehose, plain readers) get these user records twice.",
        "Nothing.",
        "SPK-34",
    ),
    Kind(
        "stray",
        "error",
        "Record outside its shard",
        "Its explicit hash key is known, and is outside its shard's hash key range.",
        "Every consumer that relies on the order of a key's records, or looks for a key on its shard.",
        "Check which stream and which put this record came from: the service itself puts a record where its "
        "hash key says.",
        "PLC-3",
    ),
    Kind(
        "on-child",
        "warning",
        "The shard map is older than the stream",
        "The stream was resharded after the map was taken: these user records lie on a descendant.",
        ONLY_THE_CHECK,
        "Take the shard listing again (`aws kinesis list-shards`) and validate once more.",
        "PLC-4",
    ),
    Kind(
        "on-parent",
        "info",
        "Written before a reshard",
        "Their shard has since been split or merged. They are where they belonged when they were written.",
        NOBODY,
        "Nothing. Consumers read a closed shard to its end before its children.",
        "PLC-4",
    ),
    Kind(
        "unknown-shard",
        "warning",
        "A shard that the map does not have",
        "Nobody knows whether the KCL drops these user records. The shard has expired, the map is of another "
        "stream, or the capture does not say the shard: records from a queue have none.",
        ONLY_THE_CHECK,
        "Validate with a listing of this stream, taken while the shard was still listed.",
        "SHD-4",
    ),
    Kind(
        "explicit-hash-key-implied",
        "info",
        "Plain records put with an explicit hash key",
        "Their partition keys do not hash into the shard they lie on, so they were put with an explicit "
        "hash key, which no read call returns. Every consumer gets them.",
        NOBODY,
        "Nothing, if the writers use explicit hash keys. If none of them does, the shard map is of another "
        "stream.",
        "PLC-2",
    ),
    Kind(
        "distribution-auto",
        "warning",
        "The stream distributes records itself",
        "The record distribution strategy of this stream is AUTO: the service ignores keys, so no record "
        "is misplaced. A KCL consumer still applies its range rule to aggregates, and drops those that "
        "lie outside the shard of their hash keys.",
        "KCL consumers. Others lose nothing.",
        "Do not aggregate on such a stream, or do not read it with the KCL's deaggregation.",
        "PLC-1",
    ),
    Kind(
        "skewed-shard",
        "warning",
        "A shard that gets far more than its share",
        "It has more than twice the mean of the user records read, over the open shards that have any.",
        "Writers, which are throttled on this shard, and all its consumers, which fall behind on it.",
        "Look for hot keys: `kpl-codec keys hot DIR`, with the folder of these results. If one is hot, "
        "spread that key, or let the producer choose keys; a split does not help. Else split the shard.",
        "HKA-8",
    ),
    Kind(
        "unknown-parent",
        "info",
        "A parent that is no longer listed",
        "The shard's parent has expired, so this listing does not say what lay on it.",
        ONLY_THE_CHECK,
        "Nothing.",
        "SHD-5",
    ),
    Kind(
        "lineage",
        "warning",
        "Shards with an impossible lineage",
        "The listing is of two streams, or of one that was created again under its old name.",
        ONLY_THE_CHECK,
        "Take the listing again and compare.",
        "LIN-5",
    ),
)
