"""The table of AWS's error codes, against botocore's description of the service."""

from __future__ import annotations

from collections import Counter

import pytest

from kpl_codec.aws_errors import _CODES, error_kind


def test_each_code_has_one_kind() -> None:
    assert max(Counter(code for codes in _CODES.values() for code in codes).values()) == 1


@pytest.mark.parametrize(
    "operation", ["PutRecords", "ListShards", "DescribeStreamSummary", "GetShardIterator", "GetRecords"]
)
def test_every_error_of_the_calls_we_make_is_listed_or_passes(operation: str) -> None:
    session = pytest.importorskip("botocore.session").get_session()
    errors = session.get_service_model("kinesis").operation_model(operation).error_shapes
    assert {shape.name for shape in errors if error_kind(shape.name) == "other"} <= {
        "DryRunOperationException",  # we never ask for a dry run
        "ExpiredIteratorException",
        "ExpiredNextTokenException",
        "InternalFailureException",
        "ResourceInUseException",
    }
