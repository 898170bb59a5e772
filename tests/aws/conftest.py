"""Clients of the stream's server: straight, and through the proxy."""

from __future__ import annotations

from typing import Any

import pytest

from kpl_codec.testing.faults import FaultProxy
from kpl_codec.testing.local_kinesis import LocalKinesis

from .readers import READERS


@pytest.fixture
def client(kinesis_local: LocalKinesis) -> Any:
    return kinesis_local.client()


@pytest.fixture
def faulty(kinesis_local: LocalKinesis, proxy: FaultProxy) -> Any:
    return kinesis_local.client(endpoint_url=proxy.endpoint_url)


@pytest.fixture(params=READERS)
def readers(request: pytest.FixtureRequest) -> Any:
    """`kpl_codec.aws`, and its twin for asyncio."""
    return READERS[request.param]
