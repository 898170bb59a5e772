"""The record operations of queues as AWS documents them (botocore 1.44.5): no local server has queues.

    service = QueueService(model, clock)          # botocore validates each request and each response
    client = DirectClient(service)                # with boto3's methods and errors
    with QueueServer(service) as url: ...         # the same over HTTP, for real clients

It has visibility, redelivery and dead letters, on an injected clock. Records come in any order; as
``rates`` and ``seed`` have it, some are delivered twice, and entries and calls fail. The documentation leaves
open what becomes of receipt handles: here an old one is refused, and one whose visibility ended is accepted
until the record is delivered again.
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
from botocore.validate import ParamValidator

ACCOUNT = "arn:aws:kinesis:us-east-1:123456789012"


class RealClock:
    """``speed``: how many times as fast it goes, for tests that only wait."""

    def __init__(self, speed: float = 1.0) -> None:
        self._speed, self._began = speed, time.time()

    def now(self) -> float:
        return self._began + (time.time() - self._began) * self._speed

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds / self._speed, 0.02))


class VirtualClock:
    """Time that only moves when somebody sleeps; the heartbeats of a consumer then happen in between."""

    def __init__(self) -> None:
        self.time = 1_000_000.0
        self.heartbeats_work = True
        self._heartbeat: Callable[[], None] | None = None
        self._interval = self._next = 0.0

    @contextmanager
    def heartbeats(self, heartbeat: Callable[[], None], interval: float) -> Iterator[None]:
        """In place of a thread."""
        self._heartbeat = heartbeat if self.heartbeats_work else None
        self._interval, self._next = interval, self.time + interval
        try:
            yield
        finally:
            self._heartbeat = None

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        end = self.time + seconds
        while self._heartbeat is not None and self._next <= end:
            self.time = max(self.time, self._next)
            self._next = self.time + self._interval
            self._heartbeat()
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


class Record(NamedTuple):
    """A record of the stream."""

    record_id: str
    partition_key: str | None
    data: bytes
    arrived: float


class Delivery:
    """A record in a queue. ``received`` counts towards its dead letters, ``deliveries`` counts all."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.visible_at = record.arrived
        self.handle: str | None = None
        self.received = self.deliveries = 0
        self.first: float | None = None
        self.dead = self.acknowledged = False


class Queue:
    def __init__(self, name: str, visibility: int, most_receives: int) -> None:
        self.name, self.visibility, self.most_receives = name, visibility, most_receives
        self.deliveries: list[Delivery] = []


def fault_of(shape: Any, value: dict[str, Any]) -> str:
    """Why ``value`` is not of ``shape``; empty where it is. (botocore's validator has no upper limits.)"""
    fault: str = ParamValidator().validate(value, shape).generate_report()
    for name, member in shape.members.items():
        size = len(value[name]) if isinstance(value.get(name), list) else value.get(name)
        if isinstance(size, int) and size > member.metadata.get("max", size):
            fault += f"{name}: {size}"
    return fault


class QueueService:
    def __init__(
        self,
        model: ServiceModel,
        clock: Any,
        *,
        seed: int = 0,
        rates: Rates = NEVER,
    ) -> None:
        self.model, self.clock, self._chance, self.rates = model, clock, Random(seed), rates
        self._lock = threading.RLock()
        self.records: list[Record] = []
        self.queues: dict[str, Queue] = {}
        self.calls: list[str] = []
        #: Called with the id of a record that is acknowledged.
        self.on_acknowledge: Callable[[str], None] = lambda record_id: None
        self._handles = 0

    def put(self, partition_key: str | None, data: bytes) -> str:
        with self._lock:
            record = Record(f"r{len(self.records):05d}", partition_key, data, self.clock.now())
            self.records.append(record)
            for queue in self.queues.values():
                queue.deliveries.append(Delivery(record))
            return record.record_id

    def create(self, name: str = "orders-queue", *, visibility: int = 30, most_receives: int = 6) -> str:
        arn = f"{ACCOUNT}:queue/q{len(self.queues):012x}"
        self.queues[arn] = Queue(name, visibility, most_receives)
        return arn

    def call(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Raises ServiceError."""
        self.calls.append(operation)
        shapes = self.model.operation_model(operation)
        if fault := fault_of(shapes.input_shape, arguments):
            raise ServiceError("InvalidArgumentException", fault)
        if self._chance.random() < self.rates.calls:
            raise ServiceError("ThrottlingException", "by chance")
        method, _, kind = xform_name(operation).partition("_")  # receive, (dead_letter_)queue_records
        arn = arguments.pop("QueueARN", None)
        if operation == "ListQueues":
            response = self._list_queues(**arguments)
        elif arn not in self.queues:
            raise ServiceError("ResourceNotFoundException", f"no queue {arn}")
        else:
            dead = kind.startswith("dead_letter")
            response = getattr(self, f"_{method}")(self.queues[arn], dead, **arguments)
        assert not fault_of(shapes.output_shape, response), operation
        return response

    def _list_queues(self, NextToken: str = "0") -> dict[str, Any]:
        """One queue a page."""
        index, created = int(NextToken), datetime.fromtimestamp(1.7e9, timezone.utc)
        summaries = [
            {
                "QueueName": queue.name,
                "QueueARN": arn,
                "QueueStatus": "ACTIVE",
                "QueueCreationTimestamp": created,
                "Streams": [{"StreamARN": f"{ACCOUNT}:stream/orders", "StreamCreationTimestamp": created}],
            }
            for arn, queue in self.queues.items()
        ]
        more = {"NextToken": str(index + 1)} if index + 1 < len(summaries) else {}
        return {"QueueSummaries": summaries[index : index + 1], **more}

    def _may_be_received(self, queue: Queue, delivery: Delivery, dead: bool, now: float) -> bool:
        is_visible = delivery.visible_at <= now
        if is_visible and delivery.received >= queue.most_receives:
            delivery.dead = True
        return is_visible and not delivery.acknowledged and delivery.dead is dead

    def _receive(
        self,
        queue: Queue,
        dead: bool,
        Limit: int = 10,
        WaitTimeSeconds: int = 9,
        VisibilityTimeoutSeconds: int | None = None,
    ) -> dict[str, Any]:
        end = self.clock.now() + WaitTimeSeconds
        while True:
            with self._lock:
                now = self.clock.now()
                chosen = [one for one in queue.deliveries if self._may_be_received(queue, one, dead, now)]
                self._chance.shuffle(chosen)
                del chosen[Limit:]
                others = [
                    one for one in queue.deliveries if one.deliveries and not one.dead and one not in chosen
                ]
                if others and not dead and len(chosen) < Limit and self._chance.random() < self.rates.twice:
                    chosen.append(self._chance.choice(others))  # in flight, or acknowledged already
                if chosen or now >= end:
                    seconds = VisibilityTimeoutSeconds
                    visibility = queue.visibility if seconds is None else seconds
                    return {"QueueRecords": [self._deliver(one, now, visibility) for one in chosen]}
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
            "ApproximateArrivalTimestamp": datetime.fromtimestamp(record.arrived, timezone.utc),
            "FirstReceiveTimestamp": datetime.fromtimestamp(delivery.first, timezone.utc),
            "ReceiveCount": delivery.received,
        }

    def _entries(
        self, queue: Queue, dead: bool, entries: list[dict[str, Any]], apply: Callable[..., None]
    ) -> dict[str, Any]:
        """``apply`` to the delivery of each entry; the response lists what failed."""
        response: dict[str, list[dict[str, Any]]] = {"Successful": [], "Failed": []}
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
                    apply(found[0], **{name: value for name, value in entry.items() if value != handle})
                    response["Successful"].append({"ReceiptHandle": handle})
                else:
                    failed = {"ReceiptHandle": handle, "ErrorCode": code, "ErrorMessage": "not done"}
                    response["Failed"].append(failed)
        return response

    def _acknowledge(self, queue: Queue, dead: bool, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        def acknowledge(delivery: Delivery) -> None:
            self.on_acknowledge(delivery.record.record_id)
            delivery.acknowledged = True

        return self._entries(queue, dead, Entries, acknowledge)

    def _update(self, queue: Queue, dead: bool, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        def hide(delivery: Delivery, VisibilityTimeoutSeconds: int) -> None:
            delivery.visible_at = self.clock.now() + VisibilityTimeoutSeconds

        return self._entries(queue, dead, Entries, hide)

    def _restore(self, queue: Queue, dead: bool, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        def restore(delivery: Delivery) -> None:
            delivery.dead, delivery.received, delivery.visible_at = False, 0, self.clock.now()

        return self._entries(queue, dead, Entries, restore)


class DirectClient:
    """boto3's methods without a network. ``step`` is called before and after each call; what it raises is
    raised."""

    def __init__(self, service: QueueService, step: Callable[[], None] = lambda: None) -> None:
        self._service, self._step = service, step
        names = [name for name in service.model.operation_names if "Queue" in name]
        self._operations = {xform_name(name): name for name in names}

    def __getattr__(self, method: str) -> Any:
        operation = self.__dict__["_operations"].get(method)
        if operation is None:
            raise AttributeError(method)

        def call(**arguments: Any) -> dict[str, Any]:
            self._step()
            try:
                response = self._service.call(operation, arguments)
            except ServiceError as error:
                detail: Any = {"Error": {"Code": error.code, "Message": error.message}}
                raise ClientError(detail, operation) from None
            self._step()
            return response

        return call


class QueueServer:
    """The service over HTTP, as the JSON protocol 1.1 has it. Other calls go to the server at ``behind``."""

    def __init__(self, service: QueueService, behind: str | None = None) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                operation = self.headers["X-Amz-Target"].rpartition(".")[2]
                if "Queue" not in operation and behind is not None:
                    omit = ("host", "connection")
                    headers = {name: text for name, text in self.headers.items() if name.lower() not in omit}
                    request = urllib.request.Request(behind, body, headers)
                    with urllib.request.urlopen(request, timeout=30) as response:
                        status, text = response.status, response.read()
                else:
                    try:
                        status, result = 200, service.call(operation, json.loads(body))
                    except ServiceError as error:
                        status, result = 400, {"__type": error.code, "message": error.message}
                    text = json.dumps(result, default=to_wire).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.1")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def to_wire(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value.timestamp()
