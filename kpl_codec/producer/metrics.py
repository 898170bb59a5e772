"""The producer's metrics under the KPL's names, and through the OpenTelemetry API (the ``otel`` extra)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..base.arguments import check_arguments
from ..base.lazy import require_extras
from ..shards.stream_name import stream_of
from .config import Observe
from .results import NO_HISTORY, Delivery

if TYPE_CHECKING:
    from .batch import Batch
    from .record import Pending

# PRD-33: "Measurements MUST have the KPL's metric names."
#: Name -> (kind, unit). Counters add up, histograms take single values, gauges show a level.
METRICS: Final[dict[str, tuple[str, str]]] = {
    # A user record is accepted, ended, or delivered.
    "UserRecordsReceived": ("counter", "{record}"),
    "UserRecordsPending": ("gauge", "{record}"),
    "UserRecordsPut": ("counter", "{record}"),
    "UserRecordsDataPut": ("counter", "By"),
    "RetriesPerRecord": ("histogram", "{retry}"),
    # A Kinesis record is delivered (by ShardId), or was not (by ErrorCode; AllErrors: without).
    "KinesisRecordsPut": ("counter", "{record}"),
    "KinesisRecordsDataPut": ("counter", "By"),
    "ErrorsByCode": ("counter", "{record}"),
    "AllErrors": ("counter", "{record}"),
    # A request goes out. BufferingTime: of user records that are sent for the first time.
    "BufferingTime": ("histogram", "ms"),
    "UserRecordsPerKinesisRecord": ("histogram", "{record}"),
    "KinesisRecordsPerPutRecordsRequest": ("histogram", "{record}"),
    "UserRecordsPerPutRecordsRequest": ("histogram", "{record}"),
    # A PutRecords call was answered, or failed.
    "RequestTime": ("histogram", "ms"),
    # Not in the KPL: the age of the oldest outstanding user record; failed refreshes of the shard map (by
    # ErrorCode).
    "OldestUserRecordAge": ("gauge", "ms"),
    "ShardMapErrors": ("counter", "{error}"),
}


def _ignore(name: str, value: float, attributes: Mapping[str, str]) -> None:
    pass


class Meter:
    """Calls ``observe`` with the metrics above. ``error``: the first error that ``observe`` raised."""

    def __init__(self, observe: Observe | None) -> None:
        self.observe = self._guard if observe else _ignore
        self.error: BaseException | None = None
        self._observe = observe or _ignore
        self._outstanding = 0  # at the last call of `levels`
        self._put_in = Counter[int]()  # how many are outstanding, by the tenth of a second of their put

    def _guard(self, name: str, value: float, attributes: Mapping[str, str]) -> None:
        # PRD-35: "An error in the caller's measuring MUST NOT cost a user record, nor its result."
        try:
            self._observe(name, value, attributes)
        except BaseException as error:  # noqa: BLE001 - see above
            self.error = self.error or error

    def accepted(self, put_at: float) -> None:
        """A user record that was put then was accepted."""
        self.observe("UserRecordsReceived", 1, {})
        self._put_in[int(put_at * 10)] += 1

    def ended(self, ended: Sequence[Pending]) -> None:
        """These user records have their results."""
        self._put_in -= Counter([int(pending.accepted_at * 10) for pending in ended])
        for pending in ended:
            history = pending.history or NO_HISTORY
            failed = len(history.attempts) + history.left_out
            retries = failed if isinstance(pending.result, Delivery) else max(0, failed - 1)
            self.observe("RetriesPerRecord", retries, {})

    def levels(self, outstanding: int, now: float) -> None:
        """Measure how many user records are outstanding; when none are left, once more, so that the last
        value is 0."""
        if outstanding or self._outstanding:
            age = max(0.0, now - min(self._put_in, default=now * 10) / 10)
            self.observe("UserRecordsPending", outstanding, {})
            self.observe("OldestUserRecordAge", age * 1000, {})
        self._outstanding = outstanding

    def sent(self, batches: Sequence[Batch], now: float) -> None:
        """A call with these batches is made."""
        observe = self.observe
        if observe is _ignore:
            return
        observe("KinesisRecordsPerPutRecordsRequest", len(batches), {})
        observe("UserRecordsPerPutRecordsRequest", sum(len(batch.records) for batch in batches), {})
        for batch in batches:
            observe("UserRecordsPerKinesisRecord", len(batch.records), {})
            for pending in batch.records:
                if not pending.history:
                    observe("BufferingTime", (now - pending.accepted_at) * 1000, {})

    def delivered(self, batch: Batch, shard_id: str) -> None:
        observe = self.observe
        if observe is _ignore:
            return
        observe("UserRecordsPut", len(batch.records), {})
        observe("UserRecordsDataPut", sum(len(pending.record.data) for pending in batch.records), {})
        observe("KinesisRecordsPut", 1, {"ShardId": shard_id})
        observe("KinesisRecordsDataPut", batch.data_size, {"ShardId": shard_id})


#: The method of each kind of instrument that takes a value.
_TELL: Final = {"counter": "add", "histogram": "record", "gauge": "set"}


class OpenTelemetryMetrics:
    """An ``observe`` for both producers; every measurement has StreamName. Thread-safe.

    ``stream``: name or ARN. ``meter``: an OpenTelemetry meter; by default that of the global provider.
    """

    def __init__(self, stream: str, *, meter: Any = None) -> None:
        with require_extras("kpl_codec.producer.OpenTelemetryMetrics"):
            from opentelemetry import metrics

        check_arguments("OpenTelemetryMetrics", {"stream": stream, "meter": meter})
        if meter is None:
            meter = metrics.get_meter("kpl_codec.producer")
        self._base = {"StreamName": stream_of(stream).name}
        self._tell: dict[str, Any] = {}
        for name, (kind, unit) in METRICS.items():
            instrument = getattr(meter, f"create_{kind}")(name, unit=unit)
            self._tell[name] = getattr(instrument, _TELL[kind])

    def __call__(self, name: str, value: float, attributes: Mapping[str, str]) -> None:
        self._tell[name](value, {**self._base, **attributes})
