"""A service on asyncio that puts user records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from kpl_codec.producer import AsyncProducer, Delivery, DeliveryError, ProducerConfig


async def undelivered(error: DeliveryError) -> None:
    print(error.code, error.attempts)
    await asyncio.sleep(0)


@asynccontextmanager
async def lifespan() -> AsyncGenerator[AsyncProducer, None]:
    config = ProducerConfig(record_ttl_ms=60_000)
    async with AsyncProducer("orders", config=config, on_undelivered=undelivered) as producer:
        yield producer


async def main() -> list[str]:
    async with lifespan() as producer:
        futures = [await producer.put(f"customer-{n}", b"%d" % n) for n in range(10)]
        deliveries: list[Delivery] = await asyncio.gather(*futures)
        await producer.flush(timeout=60)
    return [delivery.shard_id for delivery in deliveries]


if __name__ == "__main__":
    asyncio.run(main())
