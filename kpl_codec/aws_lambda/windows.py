"""Tumbling windows: a state that Lambda carries from one invocation to the next, per shard.

    (state, user record) -> state ... -> (state, window) at the window's end

A failed Kinesis record comes again as a whole, so none of it may stay in the state. So the state is copied
before a Kinesis record; a large one only after as many bytes of data as it has itself. After a failure the
Kinesis records since that copy are folded again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..deaggregation.records import DeaggregatedRecord
from ..errors import CaptureError
from .batch import Batch, Call, done
from .events import Options, batch_of, event_records

if TYPE_CHECKING:
    from typing_extensions import Unpack

State = dict[str, Any]
_Fold = Callable[[State, DeaggregatedRecord], State | None]

#: A state of so many characters is copied before every Kinesis record.
_SMALL: Final = 16_384


def process_window(
    event: Mapping[str, Any],
    handler: _Fold,
    *,
    on_window_end: Callable[[State, Mapping[str, Any]], object] | None = None,
    **options: Unpack[Options],
) -> dict[str, Any]:
    """Fold the user records of one invocation into the window's state. Returns Lambda's answer.

    ``handler(state, record)`` returns the new state, or None if it changed ``state`` itself. The state
    is JSON (Lambda keeps at most 1 MB of it). After a failure, and with a state of more than 16 KB, it may be
    called again for records before the one that failed. ``on_window_end(state, event)`` is called after the
    window's last batch is folded without failure; an exception in it fails the whole batch. The first failure
    ends the invocation. ``options``: see `events.Options`. Raises what `process_user_records` raises, and
    CaptureError for a state that is no object.
    """
    import json  # the runtime has it already

    event_records(event, "Records")
    given = event.get("state")
    if not isinstance(given, Mapping | None):
        raise CaptureError(code="wrong-type", field="state", requirement="CAP-4")
    state: State = dict(given or {})
    copy, since, size = json.dumps(state), list[Call](), 0
    batch = batch_of(event, **options)
    for call in batch.calls():
        if call is None or not batch.may_start(call):
            continue
        if since and since[-1].number < call.number and len(copy) <= max(size, _SMALL):
            copy, since, size = json.dumps(state), [], 0
        since.append(call)
        size += len(call.record.data)
        try:
            state = _folded(state, call, handler)
            batch.handled.append(call)
            batch.ran.add(id(call.record))
        except Exception:  # noqa: BLE001 - the caller's code: whatever it raises, the record failed
            batch.fail(call)
    first = batch.first_failed()
    if first is not None and since and since[-1].number >= first:
        # LMB-9: "The state answered MUST hold exactly the user records of the Kinesis records
        # before the first one reported."
        state = _again(copy, [call for call in since if call.number < first], handler, batch)
    # LMB-10: "A window MUST be closed only when its last batch is folded in without failure."
    if event.get("isFinalInvokeForWindow") and first is None and on_window_end is not None:
        done(on_window_end(state, event))
    first = batch.first_failed()
    batch.handled = [call for call in batch.handled if first is None or call.number < first]
    return {**batch.answer(), "state": state}


def _folded(state: State, call: Call, handler: _Fold) -> State:
    """The state with one more user record. Where ``handler`` raises, ``state`` may have changed."""
    changed = handler(state, call.record)
    done(changed)
    return state if changed is None else changed


def _again(copy: str, calls: list[Call], handler: _Fold, batch: Batch) -> State:
    """The state of ``copy`` with ``calls`` folded in again. If one fails this time, that of ``copy`` itself,
    and the first of them has failed."""
    import json

    state: State = json.loads(copy)
    try:
        for call in calls:
            state = _folded(state, call, handler)
    except Exception:  # noqa: BLE001 - the caller's code: whatever it raises, the record failed
        batch.fail(calls[0])
        return json.loads(copy)  # type: ignore[no-any-return]
    return state
