"""A local Kinesis for all tests here; one Spark session where it is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from kpl_codec.testing.fixtures import kinesis_local, stream_name  # noqa: F401
from kpl_codec.testing.local_kinesis import LocalKinesis

from .support import Stream


@pytest.fixture
def make_stream(kinesis_local: LocalKinesis, stream_name: str) -> Any:  # noqa: F811
    """A stream of this test's own: ``make_stream(shards)``."""
    return lambda shards=1: Stream(kinesis_local, stream_name, shards)


@pytest.fixture(scope="session")
def spark(spark: Any) -> Any:
    from kpl_codec.spark.source.datasource import KinesisDataSource

    spark.dataSource.register(KinesisDataSource)
    return spark
