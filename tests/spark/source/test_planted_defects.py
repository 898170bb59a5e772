"""The law of `model_query` is worth something: it breaks for each of these defects, planted one at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

from kpl_codec.errors import KplError
from kpl_codec.shards.starting_position import TRIM_HORIZON, StartingPosition
from kpl_codec.spark.source import kinesis_reader, offsets, planner
from kpl_codec.spark.source.shard_planner import ShardPlanner

from . import model_query
from .model_query import LIVES, TELLING, no_record_is_skipped_without_an_error

Patch = pytest.MonkeyPatch
DEFECTS: dict[str, Callable[[Patch], None]] = {}


def defect(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    DEFECTS[plant.__name__.replace("_", " ")] = plant
    return plant


def changed(patch: Patch, where: Any, name: str, change: Callable[..., Any]) -> None:
    """``change`` gets the original as its first argument."""
    original = getattr(where, name)

    def call(*args: Any, **named: Any) -> Any:
        return change(original, *args, **named)

    patch.setattr(where, name, call)


def planned(patch: Patch, **notes: Any) -> None:
    """Every plan of a shard has these notes."""
    changed(patch, ShardPlanner, "plan", lambda original, *args: replace(original(*args), **notes))


@defect
def a_new_shard_is_dated_by_the_new_listing(patch: Patch) -> None:
    def dated(original: Any, offset: Any, lineage: Any, listed: Any = None) -> Any:
        found = original(offset, lineage, listed)
        shards = {
            key: end if key in offset.shards else replace(end, since=listed)
            for key, end in found.shards.items()
        }
        return replace(found, shards=shards)

    changed(patch, planner, "with_listing", dated)


@defect
def a_drained_shard_is_forgotten_while_it_is_listed(patch: Patch) -> None:
    def forgetful(original: Any, offset: Any, lineage: Any, listed: Any = None) -> Any:
        left = {key: end for key, end in offset.shards.items() if not end.drained}
        return original(replace(offset, shards=left), lineage, listed)

    changed(patch, planner, "with_listing", forgetful)


@defect
def a_child_is_read_before_its_parent_is_drained(patch: Patch) -> None:
    patch.setattr(planner, "ready", lambda *_: True)


@defect
def an_offset_is_never_renewed(patch: Patch) -> None:
    patch.setattr(planner, "_RENEW_AFTER", 10**15)


@defect
def a_shard_that_ended_without_records_is_not_written_down(patch: Patch) -> None:
    patch.setattr(
        model_query,
        "must_be_written",
        lambda old, new: any(
            key not in old.shards or old.shards[key].place != end.place for key, end in new.shards.items()
        ),
    )


@defect
def the_first_record_is_not_named(patch: Patch) -> None:
    planned(patch, first=None)


@defect
def a_limit_is_passed_by_one(patch: Patch) -> None:
    def walk(original: Any, self: Any, look: Any, most: int) -> Any:
        return original(self, look, most + 1)

    changed(patch, ShardPlanner, "_walk_to_limit", walk)


@defect
def a_limit_does_not_hold_where_the_last_record_is_gone(patch: Patch) -> None:
    def left(original: Any, self: Any, place: Any, limit: int, **named: Any) -> Any:
        return original(self, place, 10_000, **named)

    changed(patch, ShardPlanner, "_peek_after_gap", left)


@defect
def a_record_that_is_gone_is_not_missed(patch: Patch) -> None:
    patch.setattr(kinesis_reader.KinesisReader, "report_loss", lambda *_: None)


@defect
def a_place_that_was_unread_too_long_is_read_on(patch: Patch) -> None:
    patch.setattr(ShardPlanner, "check_unread", lambda *_: None)


@defect
def a_record_that_is_gone_without_loss_is_not_noted(patch: Patch) -> None:
    planned(patch, start_gone=False)


@defect
def since_is_the_time_of_the_answer_not_of_the_question(patch: Patch) -> None:
    def late(original: Any, self: Any, cursor: Any, limit: int) -> Any:
        look = original(self, cursor, limit)
        look.request_time += 24 * 3600 * 1000
        return look

    changed(patch, ShardPlanner, "_read", late)


@defect
def some_records_that_planning_read_are_not_carried(patch: Patch) -> None:
    def some(original: Any, self: Any, pieces: Any) -> Any:
        read, left = original(self, pieces)
        return {piece: records[1:] for piece, records in read.items()}, left

    changed(patch, planner.Planner, "take_records", some)


@defect
def a_task_gives_what_lies_before_its_piece(patch: Patch) -> None:
    patch.setattr(StartingPosition, "lowest", property(lambda self: int(self.sequence_number)))


@defect
def a_place_at_the_horizon_has_no_date(patch: Patch) -> None:
    changed(
        patch,
        ShardPlanner,
        "plan",
        lambda original, *args: (
            replace(end, since=None) if (end := original(*args)).place == TRIM_HORIZON else end
        ),
    )


@defect
def a_shard_of_an_earlier_life_counts_as_read(patch: Patch) -> None:
    patch.setattr(planner, "of_another_life", lambda *_: False)


@defect
def a_new_life_is_looked_for_in_an_old_listing(patch: Patch) -> None:
    changed(patch, planner.Planner, "lineage", lambda original, self, **_: original(self))


@defect
def a_shard_that_was_not_begun_has_no_beginning(patch: Patch) -> None:
    patch.setattr(planner, "with_beginning", lambda ends, shard: ends)
    patch.setattr(offsets, "with_beginning", lambda ends, shard: ends)


@defect
def a_new_life_is_read_from_the_old_place(patch: Patch) -> None:
    def old(original: Any, self: Any, start: Any, lineage: Any) -> Any:
        return {key: replace(start.shards[key], drained=False) for key in original(self, start, lineage)}

    changed(patch, planner.Planner, "_begun_anew", old)


@defect
def a_batch_is_behind_from_its_end(patch: Patch) -> None:
    planned(patch, behind=0)


@pytest.mark.requirement("SPK-50", "SPK-71", "SPK-90")
@pytest.mark.parametrize("name", DEFECTS)
def test_the_law_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    DEFECTS[name](monkeypatch)

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
