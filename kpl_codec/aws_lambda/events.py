"""The user records of a Lambda event, and the answer that says which Kinesis records to send again.

Lambda knows Kinesis records only, and after a partial failure it sends again everything from the lowest
sequence number reported. So after one failed user record its siblings and all later records come again:

    * the answer names each failed Kinesis record once;
    * after a failure nothing more is handled (``after_failure="stop"``), or only user records of other
      partition keys ("continue"): the rest comes again anyway, and in order;
    * ``once`` prevents that a user record is handled twice: see `idempotency_key`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from ..adapters.reading import captured, kinesis_records
from ..adapters.shapes import shape_of
from ..deaggregation.counts import Drop
from ..deaggregation.policies import Deaggregation, Policy, deaggregate
from ..deaggregation.records import DeaggregatedRecord
from ..errors import CaptureError, DecodeError
from ..format.records import KinesisRecord

if TYPE_CHECKING:
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
    decompress: bool | int = False,
) -> Deaggregation:
    """The user records of ``event``, in order, lazily; ``data`` is bytes. ``.counts``: what was opened.

    ``event``: a Lambda event for a stream, or anything else `kpl_codec.adapters` reads. ``on_drop``,
    ``decompress``: as in `kpl_codec.deaggregate`.
    Raises DecodeError or CaptureError at the first Kinesis record that cannot be opened. To report only that
    record to Lambda, use `process_user_records`.
    """
    return deaggregate(
        kinesis_records(event),
        policy,
        shard_map=shard_map,
        on_drop=on_drop,
        decompress=decompress,
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
    policy: Policy,
    shard_map: ShardMap | ShardMaps | None,
    on_drop: Callable[[Drop], None] | None,
    decompress: bool | int = False,
    watch: SeesEvents | None = None,
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
                deaggregate([item], policy, shard_map=known, on_drop=on_drop, decompress=decompress)
            )
        except DecodeError as error:
            poison = Poison(error, item, raw, stream_arn)
        yield Unit(item.sequence_number or "", stream_arn, opened, poison)


def check_after_failure(after_failure: str) -> None:
    if after_failure not in ("stop", "continue"):
        raise ValueError(f"after_failure {after_failure!r}: stop or continue")


def answer(sequence_numbers: Iterable[str]) -> dict[str, Any]:
    """Lambda's answer: these Kinesis records failed, in event order. Each is named once."""
    # LMB-1: "The answer MUST be batchItemFailures with the failed Kinesis records in event order, so
    # that the lowest comes first; empty if none failed."
    # LMB-2: "A Kinesis record of which a user record failed MUST be reported by its sequence number,
    # once."
    return {"batchItemFailures": [{"itemIdentifier": number} for number in dict.fromkeys(sequence_numbers)]}


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


def _handle(handler: Handler, record: DeaggregatedRecord) -> object:
    return done(handler(record))


def process_user_records(
    event: Mapping[str, Any],
    handler: Handler,
    *,
    after_failure: AfterFailure = "stop",
    on_poison: Callable[[Poison], object] | None = None,
    once: Once | None = None,
    policy: Policy = "strict",
    shard_map: ShardMap | ShardMaps | None = None,
    on_drop: Callable[[Drop], None] | None = None,
    context: Context | None = None,
    reserve_ms: int = 0,
    watch: SeesEvents | None = None,
    decompress: bool | int = False,
) -> dict[str, Any]:
    """Call ``handler`` with each user record of a Lambda event, in order; gives Lambda's answer.

    * ``after_failure``: "stop", or "continue" with the user records of other partition keys;
    * ``on_poison``: takes Kinesis records that cannot be opened (for a dead-letter queue). If it does not
      raise, the record counts as handled; without it such records are reported as failed;
    * ``once``: called as ``once(key, call)``; makes the call unless it was made for that key before
      (`powertools.once` does it with the Powertools idempotency utility);
    * ``policy``: "strict", "kcl" (what the KCL delivers; needs ``on_drop``), "report" (user records
      of defective aggregates too: look at ``record.defects``);
    * ``shard_map``: a ShardMap or a `shard_map_cache.ShardMapCache`; then ``record.placement`` is set;
    * ``context``, ``reserve_ms``: if less time is left, the rest is not started but reported;
    * ``watch``: a `watch.ConsumerWatch`, which checks the event first;
    * ``decompress``: undo the compression of data, as in `kpl_codec.deaggregate`. A Kinesis record with data
      that cannot be decompressed counts as one that cannot be opened.

    Any exception of the handler is a failure; it is logged with its traceback to the logger
    ``kpl_codec.aws_lambda``. Raises CaptureError for an event without records, and TypeError for what is no
    event.
    """
    check_after_failure(after_failure)
    failed: list[str] = []
    failed_keys: set[str | None] = set()
    for unit in units(event, policy, shard_map, on_drop, decompress, watch):
        if unit.poison is not None and not settle_poison(unit.poison, on_poison, comes_again=bool(failed)):
            failed.append(unit.sequence_number)
        for record in unit.user_records:
            # LMB-3: "After a failure no user record of the same partition key MUST be handled in the same
            # invocation: it comes again, after the one that failed."
            if record.partition_key in failed_keys:
                continue
            # LMB-11: "With less time left than the reserve, the rest of the batch MUST be reported, not
            # begun."
            if context is not None and context.get_remaining_time_in_millis() < reserve_ms:
                return answer([*failed, unit.sequence_number])
            key = idempotency_key(record, unit.stream_arn)
            try:
                if once is None:
                    done(handler(record))
                else:
                    done(once(key, partial(_handle, handler, record)))
            except Exception:  # noqa: BLE001 - the caller's code: whatever it raises, the record failed
                log_exception("user record failed: %s", key)
                failed.append(unit.sequence_number)
                failed_keys.add(record.partition_key)
                if after_failure == "stop":
                    break
        if failed and after_failure == "stop":
            break
    return answer(failed)


def log(message: str, *values: object) -> None:
    """One line at level error. Never record data."""
    import logging  # loaded by the runtime anyway; not part of the import of this module

    logging.getLogger("kpl_codec.aws_lambda").error(message, *values)


def log_exception(message: str, *values: object) -> None:
    """The same with the traceback of the exception being handled."""
    import logging

    logging.getLogger("kpl_codec.aws_lambda").exception(message, *values)
