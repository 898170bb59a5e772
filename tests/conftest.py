"""A local Kinesis server for every test that asks, with a stream, and a proxy that can fail.

Hypothesis hunts here without a stopwatch (a busy machine is not a defect), by chance on a desk, the same
way each time in CI (a change is judged by what it changed; `fuzz/` does the long hunts).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from kpl_codec.testing.faults import FaultProxy
from kpl_codec.testing.local_kinesis import LocalKinesis

pytest_plugins = ["kpl_codec.testing.fixtures"]

settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if "CI" in os.environ else "tests")


@pytest.fixture
def stream(kinesis_local: LocalKinesis, stream_name: str) -> Iterator[str]:
    """A stream of two shards."""
    kinesis_local.create_stream(stream_name, shards=2)
    yield stream_name
    kinesis_local.delete_stream(stream_name)


@pytest.fixture
def proxy(kinesis_local: LocalKinesis) -> Iterator[FaultProxy]:
    """In front of the server."""
    with FaultProxy(kinesis_local.endpoint_url, seed=5) as running:
        yield running
