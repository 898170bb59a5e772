"""A stream of two shards on a real local server, and a proxy in front of it that can fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kpl_codec.testing.faults import FaultProxy
from kpl_codec.testing.local_kinesis import LocalKinesis


@pytest.fixture
def stream(kinesis_local: LocalKinesis, stream_name: str) -> Iterator[str]:
    kinesis_local.create_stream(stream_name, shards=2)
    yield stream_name
    kinesis_local.delete_stream(stream_name)


@pytest.fixture
def proxy(kinesis_local: LocalKinesis) -> Iterator[FaultProxy]:
    with FaultProxy(kinesis_local.endpoint_url, seed=5) as running:
        yield running
