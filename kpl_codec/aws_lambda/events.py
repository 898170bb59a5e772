"""The user records of a Lambda event, and the response that says which Kinesis records to send again.

Lambda retries Kinesis records: after a partial failure it sends again everything from the lowest sequence
number in the response. So after one failed user record its siblings and all later records come again:

    * the response names each failed Kinesis record once;
    * after a failure the function handles nothing more (``after_failure="stop"``), or only user records of
      other partition keys ("continue"): the rest comes again anyway, and in order;
    * ``once`` prevents that a user record is handled twice: see `idempotency_key`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from ..adapters.events_in import Around, hint_of, kinesis_records, read_record
from ..base.arguments import argument_error, check_arguments, check_keywords, check_needs
from ..deaggregation.deaggregated_record import DeaggregatedRecord, Drop
from ..deaggregation.policies import Deaggregation, opened, opener
from ..deaggregation.policy_rules import Policy, require_on_drop, rules_of
from ..errors import CaptureError
from ..format.records import KinesisRecord, same_content, with_siblings
from .batch import (
    AfterFailure,
    Handler,
    HandlerCall,
    Invocation,
    Once,
    OpenedRecord,
    Poison,
    check_has_run,
    handled_here,
    open_record,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..ledger.ledger import Ledger
    from ..shards.shard_map import ShardMap
    from .shard_map_cache import ShardMapCache

    class OpenOptions(TypedDict, total=False):
        """How Kinesis records are opened: see `kpl_codec.aws_lambda.process_user_records`."""

        policy: Policy
        shard_map: ShardMap | ShardMapCache | None
        on_drop: Callable[[Drop], None] | None
        max_decompressed_size: int | None

    class HandlerOptions(OpenOptions, total=False):
        """`OpenOptions`, and the others of `kpl_codec.aws_lambda.process_user_records`."""

        on_poison: Callable[[Poison], object] | None
        context: Any
        reserve_ms: int
        ledger: Ledger | None


def user_records(
    event: Any,
    policy: Policy = "strict",
    *,
    shard_map: ShardMap | None = None,
    on_drop: Callable[[Drop], None] | None = None,
    max_decompressed_size: int | None = None,
) -> Deaggregation:
    """The user records of ``event``, in order, lazily. ``.counts``: Kinesis and user records so far.

    ``event``: a Lambda event for a stream, or anything else `kpl_codec.adapters` reads. ``shard_map``: for
    the placement of records of its own stream; those of another one come as without a map. The others: as in
    `kpl_codec.deaggregate`. Raises DecodeError or CaptureError at the first Kinesis record that cannot be
    decoded; with `process_user_records` the others are handled.
    """
    check_arguments("user_records", locals())
    return opened(
        kinesis_records(event),
        policy,
        shard_map=shard_map,
        on_drop=on_drop,
        max_decompressed_size=max_decompressed_size,
        read_ahead=isinstance(event, Mapping) and "Records" in event,
    )


_OTHER_EVENTS = {
    "records": "an event of Firehose goes to transform_user_records",
    "Records": "an event of a stream goes to process_user_records",
}


def event_records(event: Any, key: Literal["Records", "records"]) -> list[Any]:
    """The records under ``key``, in a list of its own: a handler may change the event. Raises CaptureError
    for an event without them; it says what the event is."""
    records = event.get(key) if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        members = event if isinstance(event, Mapping) else {}
        other = next((text for name, text in _OTHER_EVENTS.items() if name != key and name in members), None)
        if isinstance(event, (str, bytes)) and event.lstrip()[:1] in ("{", "[", b"{", b"["):
            other = f"the event is {type(event).__name__}: pass json.loads(event)"
        hint = other or hint_of(event) or _shape_of(event)
        raise CaptureError(code="missing-field", field=key, requirement="CAP-4", hint=hint)
    return [*records]


def _shape_of(event: Any) -> str:
    """What an event without records looks like, and what to look at: names of members, and no values."""
    if not isinstance(event, Mapping):
        return f"the event is of type {type(event).__name__}; give the function's first argument as it came"
    names = ", ".join(repr(str(name)[:30]) for name in [*event][:5]) or "no members"
    return f"the event has {names}: look at the triggers of the function, this one is no stream or pipe"


def records_of_event(
    event: Any,
    by_name: bool = False,
    /,
    *,
    policy: Policy = "strict",
    shard_map: ShardMap | ShardMapCache | None = None,
    on_drop: Callable[[Drop], None] | None = None,
    **options: Any,
) -> Iterator[OpenedRecord]:
    """The Kinesis records of a Lambda event or a pipe's list, opened one by one. ``by_name``: the caller
    tells records apart by their names, so two of one name are poison unless they are copies. Raises
    CaptureError for an invalid event, and for a record without a sequence number to report."""
    maps: Any = shard_map  # a ShardMap, or a ShardMapCache, which has one for each stream
    alone = isinstance(event, list) and bool(event)
    records = [*event] if alone else event_records(event, "Records")
    # CAP-15, as in adapters/events_in.py
    around = Around() if alone else Around().within(event)
    if hasattr(maps, "stream"):
        from ..shards.stream_name import StreamMatcher  # late: few functions give a shard map

        # SPK-111: refused before the first user record is handled.
        StreamMatcher(maps.stream).mismatches(
            around.within(raw).stream for raw in records if isinstance(raw, Mapping)
        )
    openers: dict[
        int, Callable[[KinesisRecord], list[DeaggregatedRecord]]
    ] = {}  # by the map, which they hold
    named: dict[tuple[str | int | None, ...], KinesisRecord] = {}
    paths = [f"{'' if alone else 'Records'}[{position}]" for position in range(len(records))]
    items = with_siblings(read_record(raw, path, around) for raw, path in zip(records, paths, strict=True))
    for position, (raw, path, item) in enumerate(zip(records, paths, items, strict=True)):
        # LMB-2: "A Kinesis record of which a user record failed MUST be reported by its sequence number,
        # once."
        # LMB-16: "In the list that EventBridge Pipes gives, a record MUST be reported by its eventID; a list
        # of Lambda's own records MUST be taken as the event that they come from." (A record of Pipes has all
        # members in one level.)
        piped = alone and isinstance(raw, Mapping) and ("kinesis" not in raw or "sequenceNumber" in raw)
        identifier = raw.get("eventID") if piped else item.sequence_number
        if not isinstance(identifier, str) or not identifier:
            missing = CaptureError(code="missing-field", field=f"Records[{position}].kinesis.sequenceNumber")
            raise item if isinstance(item, CaptureError) else missing
        stream_arn = (around.within(raw) if isinstance(item, CaptureError) else item).stream or ""
        if isinstance(item, CaptureError):
            yield OpenedRecord(identifier, raw, stream_arn, [], Poison(item, None, raw, stream_arn))
            continue
        name = stream_arn, item.shard_id, item.sequence_number, item.sub_sequence_number
        # LIN-12, as in format/records.py
        if by_name and not same_content(named.setdefault(name, item), item):
            error = one_name(f"{path}.kinesis.sequenceNumber", item)
            yield OpenedRecord(identifier, raw, stream_arn, [], Poison(error, item, raw, stream_arn))
            continue
        map_of_record = maps.shard_map(stream_arn, item.shard_id) if hasattr(maps, "shard_map") else maps
        if id(map_of_record) not in openers:
            openers[id(map_of_record)] = opener(policy, shard_map=map_of_record, on_drop=on_drop, **options)
        yield open_record(item, raw, stream_arn, openers[id(map_of_record)], identifier)


def one_name(field: str, record: KinesisRecord) -> CaptureError:
    """The error for a record whose name an earlier one of other content has."""
    return CaptureError(
        code="other-content",
        field=field,
        sequence_number=record.sequence_number,
        requirement="LIN-12",
        hint="somebody before this function has deaggregated them and kept only the sequence number, as "
        "awslabs' deaggregator for Go does; give the function the event as it came, or a subSequenceNumber "
        "in each record",
    )


#: The functions that have the options of `HandlerOptions`.
OPTION_TAKERS: Final = (Invocation.__init__, records_of_event, opened)


#: The values of options that count as not given.
_DEFAULTS: Final = {"reserve_ms": 0}


def check_options(
    function: str, options: Mapping[str, Any], *takers: Callable[..., Any], awaits: bool = False, **given: Any
) -> None:
    """Raise TypeError or ValueError for a wrong option, or for one of the arguments ``given``."""
    check_keywords(function, options, *takers, *OPTION_TAKERS)
    check_arguments(function, {**given, **options}, awaits=awaits)
    check_needs(function, options, _DEFAULTS)
    policy = options.get("policy", "strict")
    # LMB-12: "What a policy drops MUST be reported to the caller."
    require_on_drop(function, policy, options.get("on_drop"))
    if rules_of(policy).as_kcl and options.get("shard_map") is None:
        give = f"a ShardMap or a ShardMapCache: policy {policy!r} drops what lies outside of its shard"
        raise argument_error(function, "shard_map", None, ValueError, give)


def refuse_window(event: Any) -> None:
    """Raise ValueError for an event of a tumbling window."""
    # LMB-9: "An event of a tumbling window MUST be refused by whoever answers it without a state, with what
    # to do."
    if isinstance(event, Mapping) and "isFinalInvokeForWindow" in event:
        give = (
            "an event without a tumbling window: of one with it, fold over user_records(event) and return "
            "{'state': state} (spec/guides/lambda.md, Tumbling windows)"
        )
        raise argument_error("process_user_records", "event", event, ValueError, give)


def process_user_records(
    event: Any,
    handler: Handler,
    *,
    after_failure: AfterFailure = "stop",
    once: Once | None = None,
    **options: Unpack[HandlerOptions],
) -> dict[str, Any]:
    """Call ``handler`` with each user record of a Lambda event (or of its ``event["Records"]``), or of the
    list with which EventBridge Pipes calls a function, in order. Returns the response for Lambda.

    * ``after_failure``: "stop", or "continue" with the user records of other partition keys;
    * ``once``: called as ``once(key, call)``; makes the call unless it was made for that key before
      (`powertools.once` does it with the Powertools idempotency utility);
    * ``on_poison``: called with each Kinesis record that cannot be decoded (for a dead-letter queue). If it
      does not raise, the record counts as handled; without it such records are reported as failed;
    * ``policy``, ``max_decompressed_size``: as in `kpl_codec.deaggregate`. A policy that drops
      user records, as "kcl", needs ``on_drop``, which is called with each `Drop`;
    * ``shard_map``: a ShardMap or a `ShardMapCache`; then ``record.placement`` is set;
    * ``context``, ``reserve_ms``: Lambda's context, and milliseconds: when fewer are left, no more user
      record is started, and the other Kinesis records are reported as failed;
    * ``ledger``: a `kpl_codec.audit.Ledger`, which notes the handled user records before Lambda gets the
      response. An error of the ledger fails the invocation: Lambda sends the records again.

    Any exception of the handler is a failure. The logger ``kpl_codec.aws_lambda`` gets its class, and the
    file and line of each call to where it was raised; not its text, which may repeat data. Raises
    CaptureError for an event without records, ValueError for one of a tumbling window.
    """
    given: dict[str, Any] = {"handler": handler, "after_failure": after_failure, "once": once}
    check_options("process_user_records", options, process_user_records, **given)
    refuse_window(event)
    records = partial(records_of_event, event, once is not None or options.get("ledger") is not None)
    batch = Invocation(records, after_failure=after_failure, **options)

    batch.known = handled_here(once)

    def handle(call: HandlerCall) -> None:
        if once is None:
            batch.run(handler, call.record)
        elif not batch.is_known(call):
            check_has_run(once(call.key, partial(batch.run, handler, call.record)))

    batch.each(handle)
    return batch.response()
