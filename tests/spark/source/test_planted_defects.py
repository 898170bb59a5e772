"""The law of `model_query` is worth something: it breaks for each of these defects, planted one at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

from kpl_codec.errors import KplError
from kpl_codec.shards.starting_position import LATEST, TRIM_HORIZON, StartingPosition, after_record
from kpl_codec.spark.source import datasource, offsets, planner
from kpl_codec.spark.source.datasource import KinesisStreamReader
from kpl_codec.spark.source.kinesis_reader import KinesisReader
from kpl_codec.spark.source.planner import Planner
from kpl_codec.spark.source.shard_planner import ShardPlanner

from . import model_query
from .model_query import LIVES, TELLING, no_record_is_skipped_without_an_error

#: What is replaced, and what by: a function that gets the original as its first argument.
Plant = tuple[Any, str, Callable[..., Any]]


def every_end(change: Callable[[Any], Any]) -> Plant:
    """Every plan of a shard is changed."""
    return ShardPlanner, "plan", lambda original, *args: change(original(*args))


def date_new_shards_by_new_listing(original: Any, offset: Any, lineage: Any, listed: Any = None) -> Any:
    after = original(offset, lineage, listed)
    new = after.shards.keys() - offset.shards.keys()
    return replace(
        after, shards=after.shards | {key: replace(after.shards[key], since=listed) for key in new}
    )


def forget_drained_shards(original: Any, offset: Any, lineage: Any, listed: Any = None) -> Any:
    shards = {key: end for key, end in offset.shards.items() if not end.drained}
    return original(replace(offset, shards=shards), lineage, listed)


def write_only_new_places(_: Any, old: Any, new: Any) -> bool:
    return any(key not in old.shards or old.shards[key].place != end.place for key, end in new.shards.items())


def date_requests_late(original: Any, self: Any, cursor: Any, limit: int) -> Any:
    head = original(self, cursor, limit)
    head.request_time += 24 * 3600 * 1000
    return head


def attach_some_records(original: Any, self: Any, pieces: Any) -> Any:
    records_of, unread = original(self, pieces)
    return {piece: records[1:] for piece, records in records_of.items()}, unread


def begin_anew_at_old_place(original: Any, self: Any, start: Any, lineage: Any) -> Any:
    return {key: replace(start.shards[key], drained=False) for key in original(self, start, lineage)}


def go_on_where_an_attempt_ended(original: Any, access: Any, consumer: Any, piece: Any) -> Any:
    given = access.client.__dict__.setdefault("given_of_piece", {})
    for number, records in enumerate(original(access, consumer, piece)):
        if number >= given.get(piece, 0):
            given[piece] = number + 1
            yield records


def read_to_the_tip(original: Any, access: Any, consumer: Any, piece: Any) -> Any:
    last = access.client.shards[piece.shard_id].records[-1][0]
    yield from original(access, consumer, piece._replace(end=after_record(str(last)), records=None))


def plan_anew_in_another_process(original: Any, self: Any, start: Any, end: Any) -> Any:
    if self._last_end is None and start:
        end = self.latestOffset(start, self.getDefaultReadLimit())
    return original(self, start, end)


def go_on_without_drained_shards(original: Any, self: Any, offset: Any) -> Any:
    after = original(self, offset)
    return replace(after, shards={key: end for key, end in after.shards.items() if not end.drained})


def begin_at_the_tips(original: Any, self: Any, position: Any) -> Any:
    tips = original(self, position)
    return replace(tips, shards={key: replace(end, initial="") for key, end in tips.shards.items()})


DEFECTS: dict[str, list[Plant]] = {
    "a new shard is dated by the new listing": [(planner, "with_listing", date_new_shards_by_new_listing)],
    "a drained shard is forgotten while it is listed": [(planner, "with_listing", forget_drained_shards)],
    "a child is read before its parent is drained": [(planner, "ready", lambda *_: True)],
    "an offset is never renewed": [(planner, "_RENEW_AFTER", 10**15)],  # type: ignore[list-item]
    "a shard that ended without records is not written down": [
        (datasource, "must_be_written", write_only_new_places)
    ],
    "the first record is not named": [every_end(lambda end: replace(end, first=None))],
    "a limit is passed by one": [
        (ShardPlanner, "_walk_to_limit", lambda original, self, head, most: original(self, head, most + 1))
    ],
    "a limit does not hold where the last record is gone": [
        (ShardPlanner, "_peek_after_gap", lambda original, self, place, _: original(self, place, 10_000))
    ],
    "a record that is gone is not missed": [(KinesisReader, "report_loss", lambda *_: None)],
    "a place that was unread too long is read on": [(ShardPlanner, "check_unread", lambda *_: None)],
    "a record that is gone without loss is not noted": [
        every_end(lambda end: replace(end, start_gone=False))
    ],
    "since is the time of the answer, not of the question": [(ShardPlanner, "_read", date_requests_late)],
    "some records that planning read are not carried": [(Planner, "take_records", attach_some_records)],
    "a task gives what lies before its piece": [
        (StartingPosition, "lowest", property(lambda self: int(self.sequence_number)))  # type: ignore[list-item]
    ],
    "a place at the horizon has no date": [
        every_end(lambda end: replace(end, since=None) if end.place == TRIM_HORIZON else end)
    ],
    "a shard of an earlier life counts as read": [(planner, "of_another_life", lambda *_: False)],
    "a new life is looked for in an old listing": [
        (Planner, "lineage", lambda original, self, **_: original(self))
    ],
    "a shard that was not begun has no beginning": [
        (module, "with_beginning", lambda _, ends, shard: ends) for module in (planner, offsets)
    ],
    "a new life is read from the old place": [(Planner, "_begun_anew", begin_anew_at_old_place)],
    "another attempt goes on where one ended": [(model_query, "read_piece", go_on_where_an_attempt_ended)],
    "a task reads to the tip": [(model_query, "read_piece", read_to_the_tip)],
    "a batch of an earlier process is planned anew": [
        (KinesisStreamReader, "partitions", plan_anew_in_another_process)
    ],
    "a piece has two tasks": [
        (datasource, "assign_pieces", lambda original, *args: (runs := original(*args)) + runs[-1:])
    ],
    "a task is not begun": [(datasource, "assign_pieces", lambda original, *args: original(*args)[:-1])],
    "a query that goes on forgets what was drained": [(Planner, "_go_on", go_on_without_drained_shards)],
    "a query that goes on begins at the tips": [
        (Planner, "_go_on", lambda original, self, offset: self.begin_at(LATEST))
    ],
    "a query of an old Spark begins at the tips": [(Planner, "at_tips", begin_at_the_tips)],
    "the first batch of an old Spark does not look for what is gone": [
        (Planner, "refuse_unread", lambda *_: None)
    ],
    "a batch is behind from its end": [every_end(lambda end: replace(end, behind=0))],
}


@pytest.mark.slow
@pytest.mark.requirement("SPK-50", "SPK-71", "SPK-90")
@pytest.mark.parametrize("name", DEFECTS)
def test_the_law_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for where, attribute, change in DEFECTS[name]:
        original = getattr(where, attribute)

        def planted(*args: Any, change: Any = change, original: Any = original, **named: Any) -> Any:
            return change(original, *args, **named)

        value = planted if callable(change) else change
        monkeypatch.setattr(where, attribute, value)

    @settings(
        max_examples=2000,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(**LIVES)
    def law(**life: Any) -> None:
        no_record_is_skipped_without_an_error(**life)

    for life in TELLING:
        law = example(**life)(law)
    with pytest.raises((AssertionError, KplError, RecursionError)):
        law()
