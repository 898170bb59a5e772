"""`kpl-codec watch --demo`: the demo's four writers on a local server, for as long as the watch runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..aws import Producer
from ..producer import ProducerConfig
from ..shards.shard_map import ShardMap
from ..testing.local_kinesis import REGION, local_kinesis
from . import demo_stream as demo

#: User records a turn of each writer, seconds between two turns, and until the split.
_TURN, _PAUSE, _SPLIT_AFTER = 60, 0.5, 20.0


@contextmanager
def demo_on_a_local_server(say: Callable[[str], None]) -> Iterator[tuple[str, str, str]]:
    """Gives the stream's name, the region and the server's address. A shard is split after 20 seconds."""
    say("starting a local Kinesis server with four writers (from npm the first time)")
    with local_kinesis() as server:
        server.create_stream(demo.STREAM, demo.SHARDS)
        client = server.client()
        shard_map = ShardMap.from_list_shards(client.list_shards(StreamName=demo.STREAM))
        end = threading.Event()
        config = ProducerConfig(record_max_buffered_time=200)
        with Producer(demo.STREAM, config=config, client_settings=server.client_settings) as producer:

            def write() -> None:
                began, split, start = time.monotonic(), False, 0
                while not end.wait(_PAUSE):
                    stop = start + _TURN
                    for key, data in demo.orders(demo.PRODUCER, start, stop):
                        producer.put(key, data)
                    demo.put_naive(client, demo.orders(demo.NAIVE, start, stop))
                    demo.put_per_shard(client, demo.orders(demo.PER_SHARD, start, stop), shard_map)
                    demo.put_plain(client, demo.orders(demo.PLAIN, start, stop))
                    start = stop
                    if not split and time.monotonic() - began > _SPLIT_AFTER:
                        say(f"split {demo.split(server, client)} in two")
                        split = True

            writer = threading.Thread(target=write, name="kpl-codec demo writers", daemon=True)
            writer.start()
            try:
                yield demo.STREAM, REGION, server.endpoint_url
            finally:
                end.set()
                writer.join()
