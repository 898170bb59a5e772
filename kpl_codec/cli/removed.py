"""Commands and options that were removed before 1.0, and what to use instead. The parser says it where
somebody still calls one. With 1.0 this module goes."""

from __future__ import annotations

from typing import Final

#: The words behind ``kpl-codec``: a command, with an action or an option of it -> what to use instead.
REMOVED: Final = {
    "repair": "spec/guides/put-again.md puts lost user records again with a Producer, and on Spark",
    "conformance": "spec/vectors/README.md says how a program in any language runs the vectors",
    "generate": "to_get_records of kpl_codec.adapters makes a capture of records that you write with encode: "
    "spec/guides/check-captures.md",
    "keys hot": "spec/guides/check-a-stream.md counts the results of validate by partition key",
    "shards history": "`kpl-codec shards list --stream NAME --closed --json` has the parents, children and "
    "times of each shard",
    "cat --queue": "`aws kinesis receive-queue-records` prints JSON, which `kpl-codec cat -` reads",
    "cat --dead-letters": "`aws kinesis receive-dead-letter-queue-records` prints JSON, which "
    "`kpl-codec cat -` reads",
    "cat --restore": "call restore_dead_letter_queue_records of boto3",
    "cat --data-only": "`jq -r .data` prints the data of each line",
    "cat --unframe": "call unframe of kpl_codec.schema_registry: spec/guides/schema-registry.md",
    "cat --decode": "call unframe, and AWS's library for the schema: spec/guides/schema-registry.md",
    "validate --follow": "watch samples a stream without end; spec/guides/check-a-stream.md has what checks "
    "every record, on Spark or every hour with --since",
    "validate --once": "validate --stream reads to the newest record, and stops",
    "validate --interval": "validate --stream reads to the newest record, and stops",
    "validate --memory": "--cores N takes at most N times 768 MiB; spark-submit has --driver-memory",
    "findings --severity": "--kind NAME chooses; `jq` chooses from --json-lines by any member",
    "findings --limit": "--json-lines prints all findings",
    "findings --json": "--json-lines prints one object a line",
    "watch --json": "--json-lines prints one object a line",
    "audit --until": "--put-before WHEN says what must be handled by now",
    "inspect --raw": "kpl_codec.explain takes any bytes as one record's data",
    "inspect --limit": "--json lists up to 10,000 fields and user records; kpl_codec.explain takes max_nodes",
    "audit --repaired": "give what you put again a ledger of its own: spec/guides/put-again.md",
    "watch --period": "--sampling-rate chooses how much of each shard's time is read",
    "watch --max-bytes": "--max-calls N bounds what is read",
    "watch --page": "--json-lines prints findings and metrics, --otel gives metrics to a dashboard",
    "watch --emf": "--json-lines prints metrics, too, for a metric filter: spec/guides/watch.md",
    "watch --print": "spec/guides/watch.md has the alarms",
    "demo --user-records": "each writer puts 1,000 user records",
    "demo --profile": "set AWS_PROFILE",
    "demo --role-arn": "give AWS_PROFILE a profile with role_arn: spec/guides/s3-and-accounts.md",
}
