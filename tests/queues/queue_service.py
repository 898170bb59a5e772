"""Queues as AWS documents them (botocore 1.44.5), on an injected clock: no server of others has them.

    service = QueueService(model, clock)          # `call` is the service; both directions judged by the model
    client = DirectClient(service)                # with boto3's methods and errors
    with QueueServer(service) as url: ...         # the same over HTTP, for real clients

Visibility, redelivery, dead letters and expiry by retention always; records in any order, delivered twice,
entries and calls that fail, as ``seed`` and the rates have it. What the documentation leaves open: an old
receipt handle is refused; one whose visibility ended is taken until the record is delivered again.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, NamedTuple

from botocore import xform_name
from botocore.exceptions import ClientError
from botocore.model import ServiceModel

from .queue_model import refusal

ACCOUNT = "arn:aws:kinesis:us-east-1:123456789012"
STREAM = f"{ACCOUNT}:stream/orders"


class RealClock:
    """``speed``: how many times as fast it goes, for tests that only wait."""

    def __init__(self, speed: float = 1.0) -> None:
        self._speed, self._began = speed, time.time()

    def now(self) -> float:
        return self._began + (time.time() - self._began) * self._speed

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds / self._speed, 0.02))


class VirtualClock:
    """Time that only moves when somebody sleeps. ``beats``: what other threads would do meanwhile."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0
        self.beats: list[tuple[Callable[[], None], float]] = []
        self._next: dict[int, float] = {}
        self.beating_works = True

    @contextmanager
    def beating(self, beat: Callable[[], None], interval: float) -> Iterator[None]:
        """In place of a thread."""
        before = self.beats
        self.beats = [*before, (beat, interval)] if self.beating_works else before
        try:
            yield
        finally:
            self.beats = before
            self._next.pop(id(beat), None)

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        end = self.time + seconds
        for beat, interval in self.beats:
            self._next[id(beat)] = max(self._next.get(id(beat), 0.0), self.time + interval)
        while self.beats:
            beat, interval = min(self.beats, key=lambda item: self._next[id(item[0])])
            due = self._next[id(beat)]
            if due > end:
                break
            self.time = max(self.time, due)
            self._next[id(beat)] = self.time + interval
            beat()
        self.time = max(self.time, end)


class ServiceError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message


class Rates(NamedTuple):
    """How often, from 0 to 1: a record is delivered twice, an entry fails, a call fails."""

    twice: float = 0.0
    entries: float = 0.0
    calls: float = 0.0


NEVER = Rates()


class Record:
    """A record of the stream."""

    def __init__(self, record_id: str, partition_key: str | None, data: bytes, arrived: float) -> None:
        self.record_id, self.partition_key, self.data, self.arrived = record_id, partition_key, data, arrived


class Delivery:
    """A record in one queue."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.visible_at = record.arrived
        self.handle: str | None = None
        self.received = self.deliveries = 0
        self.first: float | None = None
        self.dead = self.acknowledged = False


class Queue:
    def __init__(self, description: dict[str, Any], created: float) -> None:
        self.description = description
        self.created = created
        self.deliveries: list[Delivery] = []

    @property
    def attributes(self) -> dict[str, Any]:
        return self.description["QueueAttributes"]


class QueueService:
    def __init__(
        self,
        model: ServiceModel,
        clock: Any,
        *,
        seed: int = 0,
        rates: Rates = NEVER,
        retention: float = 86_400.0,
    ) -> None:
        self._model, self.clock, self._chance, self.rates = model, clock, Random(seed), rates
        self._retention = retention
        self._lock = threading.RLock()
        self.records: list[Record] = []
        self.queues: dict[str, Queue] = {}
        self.calls: list[str] = []
        self.seen: dict[str, set[str]] = {}  # by operation the members of its output that were given
        #: Called with the id of a record that is acknowledged.
        self.on_acknowledge: Callable[[str], None] = lambda record_id: None
        self._handles = 0

    # -- the stream -------------------------------------------------------------------------------

    def put(self, partition_key: str | None, data: bytes) -> str:
        with self._lock:
            record = Record(f"r{len(self.records):05d}", partition_key, data, self.clock.now())
            self.records.append(record)
            for queue in self.queues.values():
                queue.deliveries.append(Delivery(record))
            return record.record_id

    def create(self, name: str = "orders-queue", **attributes: Any) -> str:
        """A queue that is ACTIVE, from the oldest record."""
        position = {"Type": "TRIM_HORIZON"}
        answer = self.call(
            "CreateQueue",
            {
                "QueueName": name,
                "StreamConfigurationList": [{"StreamARN": STREAM, "StartingPosition": position}],
                "QueueAttributes": attributes,
            },
        )
        arn: str = answer["QueueDescription"]["QueueARN"]
        self.queues[arn].description["QueueStatus"] = "ACTIVE"
        return arn

    # -- one call ---------------------------------------------------------------------------------

    def call(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Raises ServiceError."""
        self.calls.append(operation)
        shapes = self._model.operation_model(operation)
        why = refusal(shapes.input_shape, arguments)
        if why is not None:
            raise ServiceError("InvalidArgumentException", why)
        if self._chance.random() < self.rates.calls:
            raise ServiceError("ThrottlingException", "by chance")
        answer = getattr(self, "_" + xform_name(operation))(**arguments)
        if shapes.output_shape is None:
            assert answer is None
            return {}
        why = refusal(shapes.output_shape, answer)
        assert why is None, f"{operation} answers what the model does not allow: {why}"
        self._note(operation, "", answer)
        return answer

    def _note(self, operation: str, at: str, value: Any) -> None:
        for name, inner in value.items() if isinstance(value, dict) else ():
            self.seen.setdefault(operation, set()).add(f"{at}.{name}")
            self._note(operation, f"{at}.{name}", inner)
        for inner in value if isinstance(value, list) else ():
            self._note(operation, at, inner)

    def _time(self, seconds: float) -> datetime:
        return datetime.fromtimestamp(seconds, timezone.utc)

    # -- queues -----------------------------------------------------------------------------------

    def _create_queue(
        self,
        QueueName: str,
        StreamConfigurationList: list[dict[str, Any]],
        QueueAttributes: dict[str, Any] | None = None,
        Tags: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        if len(StreamConfigurationList) != 1:
            raise ServiceError("ValidationException", "exactly one stream")
        if any(queue.description["QueueName"] == QueueName for queue in self.queues.values()):
            raise ServiceError("ResourceInUseException", "the name is taken")
        (stream,) = StreamConfigurationList
        position = stream.get("StartingPosition", {"Type": "LATEST"})
        if (position["Type"] == "AT_TIMESTAMP") != ("Timestamp" in position):
            raise ServiceError("ValidationException", "Timestamp goes with AT_TIMESTAMP")
        now = self.clock.now()
        attributes = {
            "VisibilityTimeoutSeconds": 30,
            "DeadLetterConfiguration": {"TargetType": "BUILT_IN", "MaxReceiveCount": 6},
            **(QueueAttributes or {}),
        }
        self._check(attributes)
        arn = f"{ACCOUNT}:queue/q{len(self.queues):012x}"
        description = {
            "QueueName": QueueName,
            "QueueARN": arn,
            "QueueStatus": "CREATING",
            "QueueCreationTimestamp": self._time(now),
            "StreamConfigurationList": [{"StreamARN": stream["StreamARN"], "StartingPosition": position}],
            "QueueAttributes": attributes,
        }
        queue = self.queues[arn] = Queue(description, now)
        begin = {"LATEST": now, "TRIM_HORIZON": 0.0}.get(position["Type"])
        begin = position["Timestamp"].timestamp() if begin is None else begin
        queue.deliveries = [Delivery(record) for record in self.records if record.arrived >= begin]
        return {"QueueDescription": description}

    @staticmethod
    def _check(attributes: dict[str, Any]) -> None:
        dead = attributes["DeadLetterConfiguration"]
        if dead["TargetType"] == "BUILT_IN" and "MaxReceiveCount" not in dead:
            raise ServiceError("ValidationException", "MaxReceiveCount goes with BUILT_IN")

    def _queue(self, arn: str, *, active: bool = False) -> Queue:
        queue = self.queues.get(arn)
        if queue is None:
            raise ServiceError("ResourceNotFoundException", f"no queue {arn}")
        if active and queue.description["QueueStatus"] not in ("ACTIVE", "UPDATING"):
            raise ServiceError("InvalidArgumentException", "the queue is not active")
        return queue

    def _describe_queue(self, QueueARN: str) -> dict[str, Any]:
        return {"QueueDescription": self._queue(QueueARN).description}

    def _list_queues(
        self, MaxResults: int = 100, NextToken: str = "0", StreamFilter: list[dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        if not NextToken.isdigit():
            raise ServiceError("ValidationException", "no token of this service")
        first = int(NextToken)
        streams = {item["StreamARN"] for item in StreamFilter or ()}
        found = [
            {
                **{name: queue.description[name] for name in ("QueueName", "QueueARN", "QueueStatus")},
                "QueueCreationTimestamp": queue.description["QueueCreationTimestamp"],
                "Streams": [
                    {"StreamARN": stream["StreamARN"], "StreamCreationTimestamp": self._time(1.7e9)}
                    for stream in queue.description["StreamConfigurationList"]
                ],
            }
            for queue in self.queues.values()
        ]
        found = [one for one in found if not streams or one["Streams"][0]["StreamARN"] in streams]
        answer: dict[str, Any] = {"QueueSummaries": found[first : first + MaxResults]}
        if first + MaxResults < len(found):
            answer["NextToken"] = str(first + MaxResults)
        return answer

    def _update_queue(self, QueueARN: str, QueueAttributes: dict[str, Any]) -> dict[str, Any]:
        queue = self._queue(QueueARN)
        changed = {**queue.attributes, **QueueAttributes}
        self._check(changed)
        queue.description["QueueAttributes"] = changed
        return {"QueueDescription": {**queue.description, "QueueStatus": "UPDATING"}}

    def _delete_queue(self, QueueARN: str) -> None:
        self._queue(QueueARN)
        del self.queues[QueueARN]

    # -- records ----------------------------------------------------------------------------------

    def _may_be_received(self, queue: Queue, delivery: Delivery, dead: bool, now: float) -> bool:
        dead_letters = queue.attributes["DeadLetterConfiguration"]
        in_time = now < delivery.record.arrived + self._retention
        if delivery.visible_at <= now and delivery.received >= dead_letters.get("MaxReceiveCount", 10**9):
            delivery.dead = True
        return not delivery.acknowledged and in_time and delivery.visible_at <= now and delivery.dead is dead

    def _receive(
        self, dead: bool, QueueARN: str, Limit: int = 10, WaitTimeSeconds: int = 9,
        VisibilityTimeoutSeconds: int | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        queue = self._queue(QueueARN, active=True)
        end = self.clock.now() + WaitTimeSeconds
        while True:
            with self._lock:
                now = self.clock.now()
                found = [one for one in queue.deliveries if self._may_be_received(queue, one, dead, now)]
                self._chance.shuffle(found)
                found = found[:Limit]
                others = [
                    one for one in queue.deliveries if one.deliveries and not one.dead and one not in found
                ]
                if others and not dead and len(found) < Limit and self._chance.random() < self.rates.twice:
                    found.append(self._chance.choice(others))  # in flight, or acknowledged already
                if found or now >= end:
                    seconds = VisibilityTimeoutSeconds
                    if seconds is None:
                        seconds = queue.attributes["VisibilityTimeoutSeconds"]
                    return {"QueueRecords": [self._deliver(one, now, seconds) for one in found]}
                later = [one.visible_at for one in queue.deliveries if one.visible_at > now]
            self.clock.sleep(min([end, *later]) - now)

    def _deliver(self, delivery: Delivery, now: float, visibility: int) -> dict[str, Any]:
        self._handles += 1
        delivery.handle = f"h{self._handles}"
        delivery.received += not delivery.dead
        delivery.deliveries += 1
        delivery.first = delivery.first or now
        delivery.visible_at = now + visibility
        record = delivery.record
        key = {} if record.partition_key is None else {"PartitionKey": record.partition_key}
        return {
            "ReceiptHandle": delivery.handle,
            "RecordId": record.record_id,
            **key,
            "Data": record.data,
            "ApproximateArrivalTimestamp": self._time(record.arrived),
            "FirstReceiveTimestamp": self._time(delivery.first),
            "ReceiveCount": delivery.received,
        }

    def _entries(
        self,
        dead: bool,
        arn: str,
        entries: list[dict[str, Any]],
        settle: Callable[[Delivery, dict[str, Any]], None],
    ) -> dict[str, Any]:
        queue = self._queue(arn)
        answer: dict[str, list[dict[str, Any]]] = {"Successful": [], "Failed": []}
        with self._lock:
            for entry in entries:
                handle, code = entry["ReceiptHandle"], None
                found = [one for one in queue.deliveries if one.handle == handle and one.dead is dead]
                if self._chance.random() < self.rates.entries:
                    code = self._chance.choice(["ThrottlingException", "InternalFailureException"])
                elif not found or (found[0].acknowledged and "VisibilityTimeoutSeconds" in entry):
                    code = "ResourceNotFoundException"
                elif found[0].visible_at <= self.clock.now() and "VisibilityTimeoutSeconds" in entry:
                    code = "InvalidArgumentException"
                if code is None:
                    settle(found[0], entry)
                    answer["Successful"].append({"ReceiptHandle": handle})
                else:
                    failed = {"ReceiptHandle": handle, "ErrorCode": code, "ErrorMessage": "not done"}
                    answer["Failed"].append(failed)
        return answer

    def _acknowledge(self, delivery: Delivery, entry: dict[str, Any]) -> None:
        self.on_acknowledge(delivery.record.record_id)
        delivery.acknowledged = True

    def _hide(self, delivery: Delivery, entry: dict[str, Any]) -> None:
        delivery.visible_at = self.clock.now() + entry["VisibilityTimeoutSeconds"]

    def _restore(self, delivery: Delivery, entry: dict[str, Any]) -> None:
        delivery.dead, delivery.received, delivery.visible_at = False, 0, self.clock.now()

    def _receive_queue_records(self, **arguments: Any) -> dict[str, Any]:
        return self._receive(False, **arguments)

    def _receive_dead_letter_queue_records(self, **arguments: Any) -> dict[str, Any]:
        return self._receive(True, **arguments)

    def _acknowledge_queue_records(self, QueueARN: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        return self._entries(False, QueueARN, Entries, self._acknowledge)

    def _acknowledge_dead_letter_queue_records(
        self, QueueARN: str, Entries: list[dict[str, Any]]
    ) -> dict[str, Any]:
        return self._entries(True, QueueARN, Entries, self._acknowledge)

    def _update_queue_records_visibility(
        self, QueueARN: str, Entries: list[dict[str, Any]]
    ) -> dict[str, Any]:
        return self._entries(False, QueueARN, Entries, self._hide)

    def _update_dead_letter_queue_records_visibility(
        self, QueueARN: str, Entries: list[dict[str, Any]]
    ) -> dict[str, Any]:
        return self._entries(True, QueueARN, Entries, self._hide)

    def _restore_dead_letter_queue_records(
        self, QueueARN: str, Entries: list[dict[str, Any]]
    ) -> dict[str, Any]:
        return self._entries(True, QueueARN, Entries, self._restore)


class DirectClient:
    """boto3's methods without a network. ``before``, ``after``: called around each call; what they raise is
    raised."""

    def __init__(
        self,
        service: QueueService,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self._service, self._before, self._after = service, before, after
        names = [name for name in service._model.operation_names if "Queue" in name]
        self._operations = {xform_name(name): name for name in names}

    def __getattr__(self, method: str) -> Any:
        operation = self.__dict__["_operations"].get(method)
        if operation is None:
            raise AttributeError(method)

        def made(**arguments: Any) -> dict[str, Any]:
            self._before()
            try:
                answer = self._service.call(operation, arguments)
            except ServiceError as error:
                told = {"Error": {"Code": error.code, "Message": error.message}}
                raise ClientError(told, operation) from None  # type: ignore[arg-type]
            self._after()
            return answer

        return made


class QueueServer:
    """The service over HTTP, as the JSON protocol 1.1 has it. Other calls go to the server at ``behind``."""

    def __init__(self, service: QueueService, behind: str | None = None) -> None:
        self._service = service
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                operation = self.headers["X-Amz-Target"].rpartition(".")[2]
                if "Queue" in operation or behind is None:
                    status, answer = outer.answer(operation, body)
                    text = json.dumps(answer).encode()
                else:
                    headers = {
                        n: v for n, v in self.headers.items() if n.lower() not in ("host", "connection")
                    }
                    request = urllib.request.Request(behind, body, headers)
                    with urllib.request.urlopen(request, timeout=30) as found:
                        status, text = found.status, found.read()
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.1")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    def answer(self, operation: str, body: bytes) -> tuple[int, Any]:
        shapes = self._service._model.operation_model(operation)
        try:
            arguments = from_wire(shapes.input_shape, json.loads(body))
            answer = self._service.call(operation, arguments)
        except ServiceError as error:
            return 400, {"__type": error.code, "message": error.message}
        return 200, {} if shapes.output_shape is None else to_wire(shapes.output_shape, answer)

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def from_wire(shape: Any, value: Any) -> Any:
    """JSON as Python values of the shape; what is none stays as it is, for the model to refuse."""
    if shape.type_name == "structure" and isinstance(value, dict):
        return {n: from_wire(shape.members[n], v) if n in shape.members else v for n, v in value.items()}
    if shape.type_name == "list" and isinstance(value, list):
        return [from_wire(shape.member, item) for item in value]
    if shape.type_name == "timestamp" and isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, timezone.utc)
    return value


def to_wire(shape: Any, value: Any) -> Any:
    if shape.type_name == "structure":
        return {name: to_wire(shape.members[name], item) for name, item in value.items()}
    if shape.type_name == "list":
        return [to_wire(shape.member, item) for item in value]
    if shape.type_name == "timestamp":
        return value.timestamp()
    return base64.b64encode(value).decode() if shape.type_name == "blob" else value
