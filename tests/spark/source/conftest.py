"""A stream of each test's own."""

from __future__ import annotations

from typing import Any

import pytest

from kpl_codec.testing.local_kinesis import LocalKinesis

from .support import Stream


@pytest.fixture
def make_stream(kinesis_local: LocalKinesis, stream_name: str) -> Any:
    """``make_stream(shards)``."""
    return lambda shards=1: Stream(kinesis_local, stream_name, shards)
