"""``kpl-codec shards``: which shards there are, where keys go, how it came to be, and what changes."""

from __future__ import annotations

import argparse
import json
import time
from datetime import datetime, timezone
from typing import Any

from ..format.hash_keys import parse_hash_key, partition_key_hash
from ..pictures.svg import key_space_svg, lineage_svg
from ..pictures.terminal import key_space, share, short_id, spans, timeline, utc
from ..shards.history import history_of
from ..shards.lineage import Lineage
from ..shards.live_shard_map import LiveShardMap, MapChanged, RefreshFailed
from ..shards.placement import Verdict
from ..shards.shard_map import Shard, ShardMap
from .source import (
    UsageError,
    add_connection,
    add_source,
    client_of,
    load_shard_map,
    read_lines,
    stream_arguments,
    write_text,
)
from .terminal import paint, print_json, table, width

HELP = "List a stream's shards, predict where keys go, show their history, watch them change."

_GOOD = {Verdict.EXPECTED, Verdict.EXPLICIT_HASH_KEY_IMPLIED, Verdict.DISTRIBUTION_AUTO}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    listing = commands.add_parser("list", help="the shards and what part of the hash keys each has")
    add_source(listing)
    listing.add_argument("--closed", action="store_true", help="also closed shards that still hold records")
    listing.set_defaults(action=_list)

    predict = commands.add_parser("predict", help="the shard that each key goes to now")
    add_source(predict)
    predict.add_argument("keys", nargs="*", metavar="KEY", help="partition keys")
    predict.add_argument("--keys-from", metavar="FILE", help="one key a line; - for standard input")
    predict.add_argument("--explicit", action="store_true", help="the keys are explicit hash keys")
    predict.set_defaults(action=_predict)

    history = commands.add_parser(
        "history", help="the lineage as a timeline; where a key was, and whether a record lies right"
    )
    add_source(history)
    key = history.add_mutually_exclusive_group()
    key.add_argument("--partition-key", metavar="KEY", help="follow this key through the shards")
    key.add_argument("--hash-key", metavar="N", help="or this hash key")
    history.add_argument("--at", metavar="TIME", help="which shard was open then (ISO 8601; UTC if unsaid)")
    history.add_argument("--sequence-number", metavar="N", help="a record of the key: which shard was open")
    history.add_argument("--shard-id", metavar="ID", help="where that record lies: give a verdict")
    history.add_argument("--aggregated", action="store_true", help="the record came out of an aggregate")
    history.set_defaults(action=_history)

    watch = commands.add_parser("watch", help="keep looking, and tell of every split, merge and failure")
    watch.add_argument("--stream", required=True, metavar="NAME", help="a stream's name or ARN")
    add_connection(watch)
    watch.add_argument("--interval", type=float, default=10.0, help="seconds between looks (default: 10)")
    watch.add_argument("--looks", type=int, help="stop after so many looks (default: never)")
    watch.add_argument("--json", action="store_true", help="a JSON object a line")
    watch.set_defaults(action=_watch)

    for command in (listing, predict, history):
        command.add_argument("--json", action="store_true", help="JSON instead of tables")
    for command, what in ((listing, "the key space"), (history, "the timeline")):
        command.add_argument("--svg", metavar="FILE", help=f"also draw {what} into this file")


def run(args: argparse.Namespace) -> int:
    """0 clean, 1 findings (history). Raises KplError for what cannot be had."""
    return int(args.action(args))


def _name(args: argparse.Namespace) -> str:
    return str(args.stream or args.shards)


def _facts(shard: Shard) -> dict[str, Any]:
    return {**shard.to_aws(), "Open": shard.open}


def _list(args: argparse.Namespace) -> int:
    shard_map = load_shard_map(args, closed=args.closed)
    shards = sorted(
        (s for s in shard_map if s.open or args.closed), key=lambda s: (not s.open, s.hash_key_range)
    )
    title = f"{_name(args)}: {len(shard_map.open_shards)} open shards"
    if args.svg:
        write_text(args.svg, key_space_svg(shards, title))
    if args.json:
        print_json({"Distribution": shard_map.distribution, "Shards": list(map(_facts, shards))})
        return 0
    rows = [
        [
            s.shard_id,
            "open" if s.open else "closed",
            str(s.hash_key_range.starting_hash_key),
            str(s.hash_key_range.ending_hash_key),
            share(s.hash_key_range),
            " + ".join(map(short_id, s.parent_shard_ids)),
        ]
        for s in shards
    ]
    print(
        table(["shard", "state", "starting hash key", "ending hash key", "share", "parents"], rows, (2, 3, 4))
    )
    print("\n" + key_space(shards, width()))
    if shard_map.distribution == "AUTO":
        print(paint("The stream distributes records AUTO: keys do not decide the shard.", "yellow"))
    return 0


def _keys(args: argparse.Namespace) -> list[str]:
    keys = [*args.keys, *(read_lines(args.keys_from) if args.keys_from else ())]
    if not keys:
        raise UsageError(reason="no keys given")
    return keys


def _predict(args: argparse.Namespace) -> int:
    shard_map = load_shard_map(args)
    found = []
    for key in _keys(args):
        hash_key = parse_hash_key(key) if args.explicit else partition_key_hash(key)
        auto = shard_map.distribution == "AUTO"
        found.append((key, str(hash_key), None if auto else shard_map.shard_for(hash_key).shard_id))
    if args.json:
        names = ("Key", "HashKey", "ShardId")
        print_json([dict(zip(names, row, strict=True)) for row in found])
    else:
        rows = [[key, hash_key, shard_id or "any (AUTO)"] for key, hash_key, shard_id in found]
        print(table(["key", "hash key", "shard"], rows, (1,)))
    return 0


# -- history --------------------------------------------------------------------------------------


def _time(text: str) -> datetime:
    try:
        return utc(datetime.fromisoformat(text.replace("Z", "+00:00")))
    except ValueError:
        raise UsageError(reason=f"no time: {text!r} (use 2024-01-31T12:00:00Z)") from None


def _history(args: argparse.Namespace) -> int:
    shard_map = load_shard_map(args, closed=True)
    lineage = shard_map.lineage
    hash_key = None
    if args.partition_key is not None:
        hash_key = partition_key_hash(args.partition_key)
    elif args.hash_key is not None:
        hash_key = parse_hash_key(args.hash_key)
    elif args.at or args.sequence_number or args.shard_id:
        raise UsageError(reason="--at, --sequence-number and --shard-id need --partition-key or --hash-key")
    if args.svg:
        title = f"{_name(args)}: {len(lineage)} shards, {len(shard_map.open_shards)} open"
        write_text(args.svg, lineage_svg(lineage, title, _now(args)))
    return _whole(args, shard_map, lineage) if hash_key is None else _of_key(args, lineage, hash_key)


def _now(args: argparse.Namespace) -> datetime | None:
    return datetime.now(timezone.utc) if args.stream else None


def _whole(args: argparse.Namespace, shard_map: ShardMap, lineage: Lineage) -> int:
    defects = lineage.defects()
    if args.json:
        lives = {span.shard.shard_id: span for span in spans(lineage)}
        shards = [
            {
                **_facts(s),
                "Created": _iso(lives[s.shard_id].begin),
                "Closed": _iso(lives[s.shard_id].end),
                "Children": [child.shard_id for child in lineage.children(s.shard_id)],
            }
            for s in lineage
        ]
        found = [{"Code": defect.code, "ShardIds": defect.shard_ids} for defect in defects]
        print_json({"Shards": shards, "UnknownParents": dict(shard_map.unknown_parents), "Defects": found})
    else:
        print(timeline(lineage, width(), _now(args)))
        for child, parents in shard_map.unknown_parents.items():
            print(paint(f"{child}: parent {', '.join(parents)} has expired", "dim"))
        for defect in defects:
            print(paint(f"defect {defect.code}: {', '.join(defect.shard_ids)}", "red"))
    return 1 if defects else 0


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None


def _of_key(args: argparse.Namespace, lineage: Lineage, hash_key: int) -> int:
    """Follow one hash key; with a record of it, the verdict decides the exit code."""
    history = history_of(lineage, hash_key, args.shard_id, args.sequence_number, aggregated=args.aggregated)
    at = lineage.shard_at_time(hash_key, _time(args.at)) if args.at else None
    judged = args.shard_id is not None
    if args.json:
        print_json(
            {
                "HashKey": str(hash_key),
                "Chain": [s.shard_id for s in history.chain],
                "OpenAtSequenceNumber": history.shard_then.shard_id if history.shard_then else None,
                "OpenAtTime": at.shard_id if at else None,
                "Verdict": str(history.verdict) if judged else None,
                "NumberInShard": history.number_in_shard,
                "HintedShardId": history.hinted_shard_id,
            }
        )
    else:
        print(f"hash key {hash_key} has been on:")
        print(timeline(Lineage(history.chain), width(), _now(args)))
        if args.at:
            print(f"open at {_time(args.at):%Y-%m-%d %H:%M:%S} UTC: {at.shard_id if at else 'not known'}")
        if args.sequence_number:
            then = history.shard_then.shard_id if history.shard_then else "not known"
            print(f"open at that sequence number: {then}")
            if history.hinted_shard_id:
                print(f"the number itself hints at: {history.hinted_shard_id}")
            if history.number_in_shard is False:
                print(paint("the number lies before the shard's first", "red"))
        if judged:
            good = history.verdict in _GOOD
            print("verdict: " + paint(str(history.verdict), "green" if good else "red"))
    return 1 if judged and (history.verdict not in _GOOD or history.number_in_shard is False) else 0


# -- watch ----------------------------------------------------------------------------------------


def _watch(args: argparse.Namespace) -> int:
    from ..aws.shard_map import run_refresh

    if args.interval <= 0:
        raise UsageError(reason="--interval must be above 0")
    client = client_of(args)
    stream = stream_arguments(args.stream)
    live = LiveShardMap(**stream, refresh_interval=args.interval)
    live.refresh(time.monotonic())
    looks = 0
    while True:
        event = run_refresh(live, client)
        if event is not None:
            looks += 1
            _tell(event, args.json, first=looks == 1)
        timer = live.timer()
        if live.permanent_error is not None:
            raise live.permanent_error
        if args.looks is not None and looks >= args.looks:
            return 0
        if timer is not None:
            time.sleep(max(0.0, timer - time.monotonic()))


def _tell(event: MapChanged | RefreshFailed, as_json: bool, *, first: bool) -> None:
    now = datetime.now(timezone.utc).replace(microsecond=0)
    if isinstance(event, RefreshFailed):
        retry = event.retry_at - event.at
        if as_json:
            facts: dict[str, Any] = {"Failed": event.error.code, "RetryInSeconds": retry}
        else:
            print(f"{now:%H:%M:%S}  {paint(f'{event.error}, again in {retry:.0f} s', 'red')}", flush=True)
            return
    else:
        if not (event.opened or event.closed or event.recreated or first):
            return
        facts = {
            "Opened": event.opened,
            "Closed": event.closed,
            "Recreated": event.recreated,
            "OpenShards": len(event.shard_map.open_shards),
            "Distribution": event.shard_map.distribution,
        }
        if not as_json:
            what = [paint("the stream was made anew", "yellow")] if event.recreated else []
            if not first:
                what += [paint(f"{short_id(s)} closed", "dim") for s in event.closed]
                what += [_origin(event.shard_map[s]) for s in event.opened]
            what.append(f"{len(event.shard_map.open_shards)} open shards")
            print(f"{now:%H:%M:%S}  {', '.join(what)}", flush=True)
            if event.opened:
                print(key_space(event.shard_map.open_shards, width()), flush=True)
            return
    print(json.dumps({"Time": now.isoformat(), **facts}), flush=True)


def _origin(shard: Shard) -> str:
    parents = " + ".join(map(short_id, shard.parent_shard_ids))
    text = f"{short_id(shard.shard_id)} opened ({share(shard.hash_key_range)}"
    return paint(f"{text}, out of {parents})" if parents else f"{text})", "green")
