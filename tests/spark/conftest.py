"""One Spark session for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from kpl_codec.spark import local_session

    session = local_session("kpl-codec tests", cores=2, memory="1g")
    yield session
    session.stop()
