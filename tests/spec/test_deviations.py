"""Every departure has a reason, a requirement that exists, and vectors that show it."""

from __future__ import annotations

import json

import pytest

from .traceability import trace
from .vectors import REPOSITORY, load

DEVIATIONS = json.loads((REPOSITORY / "spec" / "deviations.json").read_text())["deviations"]


@pytest.mark.parametrize("deviation", DEVIATIONS, ids=lambda deviation: deviation["id"])
def test_each_is_complete(deviation: dict[str, object]) -> None:
    assert set(deviation) == {"id", "requirement", "from", "what", "reason", "vectors"}
    assert all(deviation.values())
    assert deviation["from"] in ("proto2", "KPL", "KCL", "AWS API", "aiokpl", "aws_kinesis_agg")


def test_ids_are_unique() -> None:
    assert len({deviation["id"] for deviation in DEVIATIONS}) == len(DEVIATIONS)


def test_they_name_requirements_and_vectors_that_exist() -> None:
    vectors = {vector["id"] for vector in load()}
    requirements = trace().requirements
    for deviation in DEVIATIONS:
        assert deviation["requirement"] in requirements
        assert set(deviation["vectors"]) <= vectors, set(deviation["vectors"]) - vectors
