"""pytest fixtures: real local Kinesis servers. Use them with one line in a ``conftest.py``:

    pytest_plugins = ["kpl_codec.testing.fixtures"]

``kinesis_local`` and ``kinesalite`` give a running `LocalKinesis`, one for the whole test session.
``stream_name`` gives a name no other test has.
Where no server can be had the fixture fails with a LocalKinesisError; it never skips in silence.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from .local_kinesis import LocalKinesis

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kinesis_local() -> Iterator[LocalKinesis]:
    """The faithful one for resharding: kinesis-local."""
    with LocalKinesis("kinesis-local") as server:
        yield server


@pytest.fixture(scope="session")
def kinesalite() -> Iterator[LocalKinesis]:
    """The one with AWS's exact shard boundaries and validation errors: kinesalite."""
    with LocalKinesis("kinesalite") as server:
        yield server


@pytest.fixture
def stream_name() -> str:
    """A stream name of this test's own."""
    return f"stream-{os.getpid()}-{next(_numbers)}"
