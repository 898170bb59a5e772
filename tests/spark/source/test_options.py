"""Options: no Spark session, no server."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from kpl_codec.producer import ProducerConfig
from kpl_codec.shards.starting_position import (
    LATEST,
    TRIM_HORIZON,
    StartingPosition,
    after_record,
    at_record,
    at_time,
    iterator_arguments,
)
from kpl_codec.spark.source.datasource import KinesisDataSource
from kpl_codec.spark.source.positions import OptionError
from kpl_codec.spark.source.source_options import (
    NOT_NEEDED,
    OPTIONS,
    Connection,
    SourceOptions,
    parse_options,
)

DURATIONS_AND_NUMBERS = (
    "describeShardInterval",
    "retryTimeoutSeconds",
    "idleTimeBetweenReadsInMs",
    "maxSecondsPerShard",
    "maxFetchRecordsPerShard",
    "fetchCallsPerSecondPerShard",
    "maxBatchBytes",
    "maxDecompressedSize",
    "sink.recordTtl",
)


@pytest.mark.requirement("SPK-64")
@pytest.mark.parametrize("name", [option.names[0] for option in OPTIONS if option.names[0] != "stream"])
def test_an_empty_text_is_the_default(name: str) -> None:
    assert parse_options({"stream": "s", name: ""}) == parse_options({"stream": "s"})


@pytest.mark.requirement("SPK-64")
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "stream"),
        ({"stream": ""}, "stream"),
        ({"stream": "s", "regoin": "x"}, "regoin"),
        ({"stream": "s", "maxFetchRecordsPerShard": "-1"}, "maxFetchRecordsPerShard"),
        ({"stream": "s", "maxFetchRecordsPerShard": "many"}, "maxFetchRecordsPerShard"),
        ({"stream": "s", "failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"stream": "s", "policy": "lenient"}, "policy"),
        ({"stream": "s", "policy": "none", "placement": "true"}, "policy"),
        ({"stream": "s", "policy": "none", "maxDecompressedSize": "100"}, "policy"),
        ({"stream": "s", "policy": "none", "unframe": "true"}, "policy"),
        ({"stream": "s", "maxDecompressedSize": "-1"}, "maxDecompressedSize"),
        ({"stream": "s", "maxDecompressedSize": "gzip"}, "maxDecompressedSize"),
        ({"stream": "s", "startingPosition": "yesterday"}, "startingPosition"),
        ({"stream": "s", "startingPosition": "2026-11-21T10:00:00"}, "startingPosition"),
        ({"stream": "s", "startingPosition": "{"}, "startingPosition"),
        ({"stream": "s", "roleArn": "a", "stsRoleArn": "b"}, "stsRoleArn"),
        ({"stream": "s", "sink.recordTtl": "1"}, "sink.recordTtl"),
        ({"stream": "s", "sink.ordering": "some"}, "sink.ordering"),
        ({"stream": "s", "sink.compression": "lz4"}, "sink.compression"),
        ({"stream": "one,two"}, "stream"),
        ({"streamARN": "arn:aws:s3:::bucket"}, "streamARN"),
        ({"stream": "s", "streamName": "s"}, "streamName"),
        ({"stream": "arn:aws:kinesis:eu-west-1:1:stream/s", "region": "us-east-1"}, "region"),
        ({"stream": "s", "describeShardInterval": "soon"}, "describeShardInterval"),
        ({"stream": "s", "describeShardInterval": "5 parsecs"}, "describeShardInterval"),
        ({"stream": "s", "consumerType": "SubscribeToShard"}, "consumerName"),
        ({"stream": "s", "serviceCredential": "c"}, "serviceCredential"),
        (
            {"stream": "s", "startingPosition": '{"at_timestamp": "1", "format": "yyyy"}'},
            "startingPosition",
        ),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(options)
    assert caught.value.fields["option"] == named


_KEYS = st.sampled_from(["at_timestamp", "format", "a", "iteratorType", "iteratorPosition", "metadata"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_KEYS | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
_TIMES = st.from_regex(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:00([+-][0-9]{2}:[0-9]{2}|Z)", fullmatch=True
)
_ANY = st.one_of(
    st.text(max_size=30), _TIMES, _JSON.map(json.dumps), st.integers().map(str), st.floats().map(str)
)


@pytest.mark.requirement("SPK-64")
@given(
    st.dictionaries(st.sampled_from(["startingPosition", "endingPosition"]), _ANY, max_size=2)
    | st.dictionaries(st.sampled_from(sorted(DURATIONS_AND_NUMBERS)), _ANY, min_size=1, max_size=1)
)
@example({"startingPosition": '{"at_timestamp": "1", "format": 5}'})
@example({"startingPosition": '{"a": ' + "[" * 100_000})
@example({"startingPosition": "0001-01-01T00:00:00+14:00"})
@example({"startingPosition": "9999-12-31T23:59:59-14:00"})
@example({"startingPosition": '{"a": {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": "five"}}'})
@example({"maxSecondsPerShard": "1e300"})
def test_no_text_of_an_option_is_another_error(options: dict[str, str]) -> None:
    try:
        found = parse_options({"stream": "s", **options})
    except OptionError:
        return
    for position in (found.starting_position, found.ending_position):
        for place in [position] if isinstance(position, StartingPosition) else position.values():
            iterator_arguments(place)  # boto3 can be asked for it
    assert 0 <= found.describe_interval < 10**14


@pytest.mark.requirement("SPK-64")
@pytest.mark.parametrize("other", ["kinesis.stream", "STREAM", "Kinesis.stream"])
def test_two_spellings_of_one_option_are_refused(other: str) -> None:
    with pytest.raises(OptionError, match=other):
        parse_options({"stream": "one", other: "two"})


@pytest.mark.requirement("SPK-64", "SPK-65")
def test_names_of_the_existing_connectors_are_understood() -> None:
    when = datetime(2026, 11, 21, 10, tzinfo=timezone.utc)
    number = "4" * 56
    for option, expected in (
        ("LATEST", LATEST),
        ("earliest", TRIM_HORIZON),
        ("AT_TIMESTAMP 2026-11-21T10:00:00Z", at_time(int(when.timestamp() * 1000))),
        ("2026-11-21T11:00:00+01:00", at_time(int(when.timestamp() * 1000))),
        (f'{{"a": "{number}"}}', {"a": at_record(number)}),
        (
            f'{{"a": {{"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": "{number}"}}}}',
            {"a": after_record(number)},
        ),
    ):
        found: Any = parse_options({"kinesis.stream": "s", "kinesis.startingPosition": option})
        assert found.starting_position == expected
    found = parse_options(
        {"STREAMNAME": "s", "kinesis.stsRoleArn": "arn", "awsSecretKey": "hush", "checkpointLocation": "/x"}
    )
    assert found.connection.role_arn == "arn"


@pytest.mark.requirement("SPK-64", "ZIP-3")
def test_data_is_decompressed_to_a_size_if_one_is_given() -> None:
    assert parse_options({"stream": "s"}).max_decompressed_size is None
    found = parse_options({"stream": "s", "kinesis.maxDecompressedSize": "1000"})
    assert found.max_decompressed_size == 1000


@pytest.mark.requirement("ZIP-1")
def test_the_sink_compresses_if_it_is_asked_to() -> None:
    assert parse_options({"stream": "s"}).producer.compression == "none"
    assert parse_options({"stream": "s", "sink.compression": "gzip"}).producer.compression == "gzip"


@pytest.mark.requirement("SPK-66")
def test_secrets_do_not_show() -> None:
    found = parse_options({"stream": "s", "awsSecretAccessKey": "hush", "awsSessionToken": "quiet"})
    assert found.connection.secret_access_key == "hush"
    assert "hush" not in repr(found)
    assert "quiet" not in repr(found)


@pytest.mark.requirement("SPK-64", "SPK-66")
def test_an_unknown_option_names_those_there_are() -> None:
    with pytest.raises(OptionError) as caught:
        parse_options({"stream": "s", "regoin": "x"})
    assert "(region or regionName, perhaps)" in caught.value.expected
    for name in ("streamARN", "describeShardInterval", "sink.recordTtl", "endingPosition", "sessionToken"):
        assert name in caught.value.expected
    with pytest.raises(OptionError) as caught:
        parse_options({"stream": "s", "awsSecretAccesKey": "hush"})
    assert "hush" not in str(caught.value)


@pytest.mark.requirement("SPK-65")
def test_values_of_the_existing_connectors_are_understood(caplog: pytest.LogCaptureFixture) -> None:
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
    for option in ("stream", "streamName", "kinesis.streamARN"):
        found = parse_options({option: arn})
        assert (found.stream.name, found.called, found.connection.region) == ("orders", arn, "eu-west-1")
    assert parse_options({"stream": "s"}) == parse_options({"streamName": "s"})
    for text, seconds in (("1s", 1), ("100ms", 0.1), ("2m", 120), ("7", 7), ("0.5", 0.5), ("1h", 3600)):
        assert parse_options({"stream": "s", "describeShardInterval": text}).describe_interval == seconds
    assert parse_options({"stream": "s", "idleTimeBetweenReadsInMs": "300"}).idle_time == 0.3
    assert parse_options({"stream": "s", "shardFetchInterval": "3s"}).describe_interval == 3
    found = parse_options(
        {
            "stream": "s",
            "kinesis.sessionToken": "t",
            "kinesis.stsEndpointUrl": "https://sts.example",
            "kinesis.endpointUrl": "https://kinesis.us-east-2.amazonaws.com",
            "kinesis.consumerType": "GetRecords",
            "kinesis.fetchCallsPerSecondPerShard": "2",
            "avoidEmptyBatches": "true",
        }
    )
    assert found.connection.session_token == "t"
    assert found.connection.sts_endpoint_url == "https://sts.example"
    assert found.connection.region == "us-east-2"
    assert (found.calls_per_second, found.bytes_per_second) == (2, 2**21)
    assert [record.getMessage() for record in caplog.records] == [
        "option avoidEmptyBatches changes nothing: spec/07-spark-source.md, 7.9, says what to use instead"
    ]


@pytest.mark.requirement("SPK-65")
def test_a_time_as_the_databricks_source_takes_it() -> None:
    value = '{"at_timestamp": "2020-06-25T17:23:45Z"}'
    found = parse_options({"stream": "s", "initialPosition": value})
    assert found.starting_position == at_time(1593105825000)


@pytest.mark.requirement("SPK-115")
@pytest.mark.parametrize("option", ["startingPosition", "endingPosition"])
@pytest.mark.parametrize(
    "form", ["{}", "AT_TIMESTAMP {}", '{{"at_timestamp": "{}"}}', '{{"shardId-0": "{}"}}']
)
def test_a_time_that_kinesis_cannot_have_is_refused_with_its_unit(option: str, form: str) -> None:
    for time in ("1795627088", "0", "1356998399999", "253402300800000"):
        with pytest.raises(OptionError, match=r"2013.*ms since 1970") as caught:
            parse_options({"stream": "s", option: form.format(time)})
        assert caught.value.option == option
    with pytest.raises(OptionError, match="1795627088 ms is 1970-01-21"):
        parse_options({"stream": "s", option: form.format("1795627088")})
    for time in ("1970-01-01T00:00:00Z", "2012-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"):
        with pytest.raises(OptionError, match="2013"):
            parse_options({"stream": "s", option: form.format(time)})
    for time in ("1356998400000", "1795627088000", "2026-11-25T17:18:08Z", "9999-12-31T23:59:59Z"):
        parse_options({"stream": "s", option: form.format(time)})


@pytest.mark.requirement("SPK-64", "SPK-65", "EFO-8")
def test_which_consumer_the_options_name(caplog: pytest.LogCaptureFixture) -> None:
    def consumer(**options: str) -> Any:
        return parse_options({"stream": "s"} | options).consumer

    arn = EXAMPLES["consumerArn"]
    assert consumer() is consumer(consumerType="GetRecords") is None
    for kind in ("efo", "EFO", "SubscribeToShard"):
        assert consumer(consumerType=kind, consumerName="c") == "c"
    assert consumer(consumerType="efo", consumerArn=arn) == arn
    assert consumer(fanoutConsumerARN=arn) == arn
    assert not caplog.records
    assert consumer(consumerName="c") is None
    assert "consumerName changes nothing" in caplog.text
    for wrong in (
        {"consumerType": "push"},
        {"consumerType": "efo"},
        {"consumerType": "efo", "consumerName": "c", "consumerArn": arn},
        {"consumerType": "efo", "consumerName": "a b"},
        {"consumerType": "efo", "consumerArn": arn, "requireConsumerDeregistration": "true"},
        {"consumerType": "efo", "consumerName": "c", "requireConsumerDeregistration": "true"},
        {"requireConsumerDeregistration": "true"},
        {"consumerType": "efo", "consumerArn": arn.replace("stream/s", "stream/other")},
        {"consumerType": "efo", "consumerArn": "c"},
        # Of another account, and of another region, than the stream.
        {"consumerType": "efo", "consumerArn": arn.replace("1234", "9999"), "stream": EXAMPLES["streamARN"]},
        {"consumerType": "efo", "consumerArn": arn, "region": "us-east-1"},
    ):
        with pytest.raises(OptionError) as caught:
            consumer(**wrong)
        if "requireConsumerDeregistration" in wrong:
            assert "deregister-stream-consumer" in str(caught.value)
    assert consumer(consumerType="efo", consumerName="c", requireConsumerDeregistration="false") == "c"
    assert consumer(consumerType="efo", consumerArn=arn, stream=EXAMPLES["streamARN"]) == arn


@pytest.mark.requirement("SPK-64", "SPK-68")
def test_what_a_read_refuses_besides() -> None:
    source = KinesisDataSource({"stream": "s", "consumerType": "efo", "consumerName": "c"})
    assert source.reader(source.schema())
    assert source.streamReader(source.schema())
    # A null in a column that is NOT NULL ends in an error of Java's that names no column.
    full = StructType([StructField("explicitHashKey", StringType(), nullable=False)])
    with pytest.raises(OptionError, match="explicitHashKey string NOT NULL"):
        source.reader(full)
    twice = StructType([StructField("data", BinaryType()), StructField("DATA", BinaryType())])
    with pytest.raises(OptionError, match="each once"):
        source.streamReader(twice)


def test_equal_connections_share_a_client() -> None:
    options = {"stream": "s", "region": "eu-west-1", "awsAccessKeyId": "a", "awsSecretAccessKey": "b"}
    one, other = parse_options(options), parse_options({**options, "policy": "report"})
    assert one.client() is other.client()


#: Values for options that do not take any text.
EXAMPLES = {
    "stream": "s",
    "streamName": "s",
    "streamARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/s",
    "startingPosition": "LATEST",
    "initialPosition": "latest",
    "consumerType": "GetRecords",
    "consumerMode": "polling",
    "registeredConsumerId": "arn:aws:kinesis:eu-west-1:123456789012:stream/s/consumer/c:1",
    "fanoutConsumerARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/s/consumer/c:1",
    "consumerArn": "arn:aws:kinesis:eu-west-1:123456789012:stream/s/consumer/c:1",
    "requireConsumerDeregistration": "false",
    "sink.recordTtl": "1000",
}
#: What an option needs beside it.
_EFO = {"consumerType": "efo"}
NEEDED: dict[str, dict[str, str]] = {
    "consumerName": _EFO,
    "consumerArn": _EFO,
    "registeredConsumerId": _EFO,
}
#: Options with another unit than the one they are accepted as, or other words.
OTHER_VALUES = ("consumerMode", "streamARN")
SPEC = Path(__file__).parents[3] / "spec"
SOURCE = Path(__file__).parents[3] / "kpl_codec" / "spark" / "source"


def rows_of(path: Path, heading: str, end: str) -> list[tuple[str, ...]]:
    """The rows of the table under a heading, but the first two."""
    table = path.read_text().partition(heading)[2].partition(end)[0]
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


OTHERS = [
    (name.strip("`"), status, note)
    for name, _, status, note in rows_of(SPEC / "07-spark-source.md", "## 7.9", "Columns:")
]
OURS = rows_of(SPEC / "guides" / "spark.md", "## Options of `kpl-kinesis`", "\nA time as")


@pytest.mark.requirement("SPK-65")
def test_the_texts_have_the_options_of_the_table() -> None:
    assert {name for name, status, _ in OTHERS if status == "not needed"} == set(NOT_NEEDED)
    assert all(note for _, status, note in OTHERS if status == "not needed")
    shown = {name for row in OURS for cell in (row[0], row[2]) for name in re.findall(r"`([\w.]+)`", cell)}
    shown |= {name for name, status, _ in OTHERS if status.startswith(("same", "accepted"))}
    unshown = {name for option in OPTIONS for name in option.names} - shown - {"regionName"}
    assert unshown == set(), "ours are shown in spec/guides/spark.md; names of others in section 7.9"


def test_every_option_is_read() -> None:
    code = (SOURCE / "source_options.py").read_text()
    fields = {
        name
        for made in (SourceOptions, Connection, ProducerConfig)
        for name in vars(made)["__dataclass_fields__"]
    }
    assert {option.field for option in OPTIONS} - fields - set(
        re.findall(r'values\["(\w+)"\]', code)
    ) == set()


@pytest.mark.requirement("SPK-64")
def test_the_guide_has_the_defaults_of_the_table() -> None:
    defaults = {name: option.default for option in OPTIONS for name in option.names}
    words = {"required": None, "boto3's": None, "automatic": "0", "no limit": "0"}
    for names, cell, _ in OURS:
        shown = None if cell == "none" else words.get(cell, cell.strip("`").partition(":")[0])
        for name in re.findall(r"`([\w.]+)`", names):
            default = defaults[name]
            assert default == shown or (name == "consumerType" and shown == "polling"), name


@pytest.mark.requirement("SPK-65")
@pytest.mark.parametrize(("name", "status"), [other[:2] for other in OTHERS])
def test_the_table_of_the_other_connectors_options_is_true(
    name: str, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    def parsed(name: str) -> Any:
        stream = {} if name in ("stream", "streamName", "streamARN") else {"stream": "s"}
        return parse_options({**stream, **NEEDED.get(name, {}), f"kinesis.{name}": EXAMPLES.get(name, "1")})

    if status == "missing":
        with pytest.raises(OptionError) as caught:
            parsed(name)
        assert caught.value.option == f"kinesis.{name}"
        return
    found = parsed(name)
    assert (f"option {name} changes nothing" in caplog.text) == (name in NOT_NEEDED)
    if (match := re.fullmatch(r"accepted as `(\w+)`", status)) and name not in OTHER_VALUES:
        assert found == parsed(match[1])
