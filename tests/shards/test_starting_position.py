"""Places in a shard, as GetShardIterator is asked for them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.shards.starting_position import (
    LATEST,
    TRIM_HORIZON,
    after_record,
    at_record,
    at_time,
    iterator_arguments,
)


@given(st.integers(0, 4 * 10**12))
def test_a_time_is_asked_for_to_the_millisecond(milliseconds: int) -> None:
    when = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=milliseconds)
    asked = iterator_arguments(at_time(milliseconds))
    assert asked == {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": when}
    assert asked["Timestamp"].tzinfo is timezone.utc


def test_the_other_places() -> None:
    assert iterator_arguments(LATEST) == {"ShardIteratorType": "LATEST"}
    assert iterator_arguments(TRIM_HORIZON) == {"ShardIteratorType": "TRIM_HORIZON"}
    for kind, place in (("AT", at_record("17")), ("AFTER", after_record("17"))):
        assert iterator_arguments(place) == {
            "ShardIteratorType": f"{kind}_SEQUENCE_NUMBER",
            "StartingSequenceNumber": "17",
        }
