"""The edge to AWS: boto3 (threads) and aiobotocore (asyncio). The only package that talks to Kinesis.

Names are imported when asked for, so the asyncio parts need no boto3 and the others no aiobotocore.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "fetch_shard_map": "shard_map",
    "fetch_lineage": "shard_map",
    "StreamShardMap": "shard_map",
    "AsyncStreamShardMap": "aio_shard_map",
    "read_shard": "reading",
    "read_stream": "reading",
    "read_record": "reading",
    "Producer": "producer",
    "AsyncProducer": "aio_producer",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
