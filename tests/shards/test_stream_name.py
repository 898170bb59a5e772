"""A stream by its name or its ARN."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.shards.stream_name import Stream, StreamNameError, stream_of

NAMES = st.from_regex(r"[a-zA-Z0-9_.-]{1,128}", fullmatch=True)
REGIONS = st.sampled_from(["eu-west-1", "us-gov-east-1", "cn-north-1"])
PARTITIONS = st.sampled_from(["aws", "aws-cn", "aws-us-gov"])


@pytest.mark.requirement("MAP-22")
@given(NAMES, PARTITIONS, REGIONS, st.integers(0, 10**12 - 1))
def test_a_name_and_an_arn_say_what_is_in_them(name: str, partition: str, region: str, account: int) -> None:
    arn = f"arn:{partition}:kinesis:{region}:{account:012}:stream/{name}"
    assert stream_of(name) == Stream(name, None, None)
    assert stream_of(arn) == Stream(name, arn, region)
    assert (stream_of(name).argument, stream_of(arn).argument) == ({"StreamName": name}, {"StreamARN": arn})
    assert (stream_of(name).argument_of_get_records, stream_of(arn).argument_of_get_records) == (
        {},
        {"StreamARN": arn},
    )
    for other in (f"{arn}/consumer/c:1", arn.replace(":kinesis:", ":firehose:"), f" {name}", f"{name}\n", ""):
        with pytest.raises(StreamNameError) as refused:
            stream_of(other)
        assert refused.value.fields["name"] == other
