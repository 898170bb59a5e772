"""``kpl-codec shards``: the shards, where keys go, their history and their changes."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from typing import Any

from ..format.hash_keys import parse_hash_key, partition_key_hash
from ..pictures.diagrams import key_space, spans, timeline
from ..pictures.labels import share, short_id
from ..pictures.terminal import line, show, show_json, table, width, write
from ..shards.history import history_of
from ..shards.lineage import Lineage
from ..shards.placement import Verdict
from ..shards.shard import Shard
from ..shards.shard_map import ShardMap
from . import shard_changes
from .source import UsageError, add_keys, add_source, hashed_keys, load_shard_map, time_of

_GOOD = {Verdict.EXPECTED, Verdict.EXPLICIT_HASH_KEY_IMPLIED, Verdict.DISTRIBUTION_AUTO}
#: Columns that a table with whole hash keys needs.
_WHOLE_KEYS = 130


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    listing = commands.add_parser("list", help="the shards and their hash key ranges")
    add_source(listing)
    listing.add_argument("--closed", action="store_true", help="also closed shards that still hold records")
    listing.set_defaults(action=_list)

    predict = commands.add_parser("predict", help="the shard that each key goes to now")
    add_source(predict)
    add_keys(predict)
    predict.set_defaults(action=_predict)

    history = commands.add_parser(
        "history", help="how shards were split and merged; which shard held a key, and when"
    )
    add_source(history)
    key = history.add_mutually_exclusive_group()
    key.add_argument("--partition-key", metavar="KEY", help="follow this key through the shards")
    key.add_argument("--hash-key", metavar="N", help="or this hash key")
    history.add_argument("--at", metavar="TIME", help="which shard was open then (ISO 8601, default UTC)")
    history.add_argument("--sequence-number", metavar="N", help="the shard open at this record of the key")
    history.add_argument("--shard-id", metavar="ID", help="the shard of that record: give a verdict")
    history.add_argument("--aggregated", action="store_true", help="the record came out of an aggregate")
    history.set_defaults(action=_history)

    shard_changes.configure(
        commands.add_parser("watch", help="report every split, merge and failure as it happens")
    )

    for command in (listing, predict, history):
        command.add_argument("--json", action="store_true", help="JSON instead of tables")


def run(args: argparse.Namespace) -> int:
    """0 clean, 1 findings (history). Raises KplError."""
    return int(args.action(args))


def _facts(shard: Shard) -> dict[str, Any]:
    """As ListShards gives it, in camelCase; ``--shards`` reads it, too."""
    return {**_uncapitalized(shard.to_aws()), "open": shard.open}


def _uncapitalized(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name[0].lower() + name[1:]: _uncapitalized(inner) for name, inner in value.items()}


def _list(args: argparse.Namespace) -> int:
    shard_map = load_shard_map(args, closed=args.closed)
    shards = sorted(
        (s for s in shard_map if s.open or args.closed), key=lambda s: (not s.open, s.hash_key_range)
    )
    if args.json:
        show_json({"distribution": shard_map.distribution, "shards": list(map(_facts, shards))})
        return 0
    _show_shards(shards)
    write("\n" + key_space(shards, width()) + "\n")
    if shard_map.distribution == "AUTO":
        show(line(("The stream distributes records AUTO: keys do not decide the shard.", "yellow")))
    return 0


def _show_shards(shards: list[Shard]) -> None:
    """With whole hash keys if they fit, else their first eight hexadecimal digits."""
    heads = ["shard", "state", "starting hash key", "ending hash key", "share", "parents"]
    rows = []
    for shard in shards:
        keys = shard.hash_key_range
        ends = keys.starting_hash_key, keys.ending_hash_key
        shown = map(str, ends) if width() >= _WHOLE_KEYS else (f"{key:032x}"[:8] + "…" for key in ends)
        parents = " + ".join(map(short_id, shard.parent_shard_ids))
        rows.append([shard.shard_id, "open" if shard.open else "closed", *shown, share(keys), parents])
    show(table(heads, rows, (2, 3, 4)))


def _predict(args: argparse.Namespace) -> int:
    shard_map = load_shard_map(args)
    found = []
    for key, hash_key in hashed_keys(args):
        auto = shard_map.distribution == "AUTO"
        found.append((key, str(hash_key), None if auto else shard_map.shard_for(hash_key).shard_id))
    if args.json:
        names = ("key", "hashKey", "shardId")
        show_json([dict(zip(names, row, strict=True)) for row in found])
    else:
        rows = [[key, shard_id or "any (AUTO)", hash_key] for key, hash_key, shard_id in found]
        if args.explicit:
            show(table(["hash key", "shard"], [row[:2] for row in rows], (0,)))
        else:
            show(table(["key", "shard", "hash key"], rows, (2,)))
    return 0


# -- history --------------------------------------------------------------------------------------


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
                "created": _iso(lives[s.shard_id].begin),
                "closed": _iso(lives[s.shard_id].end),
                "children": [child.shard_id for child in lineage.children(s.shard_id)],
            }
            for s in lineage
        ]
        found = [{"code": defect.code, "shardIds": defect.shard_ids} for defect in defects]
        show_json({"shards": shards, "unknownParents": dict(shard_map.unknown_parents), "defects": found})
    else:
        write(timeline(lineage, width(), _now(args)) + "\n")
        for child, parents in shard_map.unknown_parents.items():
            show(line((f"{child}: parent {', '.join(parents)} has expired", "dim")))
        for defect in defects:
            show(line((f"defect {defect.code}: {', '.join(defect.shard_ids)}", "red")))
    return 1 if defects else 0


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None


def _of_key(args: argparse.Namespace, lineage: Lineage, hash_key: int) -> int:
    """Follow one hash key; with a record of it, the verdict decides the exit code."""
    history = history_of(lineage, hash_key, args.shard_id, args.sequence_number, aggregated=args.aggregated)
    at = lineage.shard_at_time(hash_key, time_of(args.at)) if args.at else None
    judged = args.shard_id is not None
    good = history.verdict in _GOOD
    then = history.shard_then.shard_id if history.shard_then else None
    if args.json:
        show_json(
            {
                "hashKey": str(hash_key),
                "chain": [s.shard_id for s in history.chain],
                "openAtSequenceNumber": then,
                "openAtTime": at.shard_id if at else None,
                "verdict": str(history.verdict) if judged else None,
                "numberInShard": history.number_in_shard,
                "hintedShardId": history.hinted_shard_id,
            }
        )
    else:
        show(line(f"hash key {hash_key} has been on:"))
        write(timeline(Lineage(history.chain), width(), _now(args)) + "\n")
        if args.at:
            show(
                line(
                    f"open at {time_of(args.at):%Y-%m-%d %H:%M:%S} UTC: {at.shard_id if at else 'not known'}"
                )
            )
        if args.sequence_number:
            show(line(f"open at that sequence number: {then or 'not known'}"))
            if history.hinted_shard_id:
                show(line(f"the number itself hints at: {history.hinted_shard_id}"))
            if history.number_in_shard is False:
                show(line(("the number lies before the shard's first", "red")))
        if judged:
            show(line("verdict: ", (str(history.verdict), "green" if good else "red")))
    return 1 if judged and (not good or history.number_in_shard is False) else 0
