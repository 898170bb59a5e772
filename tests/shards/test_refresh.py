"""A refresh: what the answers say, and listings that would never end."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec import ShardMapError
from kpl_codec.shards.refresh import Listing, Refresh, StreamSummary

from .model import ModelStream

CREATED = datetime(2026, 1, 1, tzinfo=timezone.utc)


def refresh() -> Refresh:
    return Refresh(5.0, {"StreamName": "s"}, "AT_LATEST", describe=False)


def listing_of(refresh: Refresh, pages: Iterable[dict[str, Any]], known: dict[str, Any]) -> Listing | None:
    listing = None
    for number, page in enumerate(pages):
        request = refresh.next_request(number)
        assert request is not None
        assert request.number == number
        assert refresh.finish(request)
        listing = refresh.add_page(page, known)
    return listing


def summary_of(answer: Any) -> StreamSummary | None:
    one = refresh()
    one.add_summary(answer)
    listing = listing_of(one, [{"Shards": []}], {})
    assert listing is not None
    return listing.summary


@pytest.mark.parametrize(
    ("hours", "seconds"),
    [(24, 86400.0), (1, 3600.0), (8760, 31536000.0), (0, None), ("24", None), (True, None)],
)
def test_a_summary_tells_retention_in_seconds(hours: Any, seconds: float | None) -> None:
    about = {"StreamCreationTimestamp": CREATED, "RetentionPeriodHours": hours}
    assert summary_of({"StreamDescriptionSummary": about}) == StreamSummary(
        CREATED, "USER_PARTITION_KEY", seconds
    )


def test_a_summary_without_a_time_or_of_nothing() -> None:
    about = {"StreamCreationTimestamp": "2026", "RecordDistributionStrategy": "AUTO"}
    assert summary_of({"StreamDescriptionSummary": about}) == StreamSummary(None, "AUTO", None)
    assert [summary_of(answer) for answer in ({}, None, {"StreamDescriptionSummary": {}})] == [None] * 3


@given(st.integers(1, 6), st.integers(1, 4))
def test_the_pages_are_one_listing_and_what_is_known_stays_the_same_object(count: int, size: int) -> None:
    shards = ModelStream(count, now=0).shards
    known = {shard.shard_id: shard for shard in shards[::2]}
    pages = [
        {"Shards": [shard.to_aws() for shard in shards[at : at + size]], "NextToken": str(at)}
        for at in range(0, count, size)
    ]
    del pages[-1]["NextToken"]
    listing = listing_of(refresh(), pages, known)
    assert listing is not None
    assert listing == Listing(shards, None, 5.0, False)
    assert all(shard is known.get(shard.shard_id, shard) for shard in listing.shards)


@pytest.mark.requirement("MAP-19")
def test_a_listing_that_never_ends_is_refused() -> None:
    page = {"Shards": [shard.to_aws() for shard in ModelStream(1, now=0).shards]}
    with pytest.raises(ShardMapError, match=r"\(malformed\): a NextToken came twice"):
        listing_of(refresh(), [{**page, "NextToken": token} for token in "aba"], {})
    endless = refresh()  # pages for 1,000,000 shards, and 100 more
    pages = [{**page, "NextToken": str(number)} for number in range(1102)]
    assert listing_of(endless, pages[:1101], {}) is None
    with pytest.raises(ShardMapError, match="more than 1100 pages"):
        listing_of(endless, pages[1101:], {})
