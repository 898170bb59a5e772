"""Times in the answers of `kinesis_client` are those of botocore, in UTC."""

from __future__ import annotations

from datetime import timezone

import pytest

from kpl_codec.aws.client import kinesis_client
from kpl_codec.testing.local_kinesis import LocalKinesis

from .test_reading import put_numbered


@pytest.mark.server
def test_times_are_botocores_in_utc(kinesis_local: LocalKinesis, stream: str) -> None:
    theirs = kinesis_local.client()
    ours = kinesis_client(
        region="us-east-1", endpoint_url=kinesis_local.endpoint_url, access_key_id="a", secret_access_key="a"
    )
    (shard_id, number), *_ = put_numbered(theirs, stream, 3)
    place = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": number}
    iterator = ours.get_shard_iterator(StreamName=stream, ShardId=shard_id, **place)["ShardIterator"]
    records = ours.get_records(ShardIterator=iterator)["Records"]
    assert records == theirs.get_records(ShardIterator=iterator)["Records"]
    assert {record["ApproximateArrivalTimestamp"].tzinfo for record in records} == {timezone.utc}
