"""Every kind of finding: what it means, how bad it is, whom it concerns, and what to do."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from ..errors import MalformedCode, MalformedMessage

Severity = Literal["critical", "error", "warning", "info"]


class FindingType(NamedTuple):
    """One kind of finding. ``meaning``, ``concerns`` (which readers and writers of the stream are hurt) and
    ``todo`` are sentences. ``requirement``: an id of spec/."""

    name: str
    severity: Severity
    title: str
    meaning: str
    concerns: str
    todo: str
    requirement: str | None = None


def kind(
    name: str,
    severity: Severity,
    requirement: str | None,
    title: str,
    meaning: str,
    *,
    concerns: str = "Nobody.",
    todo: str = "Nothing.",
) -> FindingType:
    """A kind of finding. Its texts may have line breaks and indents, which are taken out."""
    meaning, concerns, todo = (" ".join(text.split()) for text in (meaning, concerns, todo))
    return FindingType(name, severity, title, meaning, concerns, todo, requirement)


_ONLY_THE_CHECK = "Nobody who reads the stream. It limits what this check can say."

_RANGE_RULE = (
    "Consumers that use the KCL, and the awslabs connector for Spark, lose these user records: they compare "
    "hash keys with the range of the shard. A KCL that does not know the range of its shard delivers them: "
    "with its setting skipShardSyncAtStartupIfLeasesExist perhaps for as long as it runs, and its log does "
    "not say so; else for seconds after a reshard, on the new shards. Lambda functions and the Spark source "
    "kpl-kinesis deliver them. Of Firehose it is not known."
)
_REWRITE = (
    "Find and fix the writer of the record. What is on the stream already can be rescued: `kpl-codec cat "
    "--stream NAME` (the report policy) delivers every user record that the bytes still hold."
)
_CORRUPT = (
    "Read the record again from the stream. If it is broken there, too, its writer is at fault. Else a "
    "proxy, a re-encoding (base64, UTF-8) or the capture has changed or cut the bytes."
)
_ALL_WHO_OPEN = (
    "Everybody who deaggregates. Some hand the frame on as one record, some deliver a part of it; few say "
    "so. Plain readers get the bytes as they are."
)
_ITS_READERS = "Whoever relies on the consumer's output: it lacks these user records."
#: What is said of user records that a consumer lacks and that still are in the results.
_PUT_AGAIN = (
    "spec/guides/put-again.md has a program that puts the lost user records of the results again. It says "
    "first what may arrive twice: consumers that had got the originals, as Lambda functions do, get the "
    "copies, too. So does a KCL that did not know its shard's range: ask for its setting "
    "skipShardSyncAtStartupIfLeasesExist first (guide kcl.md)."
)

# fmt: off
#: About placement, what the KCL drops, and shards.
PLACEMENT = (
    kind("naive-aggregator", "critical", "PLC-5", "The writer aggregates without regard to shards",
        """User records of several shards were put into one aggregate, as a plain RecordAggregator does on a
        stream with more than one shard. No shard, now or earlier, held all their hash keys, so no reshard
        explains it. A KCL that knows the range of its shard drops every such aggregate whole, and writes no
        log line about it.""",
        concerns=_RANGE_RULE,
        todo=f"""Change the writer: aggregate per shard (kpl_codec.producer.Producer or the KPL do), or give
        all user records of an aggregate one explicit hash key. What is on the stream already: read it with
        a consumer that does not drop, such as a Lambda function or `kpl-codec cat --stream NAME`, before
        the stream's retention is over (24 hours, unless `aws kinesis increase-stream-retention-period` has
        raised it), and put nothing again. Or put it again, only for a stream that a KCL consumer goes on
        reading. {_PUT_AGAIN}"""),
    kind("mixed-aggregate", "critical", "PLC-5", "Aggregate with user records of other shards",
        """Some of its user records belong to the shard it lies on, others do not. A KCL that knows the range
        of its shard drops all of them.""",
        concerns=_RANGE_RULE,
        todo="""If no reshard explains it, change the writer: `kpl-codec explain naive-aggregator`. If a
        reshard is the cause, KPL 0.15.11 and later report such user records as put, though a KCL consumer
        loses them. spec/guides/put-again.md puts them again, and says first what may arrive twice."""),
    kind("foreign-aggregate", "critical", "PLC-3",
        "Aggregate on a shard that none of its user records belongs to",
        """A KCL that knows the range of its shard drops it. It was put under a wrong key, or a producer
        sent it again after a split: then its user records are also on the right shard.""",
        concerns=_RANGE_RULE,
        todo="""Let the writer put an aggregate under the hash key of its user records. What is not on the
        right shard, too, can be put again for a KCL consumer: spec/guides/put-again.md says how, and what
        may arrive twice."""),
    kind("siblings-missing", "warning", "PLC-7",
        "User records of an aggregate that was opened before are missing",
        """Somebody has opened an aggregate before it was captured, and not all of its user records are here.
        Whether the KCL has dropped these user records cannot be said: it drops an aggregate for any one.""",
        concerns=_ONLY_THE_CHECK,
        todo="""Capture the stream itself, as `kpl-codec validate --stream NAME --output DIR` reads it. Or
        give all files of the capture that have the sequence number, its user records side by side."""),
    kind("stray", "error", "PLC-3", "Record outside its shard",
        """Its explicit hash key is known, or the KCL has opened its aggregate, and its hash key is outside
        its shard's hash key range.""",
        concerns="""Every consumer that relies on the order of a key's records, or looks for a key on its
        shard.""",
        todo="""Check which stream the record came from: the service itself puts each record where its hash
        key says."""),
    kind("on-child", "warning", "PLC-4", "The shard map is older than the stream",
        "The stream was resharded after the map was taken: these user records lie on a descendant.",
        concerns=_ONLY_THE_CHECK,
        todo="""List the shards again (`aws kinesis list-shards --stream-name NAME > shards.json`), and run
        `kpl-codec validate CAPTURE --shards shards.json --output DIR` once more."""),
    kind("on-parent", "info", "PLC-4", "Written before a reshard",
        "Their shard has since been split or merged. They are where they belonged when they were written.",
        todo="Nothing. Consumers read a closed shard to its end before its children."),
    kind("not-captured", "info", "CAP-31", "A closed shard without a record in the captures",
        """The shard map lists it, so it may still hold records, and the captures hold none of it. It may
        be empty, or whoever captured the stream listed the open shards alone.""",
        concerns=_ONLY_THE_CHECK,
        todo="""Capture the shard, too, and run `kpl-codec validate CAPTURE --shards shards.json --output
        DIR` once more. `kpl-codec validate --stream NAME --output DIR` reads closed shards by itself."""),
    kind("unknown-shard", "warning", "SHD-4", "A shard that the map does not have",
        """Whether the KCL drops these user records cannot be said. The shard has expired, the map is of
        another stream, or the capture does not say the shard: records from a queue have none.""",
        concerns=_ONLY_THE_CHECK,
        todo="""Run `kpl-codec validate CAPTURE --shards shards.json --output DIR` with a listing of the
        stream, closed shards too, taken while the shard was still listed. Where the capture does not say
        the shard, name each file after its shard, such as shardId-000000000000.bin."""),
    kind("other-stream", "warning", "SPK-110", "Records of a stream whose shard map was not given",
        """A shard map says where the records of one stream belong. Records that name another stream were
        opened and counted, but whether the KCL drops them cannot be said.""",
        concerns=_ONLY_THE_CHECK,
        todo="""Validate each stream by itself, with its own map: `kpl-codec shards list --stream NAME
        --closed --json` prints one that says which stream it is of."""),
    kind("explicit-hash-key-implied", "info", "PLC-2", "Plain records put with an explicit hash key",
        """Their partition keys do not hash into the shard they lie on, so they were put with an explicit
        hash key, which no read call returns. Every consumer gets them.""",
        todo="""Nothing, if the writers use explicit hash keys. If none does, the shard map is of another
        stream."""),
    kind("distribution-auto", "warning", "PLC-1", "The stream distributes records itself",
        """The record distribution strategy of this stream is AUTO: the service ignores keys, so no record
        is misplaced. A KCL consumer still drops aggregates on a shard whose range does not hold their hash
        keys.""",
        concerns="KCL consumers. Others lose nothing.",
        todo="Do not aggregate on such a stream, or do not read it with the KCL's deaggregation."),
    kind("skewed-shard", "warning", "HKA-8", "A shard that gets far more than its share",
        "It has more than twice the mean of the user records read, over the open shards that have any.",
        concerns="""Writers, which are throttled on this shard, and all its consumers, which fall behind on
        it.""",
        todo="""Count the user records in results of `kpl-codec validate` by partition key
        (spec/guides/check-a-stream.md). If one key is hot, spread it over several keys, or let the producer
        choose keys: a split does not help. Else split the shard with `aws kinesis split-shard`, of a
        provisioned stream (an on-demand stream splits by itself). The KPL loses user records to the KCL
        during a split: check the stream after it, with `kpl-codec validate --stream NAME --output DIR`."""),
    kind("unknown-parent", "info", "SHD-5", "A parent that is no longer listed",
        "The shard's parent has expired, so the listing does not have it.",
        concerns=_ONLY_THE_CHECK),
)

#: About broken bytes of Kinesis records.
DAMAGED_BYTES = (
    kind("checksum-mismatch", "error", "FRM-3", "The checksum (MD5) does not match the message",
        """An aggregated record was changed or cut off, or a plain record happens to begin with the same
        four bytes. The KCL hands it on unopened, as one plain record.""",
        concerns=_ALL_WHO_OPEN,
        todo=_CORRUPT),
    kind("wrong-wire-type", "error", "MSG-5", "A known field has the wrong type",
        "A field has another type than the schema says. Decoders silently skip it, and with it the data.",
        concerns=_ALL_WHO_OPEN,
        todo=_REWRITE),
    kind("missing-field", "error", "MSG-6", "A required field is missing",
        """The KCL hands the whole record on unopened; others invent a value. The usual cause is a writer
        with a proto3 schema: it leaves out index 0 and empty data.""",
        concerns=_ALL_WHO_OPEN,
        todo=_REWRITE),
    kind("index-out-of-table", "error", "MSG-7", "A user record points past the end of a key table",
        "Its key cannot be known. The KCL delivers the user records before it and drops the rest.",
        concerns=_ALL_WHO_OPEN,
        todo=_REWRITE),
    kind("key-utf-8", "error", "MSG-8", "A key that is not UTF-8",
        "The bytes of a key are no text. The KCL replaces them, so the key and its hash change on the way.",
        concerns=_ALL_WHO_OPEN,
        todo=_REWRITE),
    kind("key-too-long", "error", "MSG-9", "A partition key of more than 256 characters",
        "Kinesis takes no such key. With one, a small record can grow to gigabytes.",
        concerns=_ALL_WHO_OPEN,
        todo=_REWRITE),
    kind("key-unusable", "error", "MSG-8", "A user record whose key is not usable",
        "Its table entry is not UTF-8 or too long, so the key cannot be given as text.",
        concerns=_ALL_WHO_OPEN,
        todo=_REWRITE),
    kind("hash-key", "error", "KEY-3", "An invalid explicit hash key",
        "It is no decimal number from 0 to 2^128 - 1. The KCL stops at it or drops the whole aggregate.",
        concerns=_ALL_WHO_OPEN,
        todo=_REWRITE),
    kind("no-user-records", "error", "MSG-10", "An empty aggregate",
        "The user records meant for it are gone. Every deaggregator delivers nothing, and says nothing.",
        concerns=_ALL_WHO_OPEN,
        todo=_REWRITE),
    kind("no-data", "error", "SPK-1", "A Kinesis record without data",
        "The captured record has no data at all, not even of length zero.",
        concerns=_ALL_WHO_OPEN,
        todo=_CORRUPT),
    *(kind(code, "error", MalformedMessage(code=code).requirement, f"No protobuf: {code.replace('-', ' ')}",
           """The checksum is right, so the writer produced it like this: nothing changed it on the way. A
           message nested too deeply was made to crash a consumer.""",
           concerns=_ALL_WHO_OPEN,
           todo=_REWRITE)
      for code in get_args(MalformedCode)),
)

#: About the writers of aggregates.
WRITERS = (
    kind("swapped-keys", "warning", "FPR-3", "The writer is known to swap keys",
        """Its bytes look like those of a writer that gives user records the keys of others in the same
        aggregate: fluent-bit's Go plugin, npm's aws-kinesis-agg with keys that look like integers,
        kinesis4cats, hawknewton's Ruby gem. The bytes alone cannot prove it.""",
        concerns="Every consumer that uses keys: to group, to order, to deduplicate.",
        todo="""Find the writer (spec/12-implementations.md), and compare keys with the data, which may have
        the right ones."""),
    kind("writer", "info", "FPR-2", "The writer was recognised by its bytes",
        """The bytes of some aggregates look like those of the writer named. The KPL and kpl_codec are not
        named.""",
        todo="Nothing. spec/12-implementations.md says what each consumer makes of its records."),
)

#: Codes of `CaptureError`; a finding's kind is ``capture-`` and the code.
_CODES = {
    "": "A part of the capture that cannot be read",
    "file": "A file that is cut short, or not of its format",
    "empty": "An empty file: the capture may have been lost",
    "too-large": "A JSON value, or an item of a list, of more than 32 MiB",
    "json": "A value that is cut short, or was never JSON",
    "duplicate-member": "JSON that has a member twice",
    "utf-8": "Text that is not UTF-8",
    "no-data-column": "A Parquet file without a column of Kinesis data",
    "unknown-shape": "JSON that is no known form of Kinesis record",
    "other-form": "A file of a form that is not read: convert it first",
    "base64": "Data that should be base64, and is not",
    "missing-field": "A record without a field it needs",
    "wrong-type": "A field of the wrong type",
    "gone": "A record that the stream no longer gives",
    "only": "A part of the list of records to read that cannot be read",
}
#: About the input: unreadable, captured twice, or empty.
INPUT = (
    *(kind(f"capture-{code}" if code else "capture", "error", "CAP-1", title,
           "What is in it was not checked.",
           concerns=_ONLY_THE_CHECK,
           todo="Look at the place that the finding names, and capture that part of the stream again.")
      for code, title in _CODES.items()),
    kind("duplicate", "warning", "LIN-2", "One sequence number captured more than once",
        """Captures overlap, or were written twice: it is one record on the stream, with the same keys and
        data.""",
        concerns="Nobody who reads the stream. A job over the same captures counts the user record twice.",
        todo="Drop duplicates on shard, sequence number and sub-sequence number together."),
    kind("capture-other-content", "error", "LIN-12",
        "Several records under one sequence number, whose keys or data differ",
        """No two records of a stream have one name. Somebody before the capture has deaggregated them and
        kept only the sequence number, as awslabs' deaggregator for Go does; or a capture is spoilt, or was
        made by hand.""",
        concerns="""Everybody who drops duplicates, or remembers what was handled, by shard, sequence number
        and sub-sequence number: of these records they keep one.""",
        todo="""Drop none of them. Let the program that deaggregates number the user records of each Kinesis
        record from 0 (subSequenceNumber), or capture the Kinesis records before it."""),
    kind("shard-of-file", "warning", "SPK-122",
        "A file that is named after another shard than its sequence numbers hint at",
        """Which of the two is right cannot be said. The records have no shard here, are not called lost.""",
        concerns=_ONLY_THE_CHECK,
        todo="""Name the file after no shard if it has records of several shards: then each record's sequence
        number counts. If the names of two files were swapped, rename them."""),
    kind("capture-timestamp", "warning", "CAP-13", "An arrival time that cannot be read",
        "The record was checked, without its time: it is missing in charts of times.",
        concerns=_ONLY_THE_CHECK,
        todo="""Have the capture written with seconds or milliseconds since 1970, or as ISO 8601 with an
        offset."""),
    kind("capture-hidden", "info", "SPK-10",
        "A file that was left out: its name begins with . or _, or it is of results",
        """It was not read: such names mean that a file is no data or not complete; results hold what was
        checked before.""",
        concerns=_ONLY_THE_CHECK,
        todo="If the file is a capture, rename it, or name it to the command by itself."),
    kind("capture-user-data", "error", "SPK-44", "User data, not Kinesis records",
        "Firehose writes such JSON to S3: it has opened the aggregates, so there is nothing left to check.",
        concerns=_ONLY_THE_CHECK,
        todo="""Capture the stream before Firehose: GetRecords answers, Lambda events, or `kpl-codec
        validate --stream NAME --output DIR`."""),
    kind("capture-encoded-frame", "error", "SPK-45", "An aggregated record that no consumer recognises",
        """An aggregated record as base64, hexadecimal digits or text, or with other first four bytes
        (erlmld writes 00 89 9A C2, and 01 89 9A C2 if it compresses). All its user records arrive as one.""",
        concerns="Every reader, if the stream holds it like this.",
        todo="""If the stream holds text, fix the writer: boto3 encodes by itself. If only the capture does,
        decode the capture once. With a foreign magic, only the library that wrote the record reads it."""),
    kind("nested-aggregate", "error", "NST-1", "An aggregated record inside another record",
        """It is in the data of a user record, or of a Kinesis record: as it is, in base64, hexadecimal
        digits, gzip, zlib or zstd, or behind a header. Deaggregators open once what begins with the magic:
        the KCL, Lambda functions, Firehose and all others hand it on as one user record.""",
        concerns="Every reader of the stream: the user records within do not arrive as such.",
        todo="""Find the writer, usually a relay. It must open what it forwards (`kpl_codec.deaggregate`),
        or put it as the whole data of a Kinesis record, by PutRecords and not by the KPL. Until then
        readers undo what is around it, and call `kpl_codec.deaggregate` once more."""),
    kind("not-accounted", "error", "ACC-1", "Input of which nobody can say that it was read",
        """What was read of it, named in a finding, known to be empty or left out is not all that it holds:
        its records may be missing in every count here.""",
        concerns=_ONLY_THE_CHECK,
        todo="""Check whether the file changed meanwhile, and run the job again. If it stays, it is a bug:
        report it."""),
    kind("no-records", "warning", "SPK-21", "Nothing to check",
        "The input holds no Kinesis record. That does not mean that the stream is clean.",
        concerns=_ONLY_THE_CHECK,
        todo="Check that the input is the place that was meant, and that the capture wrote something."),
)

#: About a live stream: kinds of a watch.
WATCH = (
    kind("not-watched", "error", "WCH-22", "The watch could not read a shard",
        "For three periods every attempt to read this shard failed. What happened on it then is not known.",
        concerns="Nobody who reads the stream, as far as is known.",
        todo="""Look at the error named: permissions, credentials, the network, or a budget that is too
        small."""),
    kind("hot-key", "warning", "WCH-19", "A partition key that gets far more than its share",
        "One key alone gets at least half of what the mean shard gets.",
        concerns="Readers and writers of its shard, which reaches its limits while others are idle.",
        todo="""Spread the key over several keys, or let the producer choose keys. Splitting the shard does
        not help."""),
    kind("lag", "warning", "WCH-32", "Records are read late",
        """More time than allowed passes between a record's arrival on the stream and its reading, by the
        consumer that watches its own events, or by this watch.""",
        concerns="Whoever waits for this consumer's output. If the watch is late, so are its findings.",
        todo="""Give the consumer more concurrency, and the watch a larger budget or a smaller part of the
        stream."""),
    kind("throttled", "info", None, "The service refuses reads",
        "The readers of this shard together ask for more than 5 calls or 2 MiB a second.",
        concerns="All GetRecords readers of the shard, this watch too; it waits longer and longer.",
        todo="Use enhanced fan-out for the heaviest reader, or let each read less often."),
    kind("stream-recreated", "warning", "WCH-11", "The stream was deleted and created again",
        """It has its old name, but none of its old records. The watch has discarded what it knew of the old
        stream.""",
        concerns="Consumers with checkpoints: their sequence numbers are of a stream that is gone.",
        todo="""Find out who has deleted the stream, if it was not meant. In both cases every consumer must
        forget the old stream, whose shard ids begin anew, and begin at TRIM_HORIZON. The KCL: delete its
        lease table, or take a new application name. Lambda: delete the event source mapping, and make a new
        one. Spark: a new checkpoint folder and a new output folder. Ledgers of an audit: a new folder."""),
)

#: About user records that were put and handled: kinds of an audit.
AUDIT = (
    kind("audit-missing", "critical", "AUD-16", "Put and never handled",
        """The service has stored these user records, and the consumer has handled later ones of the shard,
        not these.""",
        concerns=_ITS_READERS,
        todo=f"""Look at the consumer: its checkpoints, poison records, filters, errors at that time. Then
        the user records can be put again. {_PUT_AGAIN}"""),
    kind("audit-dropped", "critical", "AUD-16", "Put, and dropped by the KCL's rule",
        """Their aggregate has user records outside the shard's range, and the consumer has not handled
        them. A KCL that knows the range of its shard silently drops such an aggregate whole.""",
        concerns=_ITS_READERS,
        todo=f"Fix the writer: aggregate per shard. Then the user records can be put again. {_PUT_AGAIN}"),
    kind("audit-broken", "critical", "AUD-16", "Put, and cannot be opened",
        "The bytes on the stream are broken, so consumers fail on them, or skip them.",
        concerns=_ITS_READERS,
        todo="""Fix the writer. `kpl-codec inspect --stream NAME --shard-id ID --sequence-number NUMBER`
        shows what is wrong with the record."""),
    kind("audit-expired", "critical", "AUD-16", "Put, not handled, and past retention",
        "The stream does not hold them any more, so nobody can say why they were not handled.",
        concerns=_ITS_READERS,
        todo="""Raise the stream's retention (`aws kinesis increase-stream-retention-period`), and audit
        more often. Only the application that put these user records has their data."""),
    kind("audit-unread", "critical", "AUD-16", "On a shard that the consumer never read",
        "No user record of this shard was ever handled.",
        concerns=_ITS_READERS,
        todo="""Let a worker take the shard: look at the leases of the consumer. It then reads these user
        records from its initial position, and nothing has to be put again: the results of the audit call them
        unread. Only if no worker will read them (initial position LATEST, a checkpoint behind them), put
        them again, too: spec/guides/put-again.md."""),
    kind("audit-unknown", "warning", "AUD-12", "Perhaps handled: part of the consumer's ledger is lost",
        """No row that can be read names these user records as handled. Rows that may have named them are
        lost, or the same bytes were handled under another sequence number: the detail says which.""",
        concerns=_ONLY_THE_CHECK,
        todo="""Find the missing files of the consumer's ledger, and audit again. Put nothing again before:
        what is called unknown may have been handled."""),
    kind("audit-unreadable", "warning", "AUD-21", "A file or rows of a ledger or a table cannot be read",
        "The audit skipped them. User records that they may have named are called unknown, not missing.",
        concerns=_ONLY_THE_CHECK,
        todo="""Write the file that the detail names again, whole. If you take a consumer's file away
        instead, what only that file named is called missing."""),
    kind("audit-incomplete", "warning", "AUD-10", "A producer's ledger is not whole",
        "A producer still runs, has crashed, or part of its ledger is lost. What it lacks is not known.",
        concerns=_ONLY_THE_CHECK,
        todo="""Audit again when the producer is closed. After a crash, compare what was handled with the
        source of the data; with `Ledger(FOLDER, wait=True)` a future has its result only when the ledger
        has its row."""),
    kind("audit-twice", "warning", "AUD-13", "Handled more than once",
        "The consumer took them again, its table is there twice, or a producer sent copies: see the detail.",
        concerns="Consumers whose effects are not idempotent.",
        todo="""Deduplicate on shard, sequence number and sub-sequence number; look at checkpoints and
        retries. A table that is there twice counts twice: leave one out."""),
    kind("audit-unclaimed", "warning", "AUD-14", "Handled, but no producer's ledger has the sequence number",
        "A writer without a ledger has put them, or an attempt that got no answer was stored all the same.",
        todo="""Give every writer a ledger, and name all ledgers to the audit; with --stream it tells the
        two apart."""),
    kind("audit-refused", "warning", "AUD-10", "Reported to the program that put it as not delivered",
        "Their futures failed. Where the detail says so, they may be on the stream all the same.",
        concerns="The application that put them, if it did not look at the result.",
        todo="""Put the user records again if they matter: the code in the detail says why they were
        refused."""),
    kind("audit-damaged", "info", "AUD-27", "A consumer's ledger is damaged, or not all there",
        """If nothing is unknown, no harm was done: a consumer that is killed while it writes leaves a cut
        file.""",
        concerns=_ONLY_THE_CHECK,
        todo="""Look at how files come from the consumer to the audit: full disks, broken copies, cut log
        lines."""),
    kind("audit-aside", "info", "AUD-22", "Put aside by the consumer's poison hook",
        """The consumer failed on these user records and passed them to its poison hook. They are neither
        handled nor missing.""",
        todo="Look at the user records where the consumer's poison hook keeps them."),
    kind("audit-not-yet", "info", "AUD-11", "Too early to say",
        "The consumer has not handled anything later of the shard, so it may still come to them.",
        todo="Audit again later, or say with `--put-before WHEN` what must be handled by now."),
)
# fmt: on

#: Every listed kind, in the order they are shown.
ALL = (*PLACEMENT, *DAMAGED_BYTES, *WRITERS, *INPUT, *WATCH, *AUDIT)
