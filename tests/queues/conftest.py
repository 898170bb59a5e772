"""Consumers of both kinds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from .bench import KINDS, Bench
from .queue_model import model_of


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, newest_boto3: Path) -> Callable[..., Bench]:
    """Makes a `Bench`, of settings of its service."""
    return partial(Bench, model_of(newest_boto3), request.param)
