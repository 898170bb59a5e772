"""Settings: the KPL's names, defaults and ranges; every bad value refused by name."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.producer import ConfigError, ProducerConfig
from kpl_codec.producer.config import RANGES

#: From KinesisProducerConfiguration.java (1.0.7): default, lowest, highest.
KPL = {
    "aggregation_max_count": (4294967295, 1, 2**63 - 1),
    "aggregation_max_size": (51200, 64, 10485760),
    "collection_max_count": (500, 1, 500),
    "collection_max_size": (5242880, 52224, 10485760),  # (the KPL allows more than the service takes)
    "connect_timeout_ms": (6000, 100, 300000),
    "max_connections": (24, 1, 256),
    "rate_limit": (150, 1, 2**63 - 1),
    "record_max_buffered_time_ms": (100, 0, 2**63 - 1),
    "record_ttl_ms": (30000, 100, 2**63 - 1),
    "request_timeout_ms": (6000, 100, 600000),
}


@pytest.mark.requirement("PRD-2")
@pytest.mark.parametrize("name", KPL)
def test_defaults_and_ranges_are_the_kpls(name: str) -> None:
    default, low, high = KPL[name]
    assert getattr(ProducerConfig(), name) == default
    assert RANGES[name] == (low, high)
    assert (ProducerConfig().aggregation_enabled, ProducerConfig().fail_if_throttled) == (True, False)


@pytest.mark.requirement("PRD-1")
@pytest.mark.parametrize("name", RANGES)
def test_both_ends_are_in_and_beyond_is_refused(name: str) -> None:
    low, high = RANGES[name]
    room = {} if name == "max_outstanding_bytes" else {"max_outstanding_bytes": 2**40}
    for value in (low, high):
        needed = NEEDED.get(name, {}) if value != getattr(ProducerConfig(), name) else {}
        assert getattr(ProducerConfig(**{**room, **needed, name: value}), name) == value
    for value in (low - 1, high + 1, "5", 5.0, True, *([None] if name != "max_record_size" else [])):
        with pytest.raises(ConfigError) as caught:
            ProducerConfig(**{name: value})
        assert caught.value.setting == name
        assert caught.value.value == value
        assert f"{low} to {high}" in str(caught.value)


@pytest.mark.requirement("PRD-1")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("when_full", "wait"),
        ("ordering", "strict"),
        ("outer_key", "random"),
        ("aggregation_enabled", 1),
        ("reshard_proof", "yes"),
    ],
)
def test_other_settings_are_checked_too(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig(**{name: value})  # type: ignore[arg-type]
    assert caught.value.setting == name


@pytest.mark.requirement("PRD-1")
@pytest.mark.parametrize(
    ("name", "hint"), [("record_ttl", "did you mean record_ttl_ms[?]"), ("x", "it has aggregation_enabled, ")]
)
def test_an_unknown_setting_is_answered_with_those_there_are(name: str, hint: str) -> None:
    settings: dict[str, Any] = {name: 5}
    for make in (ProducerConfig, lambda **given: ProducerConfig.from_kpl_properties("", **given)):
        with pytest.raises(TypeError, match=f"ProducerConfig has no setting '{name}'; {hint}"):
            make(**settings)


#: Settings that do nothing alone, and what they need.
NEEDED: dict[str, dict[str, Any]] = {
    "outer_key_buckets": {"outer_key": "buckets"},
    "aggregation_min_count": {"aggregation_max_buffered_time_ms": 500},
    "aggregation_max_buffered_time_ms": {"aggregation_min_count": 2},
}
LONE = [
    {"outer_key_buckets": 5},
    {"aggregation_min_count": 100},
    {"aggregation_max_buffered_time_ms": 500},
    {"aggregation_max_count": 5, "aggregation_enabled": False},
    {"reshard_proof": True, "aggregation_enabled": False},
    {"aggregation_max_size": 2_000_000, "max_record_size": 2**20},
]


@pytest.mark.requirement("ARG-2")
@pytest.mark.parametrize("settings", LONE, ids=lambda settings: next(iter(settings)))
def test_a_setting_that_does_nothing_is_refused(settings: dict[str, Any]) -> None:
    name, value = next(iter(settings.items()))
    with pytest.raises(ConfigError) as caught:
        ProducerConfig(**settings)
    assert (caught.value.setting, caught.value.value) == (name, value)
    if name in NEEDED:
        assert getattr(ProducerConfig(**settings, **NEEDED[name]), name) == value


@pytest.mark.requirement("ARG-2", "PRD-45")
def test_a_file_of_the_kpl_may_hold_what_does_nothing() -> None:
    text = "AggregationEnabled = false\nAggregationMaxCount = 5\nAggregationMaxSize = 9999\n"
    config = ProducerConfig.from_kpl_properties(text)
    assert config == ProducerConfig(aggregation_enabled=False, aggregation_max_size=9999)
    assert ProducerConfig.from_kpl_properties(text, aggregation_enabled=True).aggregation_max_count == 5
    with pytest.raises(ConfigError, match="aggregation_max_count = 6: expected 4294967295 while aggregation"):
        ProducerConfig.from_kpl_properties(text, aggregation_max_count=6)


@pytest.mark.requirement("PRD-3")
def test_the_memory_bound_holds_one_record_of_the_largest_size() -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig(max_record_size=10 * 2**20, max_outstanding_bytes=2**20)
    assert caught.value.setting == "max_outstanding_bytes"


@pytest.mark.requirement("PRD-4")
@pytest.mark.parametrize("other", ["reshard_proof", "ignore_keys"])
def test_strict_order_is_refused_with_what_would_break_it(other: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig(ordering="partition-key", **{other: True})  # type: ignore[arg-type]
    assert caught.value.setting == other


@pytest.mark.requirement("PRD-2")
def test_the_specification_names_every_setting() -> None:
    chapter = (Path(__file__).parents[2] / "spec" / "05-producer.md").read_text()
    settings = set(ProducerConfig.__dataclass_fields__)
    assert {name for name in settings if name not in chapter} == set(), "spec/05-producer.md names them"
    docstring = ProducerConfig.__doc__ or ""
    assert {name for name in settings if f"``{name}``" not in docstring} == set(), "so does the docstring"
    times = {name for name in RANGES if re.search("time|ttl", name)}
    assert times == {name for name in RANGES if name.endswith("_ms")} > {"record_ttl_ms"}


def kpl_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.removesuffix("_ms").split("_"))


@pytest.mark.requirement("PRD-45")
@pytest.mark.parametrize("name", KPL)
def test_a_properties_file_of_the_kpl_gives_the_same_settings(name: str) -> None:
    low, high = RANGES[name]
    for value in (low, high):
        text = f"# the KPL's\n! too\n\n{kpl_name(name)} = {value}\nMinConnections: 1\nLogLevel warning\n"
        with pytest.warns(UserWarning, match="ignored: MinConnections, LogLevel$"):
            assert getattr(ProducerConfig.from_kpl_properties(text), name) == value
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_kpl_properties(f"{kpl_name(name)} = {high + 1}")
    assert caught.value.setting == name


@pytest.mark.requirement("PRD-45")
def test_truth_values_continued_lines_and_our_own_settings() -> None:
    text = "aggregationEnabled=false\nfailIfThrottled = \\\n   TRUE\n"
    config = ProducerConfig.from_kpl_properties(text, ordering="partition-key")
    assert (config.aggregation_enabled, config.fail_if_throttled) == (False, True)
    assert config.ordering == "partition-key"
    assert ProducerConfig.from_kpl_properties(text, aggregation_enabled=True).aggregation_enabled
    assert ProducerConfig.from_kpl_properties("") == ProducerConfig()


@pytest.mark.requirement("PRD-45")
@pytest.mark.filterwarnings("ignore:settings of the KPL that have no counterpart")
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("before", "ttl"),
    [
        ("# a comment ends with a path: C:\\kpl\\", 20000),  # which continues nothing
        ("TempDirectory = C:\\\\kpl\\\\", 20000),  # nor does a backslash that is escaped
        ("TempDirectory = C:\\\\\\", 30000),
        ("TempDirectory = /tmp/\x85\x0b\x1c", 20000),  # no ends of lines in Java
        ("TempDirectory = \\", 30000),
    ],
)
def test_a_line_ends_where_java_ends_it(before: str, ttl: int, end: str) -> None:
    assert ProducerConfig.from_kpl_properties(f"{before}{end}RecordTtl=20000\\").record_ttl_ms == ttl


@pytest.mark.requirement("PRD-45")
@pytest.mark.parametrize("text", ["RecordTtl = soon", "RecordTtl", "RecordTtl = 99"])
def test_a_properties_file_with_a_mistake_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        ProducerConfig.from_kpl_properties(text)


@pytest.mark.requirement("PRD-45")
def test_what_is_no_setting_here_is_told_by_its_kind() -> None:
    text = "Region=eu-west-1\nKinesisEndpoint=k\\.example\nKinesisPort=44\nLogLevel=info\nRecordTTTL=5\nFoo=1"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config = ProducerConfig.from_kpl_properties(f"{text}\nRecordTtl = 20000")
    assert config == ProducerConfig(record_ttl_ms=20000)
    where = {"region": "eu-west-1", "endpoint_url": "https://k.example:44"}
    assert [str(warning.message) for warning in caught] == [
        f"where to write is no setting here: give the producer client_settings={where}",
        "settings of the KPL that have no counterpart here, ignored: LogLevel",
        "no settings of the KPL, ignored: RecordTTTL (did you mean RecordTtl?), Foo",
    ]
    with pytest.warns(UserWarning, match="ignored: KinesisPort$"):  # a port of nothing
        ProducerConfig.from_kpl_properties("KinesisPort = 443")


@pytest.mark.requirement("PRD-45")
@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_is_read_or_refused(kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("kpl.properties", "a=b", "RecordTtl 5000"):
        path = kind(tmp_path / name)
        if name != "a=b":  # as a text it sets something
            with pytest.raises(ConfigError, match=r"that can be read \(No such file"):
                ProducerConfig.from_kpl_properties(path)
        (tmp_path / name).write_text("RecordTtl = 20000")
        assert ProducerConfig.from_kpl_properties(path).record_ttl_ms == 20000
        assert ProducerConfig.from_kpl_properties(kind(name)).record_ttl_ms == 20000
    with pytest.raises(ConfigError, match="directory"):
        ProducerConfig.from_kpl_properties(kind(tmp_path))
    assert ProducerConfig.from_kpl_properties("recordttl 5000").record_ttl_ms == 5000
