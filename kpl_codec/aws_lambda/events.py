"""The user records of a Lambda event, and the answer that says which Kinesis records to send again.

Lambda knows Kinesis records only, and after a partial failure it sends again everything from the lowest
sequence number reported. So after one failed user record its siblings and all later records come again:

    * the answer names each failed Kinesis record once;
    * after a failure nothing more is handled (``after_failure="stop"``), or only user records of other
      partition keys ("continue"): the rest comes again anyway, and in order;
    * ``once`` prevents that a user record is handled twice: see `idempotency_key`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypedDict

from ..adapters.reading import captured, kinesis_records
from ..adapters.shapes import shape_of
from ..deaggregation.counts import Drop
from ..deaggregation.policies import Deaggregation, Policy, deaggregate
from ..deaggregation.records import DeaggregatedRecord
from ..errors import CaptureError, DecodeError
from ..format.records import KinesisRecord, short_fields

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..shards.shard_map import ShardMap

Handler = Callable[[DeaggregatedRecord], object]
#: Called with an idempotency key and a call; makes the call unless it was made before.
Once = Callable[[str, Callable[[], object]], object]
AfterFailure = Literal["stop", "continue"]


class ShardMaps(Protocol):
    """Gives the shard map of a stream, like `shard_map_cache.ShardMapCache`."""

    def shard_map(self, stream_arn: str, shard_id: str | None) -> ShardMap | None: ...


class SeesEvents(Protocol):
    """Checks each event, like `watch.ConsumerWatch`."""

    def see(self, event: Mapping[str, Any]) -> None: ...


class Context(Protocol):
    """The part of Lambda's context object that is used."""

    def get_remaining_time_in_millis(self) -> int: ...


class Poison(NamedTuple):
    """A Kinesis record that cannot be opened: the error, and the record as far as it can be read.

    ``kinesis_record`` is None if its base64 cannot be read; ``event_record`` is Lambda's own.
    """

    error: DecodeError | CaptureError
    kinesis_record: KinesisRecord | None
    event_record: Mapping[str, Any]
    stream_arn: str

    def __repr__(self) -> str:
        return short_fields(self)


class Opening(TypedDict, total=False):
    """How Kinesis records are opened: options of all functions that take a Lambda event.

    * ``policy``: "strict" (the default), "kcl" (what the KCL delivers; needs ``on_drop``), "report" (user
      records of defective aggregates too: look at ``record.defects``);
    * ``shard_map``: a ShardMap or a `shard_map_cache.ShardMapCache`; then ``record.placement`` is set;
    * ``on_drop``: called with what the KCL drops;
    * ``watch``: a `watch.ConsumerWatch`, which checks the event first;
    * ``max_decompressed_size``, ``unframe``: as in `kpl_codec.deaggregate`. A Kinesis record with data that
      cannot be decompressed, or whose frame is broken, counts as one that cannot be opened.
    """

    policy: Policy
    shard_map: ShardMap | ShardMaps | None
    on_drop: Callable[[Drop], None] | None
    watch: SeesEvents | None
    max_decompressed_size: int | None
    unframe: bool


class Options(Opening, total=False):
    """`Opening`, and what happens to Kinesis records that cannot be opened, or for which no time is left.

    * ``on_poison``: takes Kinesis records that cannot be opened (for a dead-letter queue). If it does not
      raise, the record counts as handled; without it such records are reported as failed;
    * ``context``, ``reserve_ms``: Lambda's; if less time is left, the rest is not started but reported.
    """

    on_poison: Callable[[Poison], object] | None
    context: Context | None
    reserve_ms: int


class Unit(NamedTuple):
    """One Kinesis record of an event and its user records, or why there are none."""

    sequence_number: str
    stream_arn: str
    user_records: list[DeaggregatedRecord]
    poison: Poison | None


def user_records(
    event: Any,
    policy: Policy = "strict",
    *,
    shard_map: ShardMap | None = None,
    on_drop: Callable[[Drop], None] | None = None,
    max_decompressed_size: int | None = None,
    unframe: bool = False,
) -> Deaggregation:
    """The user records of ``event``, in order, lazily; ``data`` is bytes. ``.counts``: what was opened.

    ``event``: a Lambda event for a stream, or anything else `kpl_codec.adapters` reads. ``on_drop``,
    ``max_decompressed_size``, ``unframe``: as in `kpl_codec.deaggregate`.
    Raises DecodeError or CaptureError at the first Kinesis record that cannot be opened. To report only that
    record to Lambda, use `process_user_records`.
    """
    return deaggregate(
        kinesis_records(event),
        policy,
        shard_map=shard_map,
        on_drop=on_drop,
        max_decompressed_size=max_decompressed_size,
        unframe=unframe,
        read_ahead=isinstance(event, Mapping) and "Records" in event,
    )


def stream_of(record: Mapping[str, Any]) -> str:
    """The ARN of the stream that a Lambda record comes from, without the consumer's part."""
    arn = record.get("eventSourceARN")
    return arn.partition("/consumer/")[0] if isinstance(arn, str) else ""


def idempotency_key(record: DeaggregatedRecord, stream_arn: str) -> str:
    """A text that identifies one user record of one stream, the same on every delivery."""
    # LMB-8: "The idempotency key of a user record MUST be its stream, shard, sequence number and
    # sub-sequence number, and nothing that changes between deliveries."
    return f"{stream_arn}/{record.shard_id or ''}/{record.sequence_number}/{record.sub_sequence_number}"


def event_records(event: Any, key: Literal["Records", "records"]) -> list[Any]:
    """The records under ``key``. Raises CaptureError for an event without, TypeError for what is no event."""
    takes = "process_user_records" if key == "Records" else "transform_user_records"
    if not isinstance(event, Mapping):
        raise TypeError(
            f"{takes} takes the event as Lambda gives it, a dict, and got {type(event).__name__}; "
            "kpl_codec.aws_lambda.user_records reads records, JSON and every other shape"
        )
    records = event.get(key)
    if isinstance(records, list):
        if records and isinstance(records[0], Mapping) and shape_of(records[0]) == "boto3":
            raise TypeError(
                f"{takes} takes a Lambda event; for GetRecords answers: kpl_codec.deaggregate("
                "kpl_codec.adapters.from_get_records(answer))"
            )
        return records
    other = "records" if key == "Records" else "Records"
    if isinstance(event.get(other), list):
        function = "firehose.transform_user_records" if key == "Records" else "process_user_records"
        raise TypeError(f"{takes} does not take this event: use kpl_codec.aws_lambda.{function}")
    raise CaptureError(code="missing-field", field=key, requirement="CAP-4")


def units(
    event: Mapping[str, Any],
    *,
    policy: Policy = "strict",
    shard_map: ShardMap | ShardMaps | None = None,
    on_drop: Callable[[Drop], None] | None = None,
    watch: SeesEvents | None = None,
    max_decompressed_size: int | None = None,
    unframe: bool = False,
) -> Iterator[Unit]:
    """The Kinesis records of a Lambda event, opened one by one, once ``watch`` has seen it.

    Raises CaptureError for an invalid event, and for a record without a sequence number to report: then only
    the whole batch can fail.
    """
    if watch is not None:
        watch.see(event)
    records = event_records(event, "Records")
    # LMB-12: "Under the kcl policy what the KCL drops MUST be told to the caller."
    if policy == "kcl" and on_drop is None:
        raise ValueError("policy 'kcl' drops user records: on_drop must be there to hear of them")
    for raw, item in zip(records, captured(event, shape="lambda"), strict=True):
        if isinstance(item, CaptureError):
            if item.sequence_number is None:
                raise item
            yield Unit(item.sequence_number, stream_of(raw), [], Poison(item, None, raw, stream_of(raw)))
            continue
        stream_arn = stream_of(raw)
        if shard_map is None or not hasattr(shard_map, "shard_map"):
            known = shard_map
        else:
            known = shard_map.shard_map(stream_arn, item.shard_id)
        opened: list[DeaggregatedRecord] = []
        poison = None
        try:
            opened = list(
                deaggregate(
                    [item],
                    policy,
                    shard_map=known,
                    on_drop=on_drop,
                    max_decompressed_size=max_decompressed_size,
                    unframe=unframe,
                )
            )
        except DecodeError as error:
            poison = Poison(error, item, raw, stream_arn)
        yield Unit(item.sequence_number or "", stream_arn, opened, poison)


def done(result: object) -> object:
    """``result`` of the caller's function. Raises TypeError for a coroutine or generator, which has not
    run."""
    # LMB-15: "A handler or hook that is a coroutine or generator function where a plain one is called MUST
    # fail: it has not run, and its record MUST NOT count as handled."
    if hasattr(result, "__await__") or isinstance(result, (GeneratorType, AsyncGeneratorType)):
        if isinstance(result, (CoroutineType, GeneratorType)):
            result.close()
        raise TypeError("nothing of an async or generator function has run: for async handlers see aio")
    return result


def settle_poison(
    poison: Poison, on_poison: Callable[[Poison], object] | None, *, comes_again: bool = False
) -> bool:
    """Give a record that cannot be opened to ``on_poison``. Returns whether that took it; if not, it has
    failed.

    ``comes_again``: one before it has failed, so Lambda sends it again; then the hook is not called now.
    """
    # LMB-4: "A Kinesis record that cannot be opened MUST be reported as failed, and logged, unless the
    # caller's poison hook took it; it MUST NOT be passed over."
    if on_poison is None or comes_again:
        log("kinesis record cannot be opened: %s", poison.error)
        return False
    try:
        done(on_poison(poison))
    except Exception:  # noqa: BLE001 - the caller's code: whatever it raises, the record was not taken
        log_exception("poison hook failed: %s", poison.error)
        return False
    return True


class Call(NamedTuple):
    """A user record to handle; ``number``: of its Kinesis record in the event, from 0."""

    number: int
    unit: Unit
    record: DeaggregatedRecord

    @property
    def key(self) -> str:
        """See `idempotency_key`."""
        return idempotency_key(self.record, self.unit.stream_arn)


class Batch:
    """One invocation: which user records may be handled, which of them failed, and the answer.

    for call in batch.calls():                      # None: first wait for all calls so far
        if call is not None and batch.may_start(call):
            ...                                     # on an exception: batch.fail(call)
    return batch.answer()

    ``after_failure``: see `process_user_records`.
    """

    def __init__(
        self,
        event: Mapping[str, Any],
        *,
        after_failure: AfterFailure = "stop",
        on_poison: Callable[[Poison], object] | None = None,
        context: Context | None = None,
        reserve_ms: int = 0,
        **opening: Unpack[Opening],
    ) -> None:
        if after_failure not in ("stop", "continue"):
            raise ValueError(f"after_failure {after_failure!r}: stop or continue")
        self._units = units(event, **opening)
        self._stop, self._on_poison = after_failure == "stop", on_poison
        self._context, self._reserve_ms = context, reserve_ms
        #: The sequence numbers of the Kinesis records that failed, by `Call.number`.
        self._failed: dict[int, str] = {}
        self._failed_keys: set[str | None] = set()

    def calls(self) -> Iterator[Call | None]:
        """The user records in event order; None before a record that cannot be opened: whether its hook is
        called depends on how all before it ended."""
        for number, unit in enumerate(self._units):
            if unit.poison is not None:
                yield None
                if not self._over() and not settle_poison(
                    unit.poison, self._on_poison, comes_again=bool(self._failed)
                ):
                    self._failed[number] = unit.sequence_number
            yield from (Call(number, unit, record) for record in unit.user_records)
            if self._over():
                return

    def _over(self) -> bool:
        return self._stop and bool(self._failed)

    def may_start(self, call: Call) -> bool:
        """Whether a user record may be handled now. If the time is over, its Kinesis record has failed."""
        # LMB-14: "Of an async handler, user records of one partition key MUST be handled one after the other,
        # in order; after a failure every user record before the lowest failed Kinesis record MUST still be
        # handled."
        if self._stop and self._failed and call.number >= min(self._failed):
            return False
        # LMB-3: "After a failure no user record of the same partition key MUST be handled in the same
        # invocation: it comes again, after the one that failed."
        if call.record.partition_key in self._failed_keys:
            return False
        # LMB-11: "With less time left than the reserve, the rest of the batch MUST be reported, not begun."
        if self._context is not None and self._context.get_remaining_time_in_millis() < self._reserve_ms:
            self._failed[call.number] = call.unit.sequence_number
            return False
        return True

    def fail(self, call: Call) -> None:
        """The exception being handled is that of this user record."""
        log_exception("user record failed: %s", call.key)
        self._failed[call.number] = call.unit.sequence_number
        self._failed_keys.add(call.record.partition_key)

    def first_failed(self) -> int | None:
        """The first Kinesis record that failed (`Call.number`)."""
        return min(self._failed, default=None)

    def answer(self) -> dict[str, Any]:
        """Lambda's answer: the Kinesis records that failed."""
        # LMB-1: "The answer MUST be batchItemFailures with the failed Kinesis records in event order, so
        # that the lowest comes first; empty if none failed."
        # LMB-2: "A Kinesis record of which a user record failed MUST be reported by its sequence number,
        # once."
        failures = dict.fromkeys(self._failed[number] for number in sorted(self._failed))
        return {"batchItemFailures": [{"itemIdentifier": number} for number in failures]}


def _handle(handler: Handler, record: DeaggregatedRecord) -> object:
    return done(handler(record))


def process_user_records(
    event: Mapping[str, Any],
    handler: Handler,
    *,
    after_failure: AfterFailure = "stop",
    once: Once | None = None,
    **options: Unpack[Options],
) -> dict[str, Any]:
    """Call ``handler`` with each user record of a Lambda event, in order; gives Lambda's answer.

    * ``after_failure``: "stop", or "continue" with the user records of other partition keys;
    * ``once``: called as ``once(key, call)``; makes the call unless it was made for that key before
      (`powertools.once` does it with the Powertools idempotency utility);
    * the others: see `Options` and `Opening`.

    Any exception of the handler is a failure; it is logged with its traceback to the logger
    ``kpl_codec.aws_lambda``. Raises CaptureError for an event without records, and TypeError for what is no
    event.
    """
    batch = Batch(event, after_failure=after_failure, **options)
    for call in batch.calls():
        if call is None or not batch.may_start(call):
            continue
        run = partial(_handle, handler, call.record)
        try:
            done(run() if once is None else once(call.key, run))
        except Exception:  # noqa: BLE001 - the caller's code: whatever it raises, the record failed
            batch.fail(call)
    return batch.answer()


def log(message: str, *values: object) -> None:
    """One line at level error. Never record data."""
    import logging  # loaded by the runtime anyway; not part of the import of this module

    logging.getLogger("kpl_codec.aws_lambda").error(message, *values)


def log_exception(message: str, *values: object) -> None:
    """The same with the traceback of the exception being handled."""
    import logging

    logging.getLogger("kpl_codec.aws_lambda").exception(message, *values)
