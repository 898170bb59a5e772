"""Options: no Spark session, no server."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from kpl_codec.shards import starting_position
from kpl_codec.shards.starting_position import LATEST, TRIM_HORIZON, after_record, at_record, at_time
from kpl_codec.spark.source.datasource import KinesisDataSource
from kpl_codec.spark.source.positions import OptionError
from kpl_codec.spark.source.source_options import (
    INSTEAD,
    OPTIONS,
    SourceOptions,
    parse_options,
)
from tests.every import every

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/s"
CONSUMER = f"{ARN}/consumer/c:1"
ELSEWHERE = CONSUMER.replace("1234", "9999")
NUMBER = "4" * 56
GUIDE = Path(__file__).parents[3] / "spec/guides/spark.md"
WHEN = at_time(int(datetime(2026, 11, 21, 10, tzinfo=timezone.utc).timestamp() * 1000))


def parsed(**options: str) -> SourceOptions:
    return parse_options({"stream": "s", **options})


@pytest.mark.requirement("SPK-64")
def test_an_empty_text_is_the_default() -> None:
    for option in OPTIONS:
        if option.field not in ("stream", "starting_position", "ending_position"):
            assert parsed(**{option.name: ""}) == parsed(), option.name


@pytest.mark.requirement("SPK-128")
def test_what_a_look_up_did_not_find_is_no_position() -> None:
    taken = []
    names = ("startingPosition", "kinesis.startingposition", "endingPosition")
    nothing = (None, "", "{}", "null", '{"shards": {}}', '{"s": null}', '{"s": ""}', '{"s": {}}')
    for name, value in product(names, nothing):
        options: Any = {"stream": "s", name: value}
        with suppress(OptionError):
            parse_options(options)
            taken.append((name, value))
    assert taken == []


@pytest.mark.requirement("SPK-64", "SPK-65", "SPK-66", "EFO-8")
@every(
    "options, name, expected",
    [
        ({"stream": ""}, "stream", None),
        ({"stream": "one,two"}, "stream", None),
        ({"stream": "arn:aws:s3:::bucket"}, "stream", None),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss", None),
        ({"policy": "lenient"}, "policy", None),
        ({"policy": "none", "placement": "true"}, "policy", None),
        ({"policy": "none", "maxDecompressedSize": "100"}, "policy", None),
        ({"startingPosition": "2026-11-21T10:00:00"}, "startingPosition", None),
        ({"endingPosition": '{"metadata": {"batchId": 3}}'}, "endingPosition", None),
        ({"startingPosition": '{"at_timestamp": "1", "format": "yyyy"}'}, "startingPosition", None),
        ({"roleArn": "a", "kinesis.roleArn": "b"}, "kinesis.roleArn", None),
        ({"STREAM": "two"}, "STREAM", None),
        ({"Kinesis.stream": "two"}, "Kinesis.stream", None),
        ({"Kinesis.streamname": "two"}, "streamName", None),
        ({"sink.recordTtl": "1"}, "sink.recordTtl", None),
        ({"sink.ordering": "some"}, "sink.ordering", None),
        ({"sink.compression": "lz4"}, "sink.compression", None),
        ({"stream": ARN, "region": "us-east-1"}, "region", None),
        ({"consumerType": "push"}, "consumerType", None),
        ({"consumerType": "SubscribeToShard"}, "consumerName", None),
        ({"consumerType": "efo", "consumerName": "a b"}, "consumerName", None),
        ({"consumerType": "efo", "consumerName": "c", "consumerArn": CONSUMER}, "consumerName", None),
        ({"consumerType": "efo", "consumerArn": "c"}, "consumerArn", None),
        # Of another stream, another account and another region.
        ({"consumerType": "efo", "consumerArn": CONSUMER.replace("/s", "/other", 1)}, "consumerArn", None),
        ({"consumerType": "efo", "consumerArn": ELSEWHERE, "stream": ARN}, "consumerArn", None),
        ({"consumerType": "efo", "consumerArn": CONSUMER, "region": "us-east-1"}, "consumerArn", None),
        # A value is read as it stands. Spark gives names in lower case; the error has the name of the table.
        ({"maxfetchrecordspershard": "1_000"}, "maxFetchRecordsPerShard", "an integer from 0 to 2147483647"),
        ({"maxpartitions": "\u0663"}, "maxPartitions", "an integer"),  # an Arabic 3
        ({"maxpartitions": "2147483648"}, "maxPartitions", "to 2147483647"),
        ({"maxpartitions": "9" * 5000}, "maxPartitions", "to 2147483647"),
        ({"maxpartitions": "1e3"}, "maxPartitions", "an integer"),
        ({"maxpartitions": "-1"}, "maxPartitions", "an integer"),
        ({"fetchcallspersecondpershard": "\uff13"}, "fetchCallsPerSecondPerShard", "a number from 0"),  # wide
        ({"fetchcallspersecondpershard": "nan"}, "fetchCallsPerSecondPerShard", "a number from 0"),
        ({"describeshardinterval": "\u0663s"}, "describeShardInterval", "a duration"),
        ({"describeshardinterval": "5 parsecs"}, "describeShardInterval", "a duration"),
        ({"region": " "}, "region", "a region, as eu-west-1"),
        ({"region": "eu-west-1\n"}, "region", "a region"),
        ({"endpointurl": "http://localhost "}, "endpointUrl", "without spaces"),
        ({"rolearn": "\tarn"}, "roleArn", "without spaces"),
        ({"awssecretaccesskey": "hush\n"}, "awsSecretAccessKey", "without spaces"),
        (
            {"kinesis.maxpartitions": "1", "maxpartitions": "2"},
            "maxPartitions",
            "only one of kinesis.maxPartitions, maxPartitions",
        ),
        # Names that are not known: the nearest is named, and what one of another connector is here.
        ({"regoin": "x"}, "regoin", r"no option regoin: did you mean region\?"),
        ({"sizes": "x"}, "sizes", r"no option sizes: spec/guides/spark\.md lists"),
        ({"awsSecretAccesKey": "hush"}, "awsSecretAccesKey", "no option"),
        ({"awssecretkey": "hush"}, "awsSecretKey", "no option awsSecretKey: it is awsSecretAccessKey here"),
        ({"shards_per_task": "5"}, "shards_per_task", r"\? shardsPerTask: it is maxPartitions here"),
        ({"shardPerTask": "5"}, "shardPerTask", r"\? shardsPerTask: it is maxPartitions here"),
    ],
)
def test_a_wrong_option_is_named_and_no_secret_shows(
    options: dict[str, str], name: str, expected: str | None
) -> None:
    with pytest.raises(OptionError, match=expected) as caught:
        parsed(**options)
    assert caught.value.option == name
    assert "hush" not in f"{caught.value}{caught.value.fields}"


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
_NUMBERS = [option.name for option in OPTIONS if (option.default or "").rstrip("s").isdigit()]


@pytest.mark.requirement("SPK-64")
@given(
    st.dictionaries(st.sampled_from(["startingPosition", "endingPosition"]), _ANY, max_size=2)
    | st.dictionaries(st.sampled_from([*_NUMBERS, "maxDecompressedSize"]), _ANY, min_size=1, max_size=1)
)
@example({"startingPosition": '{"at_timestamp": "1", "format": 5}'})
@example({"startingPosition": '{"a": ' + "[" * 100_000})
@example({"startingPosition": "0001-01-01T00:00:00+14:00"})
@example({"startingPosition": "9999-12-31T23:59:59-14:00"})
@example({"startingPosition": '{"a": {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": "five"}}'})
@example({"maxSecondsPerShard": "1e300"})
def test_no_text_of_an_option_is_another_error(options: dict[str, str]) -> None:
    try:
        settings = parsed(**options)
    except OptionError:
        return
    for position in (settings.starting_position, settings.ending_position):
        for place in (
            [position] if isinstance(position, starting_position.StartingPosition) else position.values()
        ):
            starting_position.iterator_arguments(place)  # boto3 takes them
    assert 0 <= settings.describe_interval < 10**14


@pytest.mark.requirement("SPK-66")
def test_no_secret_shows_in_a_text_of_the_options() -> None:
    settings = parsed(awsSecretAccessKey="hush", awsSessionToken="quiet")
    assert settings.connection.secret_access_key == "hush"
    assert not {"hush", "quiet"} & set(re.findall(r"\w+", repr(settings)))


DURATIONS = {"1s": 1, "100ms": 0.1, "2m": 120, "7": 7, "0.5": 0.5, "1h": 3600}
ITERATOR = {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": NUMBER}


@pytest.mark.requirement("SPK-64", "SPK-65", "ZIP-1", "ZIP-3", "EFO-8")
@every(
    "field, value, options",
    [
        ("starting_position", LATEST, {"startingPosition": "LATEST"}),
        ("starting_position", TRIM_HORIZON, {"startingPosition": "earliest"}),
        ("starting_position", WHEN, {"kinesis.startingPosition": "AT_TIMESTAMP 2026-11-21T10:00:00Z"}),
        ("starting_position", WHEN, {"startingPosition": '{"at_timestamp": "2026-11-21T10:00:00Z"}'}),
        ("starting_position", WHEN, {"startingPosition": "2026-11-21T11:00:00+01:00"}),
        ("starting_position", {"a": at_record(NUMBER)}, {"startingPosition": json.dumps({"a": NUMBER})}),
        ("starting_position", {"a": after_record(NUMBER)}, {"startingPosition": json.dumps({"a": ITERATOR})}),
        *(("describe_interval", value, {"describeShardInterval": text}) for text, value in DURATIONS.items()),
        ("idle_time", 0.3, {"idleTimeBetweenReadsInMs": "300"}),
        ("max_decompressed_size", None, {}),
        ("max_decompressed_size", 1000, {"kinesis.maxDecompressedSize": "1000"}),
        ("compression", "none", {}),
        ("compression", "gzip", {"sink.compression": "gzip"}),
        ("role_arn", "arn", {"kinesis.roleArn": "arn"}),
        ("session_token", "t", {"kinesis.awsSessionToken": "t"}),
        ("sts_endpoint_url", "https://sts.example", {"kinesis.stsEndpointUrl": "https://sts.example"}),
        ("region", "us-east-2", {"kinesis.endpointUrl": "https://kinesis.us-east-2.amazonaws.com"}),
        ("consumer", None, {"consumerType": "GetRecords"}),
        ("consumer", "c", {"consumerType": "EFO", "consumerName": "c"}),
        ("consumer", "c", {"consumerType": "SubscribeToShard", "consumerName": "c"}),
        ("consumer", CONSUMER, {"consumerType": "efo", "consumerArn": CONSUMER}),
        # With the prefixes of the connectors, as values of Python, and as words in any case.
        ("max_records", 7, {"kinesis.executor.maxFetchRecordsPerShard": "7"}),
        ("max_records", 7, {"executor.maxfetchrecordspershard": "7"}),
        ("describe_interval", 7, {"kinesis.client.describeShardInterval": "7s"}),
        ("max_partitions", 3, {"maxPartitions": 3}),
        ("placement", True, {"placement": True}),
        ("region", None, {"region": None}),
        ("ordering", "partition-key", {"sink.ordering": "Partition-Key"}),
    ],
)
def test_values_of_the_existing_connectors_are_understood(
    field: str, value: Any, options: dict[str, Any]
) -> None:
    settings = parsed(**options)
    homes = (settings, settings.connection, settings.producer)
    assert [getattr(home, field) for home in homes if hasattr(home, field)] == [value]


def awslabs(**place: Any) -> str:
    """An offset of the awslabs connector, as it writes one, but for ``place``."""
    at: dict[str, Any] = {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": NUMBER}
    at |= {"subSequenceNumber": "-1", "isLast": "true"}
    return json.dumps({"metadata": {"batchId": "7", "streamName": "s"}, "a": at | place})


@pytest.mark.requirement("SPK-127")
def test_each_member_of_an_offset_of_awslabs_counts_or_is_refused() -> None:
    taken = [
        (awslabs(), after_record(NUMBER)),
        (awslabs(subSequenceNumber="4"), after_record(NUMBER)),  # the last user record of its aggregate
        (awslabs(subSequenceNumber="1", isLast="false"), at_record(NUMBER)),
        (awslabs(subSequenceNumber=1, isLast=False), at_record(NUMBER)),
        (awslabs(isLast="false"), after_record(NUMBER)),
        (awslabs(iteratorType="TRIM_HORIZON", iteratorPosition=""), TRIM_HORIZON),
    ]
    for text, place in taken:
        assert parsed(startingPosition=text).starting_position == {"a": place}, text
    closed = {**json.loads(awslabs()), "b": {"iteratorType": "SHARD_END", "iteratorPosition": ""}}
    assert parsed(startingPosition=json.dumps(closed)).starting_position == {"a": after_record(NUMBER)}
    refused = [
        (awslabs(subSequenceNumber="x"), "subSequenceNumber"),
        (awslabs(subSequenceNumber="-2"), "subSequenceNumber"),
        (awslabs(isLast="perhaps"), "isLast"),
        (awslabs(iteratorType="TRIM_HORIZON", subSequenceNumber="1"), "subSequenceNumber"),
        (awslabs(iteratorType="SHARD_END"), "not read to its end"),
        (awslabs(other="x"), "other"),
        (json.dumps({**json.loads(awslabs()), "metadata": {"streamName": "payments"}}), "the stream s"),
        (json.dumps({**json.loads(awslabs()), "metadata": {"region": "x"}}), "region"),
        (json.dumps({**json.loads(awslabs()), "metadata": 7}), "metadata"),
    ]
    for text, said in refused:
        with pytest.raises(OptionError, match=said):
            parsed(startingPosition=text)


@pytest.mark.requirement("SPK-65")
def test_a_stream_is_its_name_or_its_arn(caplog: pytest.LogCaptureFixture) -> None:
    for option in ("stream", "STREAM", "kinesis.stream"):
        settings = parse_options({option: ARN, "checkpointLocation": "/x"})
        assert (settings.stream.name, settings.name_or_arn) == ("s", ARN)
        assert settings.connection.region == "eu-west-1"
    assert not caplog.records
    parsed(consumerName="c")
    warnings = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert warnings == ["option consumerName changes nothing"]


@pytest.mark.requirement("SPK-115")
@every(
    "option, form",
    product(
        ("startingPosition", "endingPosition"),
        ("{}", "AT_TIMESTAMP {}", '{{"at_timestamp": "{}"}}', '{{"shardId-0": "{}"}}'),
    ),
)
def test_a_time_that_kinesis_cannot_have_is_refused_with_its_unit(option: str, form: str) -> None:
    for time, reason in (
        ("1795627088", "2013.*ms since 1970 .1795627088 ms is 1970-01-21"),
        ("1356998399999", "2013.*ms since 1970"),
        ("253402300800000", "2013.*ms since 1970"),
        ("2012-12-31T23:59:59Z", "2013"),
        ("0001-01-01T00:00:00+14:00", "2013"),
    ):
        with pytest.raises(OptionError, match=reason) as caught:
            parsed(**{option: form.format(time)})
        assert caught.value.option == option
    for time in ("1356998400000", "1795627088000", "2026-11-25T17:18:08Z", "9999-12-31T23:59:59Z"):
        parsed(**{option: form.format(time)})


@pytest.mark.requirement("SPK-64", "SPK-68")
def test_a_schema_that_a_read_refuses() -> None:
    source = KinesisDataSource({"stream": "s", "consumerType": "efo", "consumerName": "c"})
    for reader in (source.reader, source.streamReader):
        assert reader(source.schema())
        # A null in a column that is NOT NULL ends in an error of Java's that names no column.
        with pytest.raises(OptionError, match="explicitHashKey string NOT NULL"):
            reader(StructType([StructField("explicitHashKey", StringType(), nullable=False)]))
        with pytest.raises(OptionError, match="each once"):
            reader(StructType([StructField(name, BinaryType()) for name in ("data", "DATA")]))


@pytest.mark.requirement("SPK-64")
def test_a_query_that_has_no_end_takes_none() -> None:
    source = KinesisDataSource({"stream": "s", "endingPosition": "TRIM_HORIZON"})
    assert source.reader(source.schema())
    with pytest.raises(OptionError, match=r"endingPosition.*availableNow"):
        source.streamReader(source.schema())


def test_equal_connections_share_a_client() -> None:
    options = {"region": "eu-west-1", "awsAccessKeyId": "a", "awsSecretAccessKey": "b"}
    assert parsed(**options).client() is parsed(**options, policy="report").client()


ROOT = Path(__file__).parents[3]


def rows_of(path: str, heading: str, end: str) -> list[tuple[str, ...]]:
    """The rows of the tables under a heading whose first cell is code."""
    table = (ROOT / path).read_text().partition(heading)[2].partition(end)[0]
    lines = [line for line in table.splitlines() if line.startswith(("| `", "| no option"))]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


OTHERS = rows_of("spec/07-spark-source.md", "## 7.9", "Columns:")
OURS = rows_of("spec/guides/spark.md", "## Options of `kpl-kinesis`", "\nA time as")


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", cell)


@pytest.mark.requirement("SPK-65")
def test_the_tables_have_every_option() -> None:
    shown = {name for row in OURS for cell in (row[0], row[2]) for name in names_in(cell)}
    assert {option.name for option in OPTIONS} - shown == set(), "spec/guides/spark.md"
    assert {name for _, names, _ in OTHERS for name in names_in(names)} == INSTEAD.keys(), "section 7.9"


@pytest.mark.requirement("SPK-65")
def test_the_table_of_the_other_connectors_names_is_true() -> None:
    """Spark gives names in lower case. The error names the option as its connector does, and ours."""
    ours, wrong = {option.name for option in OPTIONS}, []
    for here, names, about in OTHERS:
        for name in names_in(names):
            with pytest.raises(OptionError) as caught:
                parse_options({"stream": "s", f"kinesis.{name.lower()}": "hush"})
            text = str(caught.value)
            if here == "no option":
                means = all(one in text for one in names_in(about) if one in ours)
            else:
                means = f": it is {names_in(here)[0]} here" in text
            if not means or f"no option {name}: " not in text:
                wrong.append((name, text))
            assert "hush" not in text
    assert not wrong


@pytest.mark.requirement("SPK-64")
def test_the_guide_has_the_defaults_of_the_table() -> None:
    defaults = {option.name: option.default for option in OPTIONS}
    words = {"none": None, "required": None, "boto3's": None, "automatic": "0", "`polling`": None}
    for names, cell, _ in OURS:
        default = words.get(cell, cell.strip("`").partition(":")[0])
        for name in re.findall(r"`([\w.]+)`", names):
            assert defaults[name] == default, name


@pytest.mark.requirement("SPK-118")
def test_what_spark_gives_for_a_table_of_its_catalog_is_refused() -> None:
    made = {"provider": "kpl-kinesis", "owner": "root", "stream": "orders", "option.stream": "orders"}
    for options in (made, {"Option.stream": "orders"}, {}):  # CREATE TABLE and saveAsTable; INSERT; SELECT
        with pytest.raises(OptionError, match=r"(?i)temporary view"):
            parse_options(options)
