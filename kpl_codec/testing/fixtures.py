"""pytest fixtures: real local Kinesis servers. In your conftest.py:

    pytest_plugins = ["kpl_codec.testing.fixtures"]

``kinesis_local`` and ``kinesalite`` give a running `LocalKinesis`, one for the whole test session.
``kinesis_faults`` gives a `FaultProxy` in front of the first, new for each test, without rules.
``stream_name`` gives a name that no other test has.

Nothing happens before a test uses one of them. A fixture of the same name in your own tests replaces it. If a
server cannot be started the fixture fails with a LocalKinesisError; it never skips silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

from ..base.lazy import require_extras
from .faults import FaultProxy
from .local_kinesis import LocalKinesis

with require_extras("kpl_codec.testing.fixtures"):
    import pytest


@pytest.fixture(scope="session")
def kinesis_local() -> Iterator[LocalKinesis]:
    """A running kinesis-local: the faithful one for resharding."""
    with LocalKinesis("kinesis-local") as server:
        yield server


@pytest.fixture(scope="session")
def kinesalite() -> Iterator[LocalKinesis]:
    """A running kinesalite: the one with AWS's exact shard boundaries and validation errors."""
    with LocalKinesis("kinesalite") as server:
        yield server


@pytest.fixture
def kinesis_faults(kinesis_local: LocalKinesis) -> Iterator[FaultProxy]:
    """A proxy in front of ``kinesis_local``; faults are added with its method `on`."""
    with FaultProxy(kinesis_local.endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def stream_name() -> str:
    """A stream name of this test's own."""
    return f"stream-{uuid4().hex}"
