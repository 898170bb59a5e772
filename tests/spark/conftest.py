"""One Spark session for all tests here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

# For the local servers. Workers see only what was there when Spark was started.
os.environ.setdefault("AWS_ACCESS_KEY_ID", "local")
os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "local")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from kpl_codec.spark import local_session

    session = local_session("kpl-codec tests", cores=2, memory="1g", quick_start=True)
    yield session
    session.stop()
