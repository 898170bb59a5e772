"""One invocation: the Kinesis records of a Lambda event; which of their user records may be handled, which
failed, and which Kinesis records are poison (they cannot be decoded)."""

import logging
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from ..base.arguments import argument_error, check_arguments
from ..base.values import Value
from ..deaggregation.deaggregated_record import DeaggregatedRecord
from ..errors import CaptureError, DecodeError, OwnText, place_of, safe
from ..format.records import KinesisRecord, short_fields

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger

#: Gets the errors of handlers and records, never record data.
LOG = logging.getLogger("kpl_codec.aws_lambda")

Handler = Callable[[DeaggregatedRecord], object]
#: A function that gets an idempotency key and a function to call, and calls it unless it did so before for
#: this key.
Once = Callable[[str, Callable[[], object]], object]
AfterFailure = Literal["stop", "continue"]
_Result = TypeVar("_Result")


class CallersTypeError(TypeError, OwnText):
    """A function of the caller is of the wrong kind, or returned the wrong type."""


class CallHasFailed(RuntimeError, OwnText):
    """A caller's ``once`` returned, but its call has not."""


class Poison(Value):
    """A Kinesis record that cannot be decoded. ``kinesis_record``: None if its base64 cannot be read.
    ``event_record``: the record as it is in the event."""

    error: DecodeError | CaptureError
    kinesis_record: KinesisRecord | None
    event_record: Mapping[str, Any]
    stream_arn: str

    def __repr__(self) -> str:
        return short_fields(self)


class OpenedRecord(NamedTuple):
    """One Kinesis record of an event: its user records, or its poison. ``identifier``: its name in the
    response: the sequence number; from a pipe the eventID."""

    identifier: str
    event_record: Mapping[str, Any]
    stream_arn: str
    user_records: list[DeaggregatedRecord]
    poison: Poison | None


def open_record(
    record: KinesisRecord,
    raw: Mapping[str, Any],
    arn: str,
    open_alone: Callable[[KinesisRecord], list[DeaggregatedRecord]],
    identifier: str,
) -> OpenedRecord:
    """Open a Kinesis record. ``raw``: the record in the event; ``arn``: of the stream."""
    try:
        return OpenedRecord(identifier, raw, arn, open_alone(record), None)
    except DecodeError as error:
        return OpenedRecord(identifier, raw, arn, [], Poison(error, record, raw, arn))


def idempotency_key(record: DeaggregatedRecord, stream_arn: str) -> str:
    """A text that identifies one user record of one stream, the same on every delivery."""
    if not hasattr(record, "record_id"):
        give = "a user record, as deaggregate and user_records give it"
        raise argument_error("idempotency_key", "record", record, give=give)
    if record.sequence_number is None:
        give = "a user record with a sequence number (a queue's has none: its RecordId tells it from others)"
        raise argument_error("idempotency_key", "record", record, give=give)
    check_arguments("idempotency_key", {"stream_arn": stream_arn})
    return key_of(record, stream_arn)


def key_of(record: DeaggregatedRecord, stream_arn: str) -> str:
    """`idempotency_key` of a record of an event, whose stream may have no ARN."""
    # LMB-8: "The idempotency key of a user record MUST be its stream, shard, sequence number and
    # sub-sequence number, and nothing that changes between deliveries."
    return f"{stream_arn}/{record.shard_id or ''}/{record.sequence_number}/{record.sub_sequence_number}"


#: For each ``once``, the user records that this process has handled, of Kinesis records that may come again:
#: by Kinesis record, their sub-sequence numbers.
HandledHere = OrderedDict[tuple[str, str], set[int]]
_HANDLED_HERE: "WeakKeyDictionary[Any, dict[Any, HandledHere]]" = WeakKeyDictionary()
#: The most Kinesis records of which that is kept: as many as a batch may have.
_MOST_REMEMBERED: Final = 10_000


class StoreOnce:
    """What `powertools.once` and `async_once` return, a new one in each invocation. ``store``: the store and
    the prefix of its keys. By them later invocations of this process know what was handled (LMB-24)."""

    __slots__ = ("_call", "store")

    def __init__(self, call: Callable[[str, Any], Any], store: tuple[Any, str]) -> None:
        self._call, self.store = call, store

    def __call__(self, key: str, call: Any) -> Any:
        return self._call(key, call)


def handled_here(once: Any) -> HandledHere | None:
    """What this process has handled with ``once``; None for an object that cannot be told from others."""
    if once is None:
        return None
    # A method is a new object each time that it is looked up.
    owner, name = getattr(once, "__self__", once), getattr(once, "__func__", None)
    if isinstance(once, StoreOnce):
        owner, name = once.store
    try:
        return _HANDLED_HERE.setdefault(owner, {}).setdefault(name, HandledHere())
    except TypeError:
        return None


def check_has_run(result: _Result) -> _Result:
    """``result``, which the caller's function returned. Raises TypeError for a coroutine or generator: the
    function's body has not run."""
    # LMB-15: "A handler or hook that is a coroutine or generator function where a plain one is called MUST
    # fail: it has not run, and its record MUST NOT count as handled."
    if result is None:
        return result
    if hasattr(result, "__await__") or isinstance(result, (GeneratorType, AsyncGeneratorType)):
        if isinstance(result, (CoroutineType, GeneratorType)):
            result.close()
        raise CallersTypeError(
            "nothing of an async or generator function has run: async handlers go to "
            "kpl_codec.aws_lambda.aio.process_user_records"
        )
    return result


def handle_poison(
    poison: Poison, on_poison: Callable[[Poison], object] | None, *, comes_again: bool = False
) -> bool:
    """Whether ``on_poison`` took a record that cannot be decoded. ``comes_again``: a record before it has
    failed, so Lambda sends this record again, and ``on_poison`` is not called now."""
    # LMB-4: "A Kinesis record that cannot be opened MUST be reported as failed, and logged, unless the
    # caller's poison hook took it; it MUST NOT be passed over."
    if on_poison is None or comes_again:
        LOG.error("kinesis record cannot be opened: %s", poison.error)
        return False
    try:
        check_has_run(on_poison(poison))
    except Exception as error:  # noqa: BLE001 - the caller's code: whatever it raises, the record failed
        LOG.error("poison hook failed: %s: %s", poison.error, place_of(error))
        return False
    return True


class HandlerCall(NamedTuple):
    """A user record to handle. ``number``: the index of its Kinesis record in the event, from 0."""

    number: int
    unit: OpenedRecord
    record: DeaggregatedRecord

    @property
    def key(self) -> str:
        return key_of(self.record, self.unit.stream_arn)

    @property
    def place(self) -> tuple[str, str]:
        """The Kinesis record, told from those of other streams and shards."""
        return self.unit.stream_arn, f"{self.record.shard_id}/{self.record.sequence_number}"


class Invocation:
    """One invocation, and its response. ``open_records``: called with the options ``opening``, returns the
    invocation's Kinesis records, opened. The other arguments: see `events.process_user_records`."""

    def __init__(
        self,
        open_records: Callable[..., Iterable[OpenedRecord]],
        *,
        after_failure: AfterFailure = "stop",
        on_poison: Callable[[Poison], object] | None = None,
        context: Any = None,
        reserve_ms: int = 0,
        ledger: "Ledger | None" = None,
        **opening: Any,
    ) -> None:
        self._units = open_records(**opening)
        self._stop, self._on_poison = after_failure == "stop", on_poison
        self._context, self._reserve_ms, self._ledger = context, reserve_ms, ledger
        #: With ``once``: what this process has handled before. See `is_known`.
        self.known: HandledHere | None = None
        #: True when the reserve has ended the invocation.
        self._out_of_time = False
        #: The calls that succeeded.
        self.handled: list[HandlerCall] = []
        #: By ``id``, the user records whose handler this invocation has called, and the ``id`` of those whose
        #: handler returned. ``once`` does not call the handler of a record that was handled before.
        self._called: dict[int, DeaggregatedRecord] = {}
        self._returned: set[int] = set()
        #: Poison that ``on_poison`` took.
        self.aside: list[OpenedRecord] = []
        #: The identifiers of the Kinesis records that failed, by `HandlerCall.number`.
        self._failed: dict[int, str] = {}
        self._failed_keys: set[str | None] = set()

    def each(self, handle: Callable[[HandlerCall], object]) -> None:
        for call in self.calls():
            if call is None or not self.may_start(call):
                continue
            try:
                handle(call)
                self.succeed(call)
            except Exception as error:  # noqa: BLE001 - the caller's code: whatever it raises, the record failed
                self.fail(error, call)

    def calls(self) -> Iterator[HandlerCall | None]:
        """The user records in event order, and None before each poison: whether ``on_poison`` is called
        depends on the results of all calls before it, which must have ended."""
        for number, unit in enumerate(self._units):
            if unit.poison is not None:
                yield None
                if not self._over():
                    if handle_poison(unit.poison, self._on_poison, comes_again=bool(self._failed)):
                        self.aside.append(unit)
                    else:
                        self._failed[number] = unit.identifier
            yield from (HandlerCall(number, unit, record) for record in unit.user_records)
            if self._over():
                return

    def _over(self) -> bool:
        return self._stop and bool(self._failed)

    def may_start(self, call: HandlerCall) -> bool:
        """Whether a user record may be handled now. If too little time is left, its Kinesis record has
        failed."""
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
            self._failed[call.number] = call.unit.identifier
            self._out_of_time = True
            return False
        return True

    def is_known(self, call: HandlerCall) -> bool:
        """Whether this process has handled the user record, so that ``once`` need not be asked."""
        # LMB-24: "A user record that this execution environment has handled MUST NOT be looked up in the
        # caller's store when it is delivered again."
        return self.known is not None and call.record.sub_sequence_number in self.known.get(call.place, ())

    def fail(self, error: BaseException, *calls: HandlerCall) -> None:
        """Note, and log, that ``error`` has failed these user records, of one Kinesis record."""
        # LMB-35: "A log MUST NOT have the text of what a caller's function raised, but its class and place."
        LOG.error("user record failed: %s: %s", safe(calls[0].key), place_of(error))
        self._failed[calls[0].number] = calls[0].unit.identifier
        self._failed_keys.update(call.record.partition_key for call in calls)

    def was_called(self, record: DeaggregatedRecord) -> bool:
        """Whether the handler was called for ``record``; ``once`` may leave it out. Raises RuntimeError where
        the call has not ended well."""
        called = id(record) in self._called
        # LMB-22: "A user record whose handler was called MUST NOT count as handled unless the handler has
        # returned, whatever the caller's store does."
        if called and id(record) not in self._returned:
            raise CallHasFailed("once returned, but its call has failed, runs still, or was not awaited")
        return called

    def succeed(self, call: HandlerCall) -> None:
        self.was_called(call.record)
        self.handled.append(call)
        if self.known is not None:
            self.known.setdefault(call.place, set()).add(call.record.sub_sequence_number)
            self.known.move_to_end(call.place)
            if len(self.known) > _MOST_REMEMBERED:
                self.known.popitem(last=False)

    def run(self, handler: Handler, record: DeaggregatedRecord) -> object:
        """Call a handler that is not async. Raises what it raises, and TypeError for an async one."""
        self.begin(record)
        result = check_has_run(handler(record))
        self.end(record)
        return result

    def begin(self, record: DeaggregatedRecord) -> None:
        self._called[id(record)] = record

    def end(self, record: DeaggregatedRecord) -> None:
        self._returned.add(id(record))

    def first_failure(self) -> int | None:
        return min(self._failed, default=None)

    def response(self) -> dict[str, Any]:
        """The response for Lambda, after the ledger is written: the Kinesis records that failed."""
        # LMB-1: "The response MUST be batchItemFailures with the failed Kinesis records in event order, so
        # that the lowest comes first; empty if none failed."
        # LMB-2: "A Kinesis record of which a user record failed MUST be reported by its sequence number,
        # once."
        failures = dict.fromkeys(self._failed[number] for number in sorted(self._failed))
        self._write_ledger()
        self._note_progress()
        return {"batchItemFailures": [{"itemIdentifier": number} for number in failures]}

    def _note_progress(self) -> None:
        first = self.first_failure()
        if self.known is not None:
            for call in self.handled:
                if first is None or call.number < first:
                    self.known.pop(call.place, None)  # it does not come again
        if self._out_of_time and self.handled and not self._returned:
            LOG.warning(
                "no new user record was handled: %d that were handled before have taken the time. If that "
                "goes on, the Kinesis record expires: raise the function's timeout, lower reserve_ms, or "
                "put smaller aggregated records",
                len(self.handled),
            )

    def _write_ledger(self) -> None:
        if self._ledger is None:
            return
        # AUD-7: "A consumer's rows MUST be stored before the records count as handled."
        calls = sorted(self.handled, key=lambda call: (call.number, call.record.sub_sequence_number))
        records = defaultdict[tuple[str, bool], list[DeaggregatedRecord]](list)
        for call in calls:
            before = id(call.record) not in self._returned
            records[call.unit.stream_arn, before].append(call.record)
        for (stream_arn, before), handled in records.items():
            self._ledger.handled(stream_arn, handled, before=before)
        if self.aside:
            from ..ledger.ledger_rows import Row
        for unit in self.aside:
            shard_id = str(unit.event_record.get("eventID")).rpartition(":")[0]
            number = unit.identifier.rpartition(":")[2]  # the eventID of a record from EventBridge Pipes
            self._ledger.note(
                unit.stream_arn,
                [Row("aside", shard_id, sequence_number=number, user_records=0, at=int(time.time() * 1000))],
            )
