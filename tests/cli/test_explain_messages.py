"""``kpl-codec explain`` with what people paste: the right section first, or nothing; never a wrong one."""

from __future__ import annotations

import re

import pytest

from kpl_codec.cli.explain import symptoms
from kpl_codec.cli.main import main
from kpl_codec.deaggregation.fingerprints import SIGNS, WRITERS
from kpl_codec.findings import KINDS
from kpl_codec.shards.placement import CAUSES

PLAIN = r"Data begins with \xf3\x89\x9a\xc2, or is garbage, or cannot be decoded"
BASE64 = "Data begins with 84mawg"
SCHEMA = r"Data begins with \x03\x00 or \x03\x05, and then 16 odd bytes"
TWICE = "User records arrive twice (duplicates), or out of order"
LOST = "Records are missing (lost), or a consumer gets nothing"
BOTO = "NoRegionError, NoCredentialsError, AccessDeniedException and others of boto3"
LEASE = "A checkpoint of the KCL fails: instance doesn't hold the lease"
SHARD_END = "The KCL says that the application must checkpoint"
THROUGHPUT = "ProvisionedThroughputExceededException while reading or writing"
UNDELIVERED = "user record not delivered: expired (...), or refused, closed, dropped"
LEDGER = "the ledger of ... cannot be written to ... in the log"
FAILED = "PutRecords failed: ReadTimeoutError (or another code) in the log of a producer"
AGAIN = "A Lambda function handles good records again and again"
BEHIND = "A Lambda function falls behind: its iterator age rises"
ANOTHER_STREAM = "StartingSequenceNumber ... is invalid"
ABSENT = "No module named 'kpl_codec', or Failed to find"
CALL = "botocore.errorfactory.ClientError: An error occurred"
LOGGED = "2026-11-26 12:00:00,123 ERROR kpl_codec.producer"

#: What people paste, as programs print it, and the beginning of what comes first; None: nothing is about it.
MESSAGES: list[tuple[str, str | None]] = [
    # -- an aggregated record that is read as a plain one: Python
    ("UnicodeDecodeError", PLAIN),
    ("'utf-8' codec can't decode bytes in position 0-2: invalid continuation byte", PLAIN),
    ("UnicodeDecodeError: 'ascii' codec can't decode byte 0xf3 in position 0: ordinal", PLAIN),
    (r"gzip.BadGzipFile: Not a gzipped file (b'\xf3\x89')", PLAIN),
    ("zlib.error: Error -3 while decompressing data: incorrect header check", PLAIN),
    (r"_pickle.UnpicklingError: invalid load key, '\xf3'.", PLAIN),
    ("google.protobuf.message.DecodeError: Error parsing message with type 'orders.Order'", PLAIN),
    (r"b'\xf3\x89\x9a\xc2\n\x01a'", PLAIN),
    (r"data starts with \xF3\x89\x9A\xC2", PLAIN),
    ("my consumer gets binary garbage that starts with f3 89 9a c2", PLAIN),
    ("F3899AC2", PLAIN),
    ("f3 89 9a c2 0a 01", PLAIN),
    ("0xf3 0x89 0x9a 0xc2 0x0a", PLAIN),
    ("00000000  f3 89 9a c2 0a 0a 63 75  73 74 6f 6d 65 72 2d 31  |......customer-1|", PLAIN),
    ("00000000: f389 9ac2 0a0a 6375 7374 6f6d 6572 2d31  ......customer-1", PLAIN),
    ("In C: { 0xf3, 0x89, 0x9a, 0xc2, 0x0a }", PLAIN),
    (r'{"data": "\u00f3\u0089\u009a\u00c2\n\n"}', PLAIN),
    (r'data: "\363\211\232\302\n\ncustomer-1"', PLAIN),
    ("the log has \xf3\u2030\u0161\xc2 at the beginning", PLAIN),
    ("the log has \xf3\x89\x9a\xc2 at the beginning", PLAIN),
    # -- Node
    ("<Buffer f3 89 9a c2 0a 03 63 2d 30 ... 7 more bytes>", PLAIN),
    ("Uint8Array(18) [\n  243, 137, 154, 194,  10,  10,\n   99, 117, 115, 116, 111, 109\n]", PLAIN),
    ('{"type":"Buffer","data":[243,137,154,194,10,10,99,117]}', PLAIN),
    ("SyntaxError: Unexpected token \ufffd in JSON at position 0", PLAIN),
    ("SyntaxError: Unexpected token '\ufffd', \"\ufffd\ufffd\n\" is not valid JSON", PLAIN),
    ("SyntaxError: Unexpected token 'ó', \"ó\x89\x9aÂ\" is not valid JSON", PLAIN),
    ("SyntaxError: Unexpected token ó in JSON at position 0", PLAIN),
    ("SyntaxError: Unexpected token 's', \"s\t\x1aB\n\x01a\"... is not valid JSON", PLAIN),
    ("TypeError [ERR_ENCODING]: The encoded data was not valid for encoding utf-8", PLAIN),
    ("Error: incorrect header check\n  errno: -3,\n  code: 'Z_DATA_ERROR'", PLAIN),
    # -- Java, Flink
    ("[-13, -119, -102, -62, 10, 3", PLAIN),
    ("com.fasterxml.jackson.core.JsonParseException: Invalid UTF-8 start byte 0x89", PLAIN),
    ("JsonParseException: Unexpected character ('\ufffd' (code 65533 / 0xfffd)): expected a", PLAIN),
    ("JsonParseException: Unexpected character ('\xf3' (code 243)): expected a valid value", PLAIN),
    ("JsonParseException: Unrecognized token '\xf3\x89\x9a\xc2': was expecting (JSON String, Number", PLAIN),
    ("java.nio.charset.MalformedInputException: Input length = 1", PLAIN),
    ("java.util.zip.ZipException: Not in GZIP format", PLAIN),
    ("java.util.zip.DataFormatException: incorrect header check", PLAIN),
    ("java.io.StreamCorruptedException: invalid stream header: F3899AC2", PLAIN),
    ("com.google.protobuf.InvalidProtocolBufferException: Protocol message contained an invalid tag", PLAIN),
    ("java.io.IOException: Failed to deserialize JSON '\ufffd\ufffd\n'.", PLAIN),
    # -- Go, Rust, .NET, Ruby, PHP, Logstash, Fluentd
    ("invalid character '\xf3' looking for beginning of value", PLAIN),
    ("unexpected data [243 137 154 194 10 10 99 117]", PLAIN),
    ("proto: cannot parse invalid wire-format data", PLAIN),
    ("gzip: invalid header", PLAIN),
    ("zlib: invalid header", PLAIN),
    ("called `Result::unwrap()` on an `Err` value: Utf8Error { valid_up_to: 0, error_len: Some(3) }", PLAIN),
    ("FromUtf8Error: invalid utf-8 sequence of 3 bytes from index 0", PLAIN),
    ("System.Text.Json.JsonReaderException: '0xF3' is an invalid start of a value. LineNumber: 0", PLAIN),
    ("Unexpected character encountered while parsing value: \ufffd. Path '', line 0, position 0.", PLAIN),
    ("Encoding::UndefinedConversionError: \"\\xF3\" from ASCII-8BIT to UTF-8", PLAIN),
    ("Yajl::ParseError: lexical error: invalid bytes in UTF8 string.", PLAIN),
    ("JSON::ParserError: source sequence is illegal/malformed utf-8", PLAIN),
    ("Zlib::GzipFile::Error: not in gzip format", PLAIN),
    ("json_decode: Malformed UTF-8 characters, possibly incorrectly encoded", PLAIN),
    ("[ERROR][logstash.inputs.kinesis] Error processing record: Input length = 1", PLAIN),
    ("[ERROR][logstash.codecs.json][main] JSON parse error, original data now in message field "
     "{:message=>\"Unrecognized token\", :data=>\"\"}", PLAIN),
    ("event that has a different character encoding than you configured. {:text=>\"\\\\xF3\\\\x89", PLAIN),
    # -- base64, the Glue Schema Registry
    ("84mawgoBYRABGgMIABoDCAEa", BASE64),
    ('{"Data": "84mawgoBYRABGgMIABoDCAEa", "PartitionKey": "a"}', BASE64),
    ("ODRtYXdnb0JZ", BASE64),
    ("SyntaxError: Unexpected token m in JSON at position 2\n    at JSON.parse (<anonymous>)", BASE64),
    (r"\x03\x05\x12", SCHEMA),
    ("AwC3tKfwnJZOSqaH", SCHEMA),
    ("<Buffer 03 00 b7 b4 a7 f0 9c 96 4e 4a a6 87 fb 5d e9 ef 0c 63>", SCHEMA),
    ("[3, 0, -73, -76, -89, -16, -100, -106, 78, 74]", SCHEMA),
    ("org.apache.kafka.common.errors.SerializationException: Unknown magic byte!", "Unknown magic byte!"),
    ("GlueSchemaRegistryIncompatibleDataException: Invalid schema registry header version byte in data",
     "Unknown magic byte!"),
    # -- the KCL
    ("Unexpected exception during deaggregation, record was: {Sequence", "The KCL logs Unexpected"),
    ("Cannot get the shard for this ProcessTask, so duplicate KPL user records in the event of resharding "
     "will not be dropped during deaggregation.", "The KCL logs Cannot get the shard"),
    ("IllegalArgumentException: Application didn't checkpoint at end of shard shardId-000000000003. "
     "Application must checkpoint upon shard end.", SHARD_END),
    ("Application did not checkpoint at end of shard", SHARD_END),
    ("ShutdownException: Can't update checkpoint - instance doesn't hold the lease for this shard", LEASE),
    ("Worker w1 could not prepare checkpoint for shard s because it does not hold the lease", LEASE),
    ("half of my records never arrive after a reshard", LOST),
    ("records never arrive", LOST),
    # -- Lambda, Firehose
    ("2026-11-27T12:00:00.000Z 5f2c Task timed out after 60.00 seconds", "A Lambda function times out"),
    ("Task timed out", "A Lambda function times out"),
    ("Sandbox.Timedout", "A Lambda function times out"),
    ("a lambda function  times out", "A Lambda function times out"),
    ("Status: timeout, Sandbox.Timedout: Task timed out after 3.00 seconds", "A Lambda function times"),
    ("RequestId: 5f2c Error: Runtime exited with error: signal: killed\nRuntime.ExitError",
     "A Lambda function is killed: it needs more memory"),
    ("my iterator age keeps growing", BEHIND),
    ("GetRecords.IteratorAgeMilliseconds", BEHIND),
    ("ParallelizationFactor: 10", BEHIND),
    ("how do I skip a poison pill", AGAIN),
    ("BisectBatchOnFunctionError", AGAIN),
    ('{"batchItemFailures": [{"itemIdentifier": "4954511524349098501828006771497314458"}]}',
     "Failed records disappear in Lambda"),
    ("FunctionResponseTypes: [ReportBatchItemFailures]", "Failed records disappear in Lambda"),
    ("Failed records disappear in Lambda", "Failed records disappear in Lambda"),
    ('"errorCode":"DataFormatConversion.ParseError', "Firehose: Data"),
    ('{"requestContext": {"condition": "RetryAttemptsExhausted"}, "KinesisBatchInfo": {}}', "SQS-wrapped"),
    ("FilterCriteria: {Filters: [{Pattern: ...}]}", "A Lambda function never sees some records"),
    ("MaximumRecordAgeInSeconds: 3600", "Failed records disappear in Lambda"),
    # -- AWS's errors
    ("WriteProvisionedThroughputExceeded", THROUGHPUT),
    ("AWS/Kinesis IncomingRecords", "Numbers of records differ"),
    ("ProvisionedThroughputExceededException", THROUGHPUT),
    (f"{CALL} (ProvisionedThroughputExceededException) when calling the GetRecords operation: Rate exceeded "
     "for shard shardId-000000000000 in stream orders under account 123456789012.", THROUGHPUT),
    ("Rate exceeded for shard shardId-000000000000 in stream orders", THROUGHPUT),
    ("1 validation error detected: Value at 'records.1.member.data' failed to satisfy constraint: "
     "Member must have length less than or equal to 1048576", "Member must have length"),
    (f"{CALL} (ExpiredIteratorException) when calling the GetRecords operation: Iterator expired.",
     "ExpiredIteratorException"),
    (f"{CALL} (ResourceNotFoundException) when calling the GetRecords operation: Stream orders under account "
     "123456789012 not found.", BOTO),
    (f"{CALL} (KMSDisabledException) when calling the PutRecords operation: arn:aws:kms:key is disabled.",
     "KMSDisabledException"),
    ("botocore.exceptions.NoRegionError: You must specify a region.", BOTO),
    ("You must specify a region", BOTO),
    ("botocore.exceptions.ProfileNotFound: The config profile (other) could not be found", BOTO),
    ("CredentialsProviderError: Could not load credentials from any providers", BOTO),
    ("Error: Region is missing", BOTO),
    ("SdkClientException: Unable to load credentials from any of the providers in the chain Aws", BOTO),
    ('Could not connect to the endpoint URL: "https://kinesis.eu-west-1.amazonaws.com/"', BOTO),
    ("operation error Kinesis: PutRecords, failed to sign request: failed to retrieve credentials: failed to "
     "refresh cached credentials, no EC2 IMDS role found, operation error ec2imds: GetMetadata", BOTO),
    (f"{CALL} (KMSAccessDeniedException) when calling the GetRecords operation: The ciphertext refers to a "
     "customer master key that does not exist", "KMSAccessDeniedException"),
    (f"{CALL} (InvalidArgumentException) when calling the GetShardIterator operation: StartingSequenceNumber "
     "495929 used in GetShardIterator on shard shardId-000000000000 in stream orders under account "
     "123456789012 is invalid because it did not come from this stream.", ANOTHER_STREAM),
    ("InvalidArgumentException: Invalid StartingSequenceNumber. It encodes shardId-000000000438, while it "
     "was used in a call to a shard with shardId-000000000488 (Service: Kinesis", ANOTHER_STREAM),
    # -- ours, and other packages'
    ("[ERROR] Runtime.ImportModuleError: Unable to import module 'app': No module named 'kpl_codec'", ABSENT),
    ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kpl-kinesis. Make sure the provider name is "
     "correct and the package is properly registered. SQLSTATE: 42K02", ABSENT),
    ('File "/usr/lib/python3.11/site-packages/pyspark/daemon.py", line 193, in manager\n'
     "    code = worker(sock, authenticated)\nBrokenPipeError: [Errno 32] Broken pipe", "PySpark prints"),
    ("user record not delivered: expired (RequestTimeout) after 12 attempts", UNDELIVERED),
    (f"{LOGGED}: 500 user records not delivered: refused (ResourceNotFoundException)", UNDELIVERED),
    ("1 user record not delivered: closed (no-answer)", UNDELIVERED),
    (f"{LOGGED} the ledger of p1 cannot be written to /a/b, and is tried again: No space left", LEDGER),
    (f"{LOGGED} PutRecords failed: ReadTimeoutError", FAILED),
    ("the producer holds 5000 user records (99999 bytes) and takes no more", "ProducerFull"),
    ("kpl_codec.errors.IndexOutOfTable: index 9 is outside partition_key_table, whose length is 1 "
     "(at byte 5) [MSG-7]", "IndexOutOfTable"),
    ("shard shardId-000000000007 is not in the map [SHD-4]", "SHD-4"),
    ("1 of 11 user records are defective: checksum-mismatch (1)", "checksum-mismatch"),
    ("its first 9 bytes are a sound aggregated record", '"its first N bytes are a sound aggregated record"'),
    ("nested aggregate", "nested-aggregate"),
    ("empty", "capture-empty"),
    ("Kinesis records by kind of writer: own-entries 12, other-key 45", "own-entries"),
    ("TypeError: Couldn't build proto file into descriptor pool: duplicate symbol 'aws.kinesis.protobuf.Tag'",
     "TypeError: ... duplicate symbol"),
    ("No module named 'six'", "ModuleNotFoundError: No module named 'six' from aws_kinesis_agg"),
    # -- nothing is about it
    ("banana", None),
    ("banana kinesis", None),
    ("out of order, and late", None),
    ("KeyError: 'kinesis'", None),
    ("AttributeError: 'Record' object has no attribute 'sub_sequence_number'", None),
    ("java.util.concurrent.TimeoutException: a worker is empty", None),
    ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", None),
    ("gzip.BadGzipFile: Not a gzipped file (b'{\"')", None),
    ("SyntaxError: Unexpected token o in JSON at position 1", None),
    ("RangeError: index out of range: 12 + 10 > 20", None),
    ("pydantic_core._pydantic_core.ValidationError: 1 validation error for Order", None),
    ("java.lang.UnsupportedOperationException: null", None),
    ("click.exceptions.UsageError: no such option, and pandas.errors.OptionError", None),
    ("requests.exceptions.ConnectionError: Max retries exceeded", None),
    ("java.lang.OutOfMemoryError: Java heap space", None),
    ("SparkException: Malformed records are detected in record parsing. Parse Mode: FAILFAST.", None),
    ("PermissionError: file orders.csv cannot be written to disk", None),
    ("at 03:05:12 on 03-05-2026 with 0305 records", None),
    ("we lost 3,000,000 user records of 3,050,012", None),
    ("shards 3, 0, 12, 7 and 3, 5, 1, 2, 4", None),
    ("RequestId: 0300b7b4-a7f0-4c9e-964e-4aa687fb5de9", None),
    ("{\"errorCode\":\"Lambda.FunctionError\",\"rawData\":\"eyJhIjoxfQ==\"}", None),
    ("INFO s.a.k.l.ShardConsumer Previous PROCESS task still pending for shard shardId-0 since PT1M", None),
    ("panic: runtime error: index out of range [4] with length 4\n\ngoroutine 1 [running]:", None),
    ("Version: 3.0.5, status 403, retry in 429 ms", None),
    ("a" * 100_000, None),
]  # fmt: skip


def first_of(text: str, capsys: pytest.CaptureFixture[str]) -> str | None:
    """What comes first, without line breaks; None where nothing is about it, and few headings are shown."""
    status = main(["explain", text])
    captured = capsys.readouterr()
    if status == 0:
        assert len([row for row in captured.out.splitlines() if row and not row.startswith(" ")]) <= 10
        return " ".join(captured.out.split())
    assert status == 2
    assert captured.err.startswith("kpl-codec: nothing is about ")
    assert 3 <= len(captured.out.splitlines()) <= 8
    assert "spec/guides/by-symptom.md" in captured.out
    return None


@pytest.mark.parametrize(("text", "best"), MESSAGES)
def test_what_people_paste_finds_the_right_section_or_nothing(
    text: str, best: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    found = first_of(text, capsys)
    assert found == best if best is None or found is None else found.startswith(best)


def test_every_name_that_a_command_prints_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """Of findings, writers, causes, and what became of a user record."""
    results = ("delivered", "dropped", "altered", "raw", "misplaced", "handled", "missing", "too early")
    for name in (*WRITERS, *(sign.name for sign in SIGNS), *CAUSES, *KINDS, *results):
        found = first_of(name, capsys)
        assert found is not None, name
        assert found.startswith((name, f"capture-{name}")), name


def test_every_sign_finds_its_own_section_and_no_other() -> None:
    sections = symptoms()
    signs = [(sign, section.title) for section in sections for sign in section.signs]
    assert len(signs) > 70
    for sign, title in signs:
        text = f"2026-11-27 ERROR in orders-42: {sign.replace(' ... ', ' of p1 ')}, and goes on"
        if sign[0] == "=" or len(sign) == len("0x0300"):
            text = sign[1:] if sign[0] == "=" else f"{sign} 0xb7"
        assert [one.title for one in sections if one.is_in(text)] == [title], sign


def test_a_section_is_complete_in_itself() -> None:
    """It is shown alone: what it leans on is code of the sections before, which the command says."""
    for section in symptoms():
        leans = re.search(r"\b(?:as|see) (?:above|below)\b|\b(?:last|next|previous) section\b", section.text)
        assert leans is None, section.title
