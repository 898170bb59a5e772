"""Tumbling windows: a state that Lambda carries from one invocation to the next, per shard.

    (state, user record) -> state ... -> (state, window) at the window's end

A failed Kinesis record comes again as a whole, so none of it may stay in the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..deaggregation.counts import Drop
from ..deaggregation.policies import Policy
from ..deaggregation.records import DeaggregatedRecord
from ..errors import CaptureError
from ..shards.shard_map import ShardMap
from .events import (
    Poison,
    ShardMaps,
    answer,
    done,
    event_records,
    idempotency_key,
    log_exception,
    settle_poison,
    units,
)

State = dict[str, Any]


def process_window(
    event: Mapping[str, Any],
    handler: Callable[[State, DeaggregatedRecord], State | None],
    *,
    on_window_end: Callable[[State, Mapping[str, Any]], object] | None = None,
    on_poison: Callable[[Poison], object] | None = None,
    policy: Policy = "strict",
    shard_map: ShardMap | ShardMaps | None = None,
    on_drop: Callable[[Drop], None] | None = None,
) -> dict[str, Any]:
    """Fold the user records of one invocation into the window's state. Returns Lambda's answer.

    ``handler(state, record)`` returns the new state, or None if it changed ``state`` itself. The state
    is JSON (Lambda keeps at most 1 MB of it). ``on_window_end(state, event)`` is called after the window's
    last batch is folded without failure; an exception in it fails the whole batch. The first failure ends the
    invocation. Other arguments as of `process_user_records`. Raises what that raises, and CaptureError for a
    state that is no object.
    """
    import json  # the runtime has it already

    event_records(event, "Records")
    given = event.get("state")
    if not isinstance(given, Mapping | None):
        raise CaptureError(code="wrong-type", field="state", requirement="CAP-4")
    failed: list[str] = []
    state: State = dict(given or {})
    for unit in units(event, policy, shard_map, on_drop):
        before = json.dumps(state)
        if unit.poison is not None and not settle_poison(unit.poison, on_poison):
            failed.append(unit.sequence_number)
        for record in unit.user_records:
            try:
                changed = handler(state, record)
                done(changed)
                state = state if changed is None else changed
            except Exception:  # noqa: BLE001 - the caller's code: whatever it raises, the record failed
                log_exception("user record failed: %s", idempotency_key(record, unit.stream_arn))
                failed.append(unit.sequence_number)
                break
        if failed:
            # LMB-9: "The state answered MUST hold exactly the user records of the Kinesis records
            # before the first one reported."
            state = json.loads(before)
            break
    # LMB-10: "A window MUST be closed only when its last batch is folded in without failure."
    if event.get("isFinalInvokeForWindow") and not failed and on_window_end is not None:
        done(on_window_end(state, event))
    return {**answer(failed), "state": state}
