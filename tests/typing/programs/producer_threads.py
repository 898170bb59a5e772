"""A web service that puts user records, counts what is late, and learns what was not delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import kpl_codec as kpl
from kpl_codec.audit import Ledger
from kpl_codec.producer import (
    Delivery,
    DeliveryError,
    DeliveryFuture,
    Producer,
    ProducerConfig,
    ProducerFull,
    RecordTooLarge,
)

late: Counter[str] = Counter()
metrics: Counter[str] = Counter()


def look(future: DeliveryFuture) -> None:
    error = future.exception()
    if isinstance(error, DeliveryError):
        late[error.code] += 1
    elif error is None:
        delivery: Delivery = future.result()
        late[delivery.shard_id] += len(delivery.attempts)


def undelivered(error: DeliveryError) -> None:
    print(error.user_record.partition_key, error.may_be_stored, error.todo)


def observe(name: str, value: float, attributes: Mapping[str, str]) -> int:
    metrics[name] += round(value)
    return len(attributes)


config = ProducerConfig(record_max_buffered_time_ms=200, when_full="fail", compression="gzip")
producer = Producer(
    "orders",
    config=config,
    client_settings={"region": "eu-west-1"},
    on_undelivered=undelivered,
    observe=observe,
    ledger=Ledger("ledger/produced"),
)


def put(customer: str, order: bytes) -> bool:
    try:
        producer.put(customer, order, tags=(kpl.Tag("source", "web"),)).add_done_callback(look)
    except (ProducerFull, RecordTooLarge) as error:
        print(error.code)
        return False
    return True


def main() -> None:
    with producer:
        put("customer-1", b"{}")
        future: DeliveryFuture = producer.put("customer-2", b"{}", "17")
        print(future.result(timeout=60).sequence_number)
