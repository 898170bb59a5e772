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


#: What a test starts, quickest first: a defect of the core fails the run before a server is started.
_STARTS = ("kinesis_local", "browser", "spark")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in this order: no process at all, a local Kinesis server, a browser, Spark."""

    def stage(item: pytest.Item) -> int:
        fixtures = getattr(item, "fixturenames", ())
        marked = any(item.iter_markers("server")), False, any(item.iter_markers("spark"))
        found = [n for n, name in enumerate(_STARTS, 1) if name in fixtures or marked[n - 1]]
        return max(found, default=0)

    items.sort(key=stage)


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
