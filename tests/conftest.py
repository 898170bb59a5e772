"""A local Kinesis server for every test that asks, a stream, a proxy that can fail; one Spark session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from kpl_codec.testing.faults import FaultProxy
from kpl_codec.testing.local_kinesis import LocalKinesis

from . import examples

pytest_plugins = ["kpl_codec.testing.fixtures"]

examples.load()

# For the local servers. Processes that tests start see only what was there then.
os.environ.setdefault("AWS_ACCESS_KEY_ID", "local")
os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "local")
os.environ.pop("COLUMNS", None)  # how wide somebody's terminal is; pytest-xdist sets it, too


#: What is started once, in one process: tests that use it are a group for pytest-xdist, and come first.
_SHARED = ("spark", "browser")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def shared(item: pytest.Item) -> str | None:
        return next((name for name in _SHARED if name in getattr(item, "fixturenames", ())), None)

    for item in items:
        if (name := shared(item)) is not None:
            item.add_marker(pytest.mark.xdist_group(name))
    items.sort(key=lambda item: [*_SHARED, None].index(shared(item)))


def pytest_xdist_auto_num_workers() -> int:
    """``-n auto``: one more than there are cores, for a third of the tests' time is waiting for servers."""
    return (os.cpu_count() or 1) + 1


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


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests, with the data source."""
    from kpl_codec.spark import KinesisDataSource, local_session

    session = local_session("kpl-codec tests", cores=2, memory="1g", quick_start=True)
    session.dataSource.register(KinesisDataSource)
    yield session
    session.stop()
