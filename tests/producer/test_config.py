"""Settings: the KPL's names, defaults and ranges; every bad value refused by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.producer import ConfigError, ProducerConfig
from kpl_codec.producer.config import RANGES

from ..every import every

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
@every("name", KPL)
def test_defaults_and_ranges_are_the_kpls(name: str) -> None:
    default, low, high = KPL[name]
    assert getattr(ProducerConfig(), name) == default
    assert RANGES[name] == (low, high)
    assert (ProducerConfig().aggregation_enabled, ProducerConfig().fail_if_throttled) == (True, False)


@pytest.mark.requirement("PRD-1")
@every("name", RANGES)
def test_both_ends_are_in_and_beyond_is_refused(name: str) -> None:
    low, high = RANGES[name]
    room = {} if name == "max_outstanding_bytes" else {"max_outstanding_bytes": 2**40}
    for value in (low, high):
        needed = {"outer_key": "buckets"} if name == "outer_key_buckets" else {}
        assert getattr(ProducerConfig(**{**room, **needed, name: value}), name) == value
    for value in (low - 1, high + 1, "5", 5.0, True, *([None] if name != "max_record_size" else [])):
        with pytest.raises(ConfigError) as caught:
            ProducerConfig(**{name: value})
        assert caught.value.setting == name
        assert caught.value.value == value
        assert f"{low} to {high}" in str(caught.value)


@pytest.mark.requirement("PRD-1")
def test_an_unknown_setting_is_answered_with_one_that_is_like_it() -> None:
    with pytest.raises(TypeError, match=r"no argument 'record_ttl'; did you mean record_ttl_ms[?]"):
        ProducerConfig(record_ttl=5)  # type: ignore[call-arg]


#: Settings that are refused, the first of which the error names: a wrong word, one that does nothing without
#: another (ARG-2), a bound that is too small (PRD-3), what breaks strict order (PRD-4).
REFUSED: list[dict[str, Any]] = [
    {"when_full": "wait"},
    {"when_full": "drop"},
    {"ordering": "strict"},
    {"reshard_proof": "yes"},
    {"outer_key_buckets": 5},
    {"aggregation_max_count": 5, "aggregation_enabled": False},
    {"reshard_proof": True, "aggregation_enabled": False},
    {"aggregation_max_size": 2_000_000, "max_record_size": 2**20},
    {"max_outstanding_bytes": 2**20, "max_record_size": 10 * 2**20},
    {"reshard_proof": True, "ordering": "partition-key"},
    {"ignore_keys": True, "ordering": "partition-key"},
]


@pytest.mark.requirement("PRD-1", "PRD-3", "PRD-4", "ARG-2")
@every("settings", REFUSED)
def test_what_is_wrong_or_does_nothing_is_refused_by_name(settings: dict[str, Any]) -> None:
    name, value = next(iter(settings.items()))
    with pytest.raises(ConfigError) as caught:
        ProducerConfig(**settings)
    assert (caught.value.setting, caught.value.value) == (name, value)


@pytest.mark.requirement("PRD-2")
def test_the_specification_names_every_setting() -> None:
    chapter = (Path(__file__).parents[2] / "spec" / "05-producer.md").read_text()
    settings = set(ProducerConfig.__dataclass_fields__)
    assert {name for name in settings if name not in chapter} == set(), "spec/05-producer.md names them"
    docstring = ProducerConfig.__doc__ or ""
    assert {name for name in settings if f"``{name}``" not in docstring} == set(), "so does the docstring"
    times = {name for name in RANGES if re.search("time|ttl", name)}
    assert times == {name for name in RANGES if name.endswith("_ms")} > {"record_ttl_ms"}
