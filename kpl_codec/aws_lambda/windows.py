"""Tumbling windows: a state that Lambda carries from one invocation to the next, per shard.

    (state, user record) -> state ... -> (state, window) at the window's end

A failed Kinesis record comes again as a whole, so none of it may stay in the state. So the state is copied
before a Kinesis record. A large one is not copied before each, which would take time in proportion to their
product, but only after as many bytes of data as it has itself. After a failure the Kinesis records since that
copy are folded again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..deaggregation.counts import Drop
from ..deaggregation.policies import Policy
from ..deaggregation.records import DeaggregatedRecord
from ..errors import CaptureError
from ..shards.shard_map import ShardMap
from .events import (
    Poison,
    SeesEvents,
    ShardMaps,
    Unit,
    answer,
    done,
    event_records,
    idempotency_key,
    log_exception,
    settle_poison,
    units,
)

State = dict[str, Any]
_Fold = Callable[[State, DeaggregatedRecord], State | None]

#: A state of so many characters is copied before every Kinesis record.
_SMALL: Final = 16_384


def process_window(
    event: Mapping[str, Any],
    handler: _Fold,
    *,
    on_window_end: Callable[[State, Mapping[str, Any]], object] | None = None,
    on_poison: Callable[[Poison], object] | None = None,
    policy: Policy = "strict",
    shard_map: ShardMap | ShardMaps | None = None,
    on_drop: Callable[[Drop], None] | None = None,
    watch: SeesEvents | None = None,
    decompress: bool | int = False,
) -> dict[str, Any]:
    """Fold the user records of one invocation into the window's state. Returns Lambda's answer.

    ``handler(state, record)`` returns the new state, or None if it changed ``state`` itself. The state
    is JSON (Lambda keeps at most 1 MB of it). After a failure, and with a state of more than 16 KB, it may be
    called again for records before the one that failed. ``on_window_end(state, event)`` is called after the
    window's last batch is folded without failure; an exception in it fails the whole batch. The first failure
    ends the invocation. Other arguments as of `process_user_records`. Raises what that raises, and
    CaptureError for a state that is no object.
    """
    import json  # the runtime has it already

    event_records(event, "Records")
    given = event.get("state")
    if not isinstance(given, Mapping | None):
        raise CaptureError(code="wrong-type", field="state", requirement="CAP-4")
    failed: list[str] = []
    state: State = dict(given or {})
    copy, since, size = json.dumps(state), list[Unit](), 0
    for unit in units(event, policy, shard_map, on_drop, decompress, watch):
        if since and len(copy) <= max(size, _SMALL):
            copy, since, size = json.dumps(state), [], 0
        if unit.poison is not None and not settle_poison(unit.poison, on_poison):
            failed.append(unit.sequence_number)  # it has no user records
            break
        folded = _folded(state, unit, handler)
        if folded is None:
            # LMB-9: "The state answered MUST hold exactly the user records of the Kinesis records
            # before the first one reported."
            state, first = _before(unit, copy, since, handler)
            failed.append(first.sequence_number)
            break
        state = folded
        since.append(unit)
        size += sum(len(record.data) for record in unit.user_records)
    # LMB-10: "A window MUST be closed only when its last batch is folded in without failure."
    if event.get("isFinalInvokeForWindow") and not failed and on_window_end is not None:
        done(on_window_end(state, event))
    return {**answer(failed), "state": state}


def _folded(state: State, unit: Unit, handler: _Fold) -> State | None:
    """The state with the user records of ``unit``; None if one failed, then ``state`` may hold some."""
    for record in unit.user_records:
        try:
            changed = handler(state, record)
            done(changed)
            state = state if changed is None else changed
        except Exception:  # noqa: BLE001 - the caller's code: whatever it raises, the record failed
            log_exception("user record failed: %s", idempotency_key(record, unit.stream_arn))
            return None
    return state


def _before(failed: Unit, copy: str, since: list[Unit], handler: _Fold) -> tuple[State, Unit]:
    """The state before ``failed``, and that unit: ``copy`` with the units ``since`` folded in again. If one
    of them fails this time, ``copy`` itself and the first of them."""
    import json

    state: State = json.loads(copy)
    for unit in since:
        folded = _folded(state, unit, handler)
        if folded is None:
            return json.loads(copy), since[0]
        state = folded
    return state, failed
