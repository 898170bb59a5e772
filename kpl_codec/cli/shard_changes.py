"""``kpl-codec shards watch``: report every split, merge and failure as it happens."""

from __future__ import annotations

import argparse
import time
from datetime import datetime, timezone
from typing import Any

from ..pictures.diagrams import key_space
from ..pictures.labels import share, short_id
from ..pictures.terminal import Part, json_line, line, render, use_color, width, write_on
from ..shards.live_shard_map import LiveShardMap, MapChanged, RefreshFailed
from ..shards.shard import Shard
from .source import UsageError, add_stream, client_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_stream(parser, "a stream's name or ARN", required=True)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between looks (default: 10)")
    parser.add_argument("--looks", type=int, help="stop after so many looks (default: never)")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    parser.set_defaults(action=run)


def run(args: argparse.Namespace) -> int:
    """Look until interrupted, 0 after ``--looks``. Raises StreamUnavailable where no retry helps, or no look
    has seen the stream."""
    from ..aws.shard_map import run_refresh

    if args.interval <= 0:
        raise UsageError(reason="--interval must be above 0")
    client = client_of(args)
    live = LiveShardMap(args.stream, refresh_interval=args.interval)
    live.refresh(time.monotonic())
    looks = 0
    while True:
        event = run_refresh(live, client)
        if event is not None:
            looks += 1
            tell(event, args.json, first=looks == 1)
        timer = live.timer()
        if live.permanent_error is not None:
            raise live.permanent_error
        if args.looks is not None and looks >= args.looks:
            if isinstance(event, RefreshFailed) and live.shard_map is None:
                raise event.error
            return 0
        if timer is not None:
            time.sleep(max(0.0, timer - time.monotonic()))


def tell(event: MapChanged | RefreshFailed, as_json: bool, *, first: bool) -> None:
    """Print what one look found, if it is new."""
    now = datetime.now(timezone.utc).replace(microsecond=0)
    if isinstance(event, MapChanged) and not (event.opened or event.closed or event.recreated or first):
        return
    if as_json:
        write_on(json_line({"time": now.isoformat(), **_facts(event)}))
        return
    parts = _change(event, first) if isinstance(event, MapChanged) else _failure(event)
    said: list[Part] = [f"{now:%H:%M:%S}  "]
    for index, part in enumerate(parts):
        said += [", ", part] if index else [part]
    write_on(render(line(*said), color=use_color(), fit=False))
    if isinstance(event, MapChanged) and event.opened:
        write_on(key_space(event.shard_map.open_shards, width()) + "\n")


def _facts(event: MapChanged | RefreshFailed) -> dict[str, Any]:
    if isinstance(event, RefreshFailed):
        return {"failed": event.error.code, "retryInSeconds": event.retry_at - event.at}
    return {
        "opened": event.opened,
        "closed": event.closed,
        "recreated": event.recreated,
        "openShards": len(event.shard_map.open_shards),
        "distribution": event.shard_map.distribution,
    }


def _failure(event: RefreshFailed) -> list[Part]:
    return [(f"{event.error}, again in {event.retry_at - event.at:.0f} s", "red")]


def _change(event: MapChanged, first: bool) -> list[Part]:
    said: list[Part] = [("the stream was made anew", "yellow")] if event.recreated else []
    if not first:
        said += [(f"{short_id(shard_id)} closed", "dim") for shard_id in event.closed]
        said += [(_opened(event.shard_map[shard_id]), "green") for shard_id in event.opened]
    return [*said, f"{len(event.shard_map.open_shards)} open shards"]


def _opened(shard: Shard) -> str:
    parents = " + ".join(map(short_id, shard.parent_shard_ids))
    out_of = f", out of {parents}" if parents else ""
    return f"{short_id(shard.shard_id)} opened ({share(shard.hash_key_range)}{out_of})"
