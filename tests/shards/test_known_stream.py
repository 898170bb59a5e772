"""What a listing adds to what is known: `learn` is a function, whatever the listing."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.shards.known_stream import Known, Refused, learn
from kpl_codec.shards.refresh import Listing

from .model import ModelStream

STEPS = st.lists(
    st.tuples(st.sampled_from(["split", "merge", "again", "older", "partial"]), st.integers(0, 5)), max_size=9
)


def facts(known: Known) -> tuple[Any, ...]:
    shards = known.shards
    return deepcopy((shards.all, shards.listed, shards.distribution, known.routes.shard_ids, known[2:]))


@given(STEPS, st.booleans())
def test_learning_changes_nothing_and_gives_the_same_again(
    steps: list[tuple[str, int]], has_closed: bool
) -> None:
    stream, known, listings = ModelStream(2, now=0), Known(), [[]]
    for now, (step, at) in enumerate(steps, 1):
        if step == "split":
            stream.split(at % len(stream.open_shards()))
        elif step == "merge" and len(stream.open_shards()) > 1:
            stream.merge(at % (len(stream.open_shards()) - 1))
        elif step == "again":
            stream = ModelStream(at + 1, now=stream.now + 100)
        listings.append(stream.shards[:] if has_closed else stream.open_shards())
        shards = listings[at % len(listings)] if step == "older" else listings[-1]
        listing = Listing(shards[at:] if step == "partial" else shards, None, float(now), has_closed)
        before = facts(known)
        outcome, again = (learn(known, listing, 30.0 * now) for _ in range(2))
        assert facts(known) == before
        after = outcome.known if isinstance(outcome, Refused) else outcome
        same = again.known if isinstance(again, Refused) else again
        assert facts(after) == facts(same)
        if isinstance(outcome, Refused) and outcome.disputed is None:
            assert facts(after._replace(contradictions=known.contradictions)) == before
        known = after
