"""``kpl-codec shards``: lists shards, and predicts where keys go."""

from __future__ import annotations

import argparse
from typing import Any

from ..cli.command_inputs import hashed_keys, load_shard_map
from ..cli.options import add, add_action, add_shards, add_shared
from ..rendering.diagrams import key_space
from ..rendering.labels import share, short_id
from ..rendering.terminal import line, show, show_json, table, width, write
from ..shards.shard import Shard
from ..shards.shard_map import ShardMap
from ..shards.stream_name import stream_members

#: Columns of the terminal that a table with whole shard ids needs.
_WHOLE_IDS = 80


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    listing = add_action(commands, "list", "list the shards with their hash key ranges", _list)
    add(listing, "--closed", "also closed shards that still hold records")
    add_shards(listing)

    predict = add_action(
        commands, "predict", "print the shard on which records of each key land now", _predict
    )
    add_shared(predict, "keys", "--keys-from")
    add_shards(predict)


def _facts(shard: Shard, shard_map: ShardMap) -> dict[str, Any]:
    """A shard as ListShards describes it, in camelCase; ``--shards`` reads that, too. With its times, as
    sequence numbers hint, and its children."""
    created, closed = shard_map.created(shard.shard_id), shard_map.closed_at(shard.shard_id)
    return {
        **_camel_case(shard.to_aws()),
        "open": shard.open,
        "created": created and created.isoformat(),
        "closed": closed and closed.isoformat(),
        "children": [child.shard_id for child in shard_map.children(shard.shard_id)],
    }


def _camel_case(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name[0].lower() + name[1:]: _camel_case(inner) for name, inner in value.items()}


def _list(args: argparse.Namespace) -> None:
    shard_map = load_shard_map(args)
    shards = sorted(
        (s for s in shard_map.values() if s.open or args.closed), key=lambda s: (not s.open, s.hash_key_range)
    )
    if args.json:
        about = {**_stream(shard_map), "distribution": shard_map.distribution}
        names = [] if args.closed else [name for name, shard in shard_map.items() if not shard.open]
        left_out = {"closedShardsLeftOut": names} if names else {}
        show_json({**about, "shards": [_facts(shard, shard_map) for shard in shards], **left_out})
        return
    _show_shards(shards)
    write("\n" + key_space(shards, width()) + "\n")
    if shard_map.distribution == "AUTO":
        show(line(("The stream distributes records AUTO: keys do not decide the shard.", "yellow")))


def _show_shards(shards: list[Shard]) -> None:
    """Print a table with the first eight hexadecimal digits of hash keys; on a narrow terminal with the
    numbers of shards instead of their ids, and without the ends of ranges. (--json prints all of them
    whole.)"""
    rows = []
    for shard in shards:
        keys = shard.hash_key_range
        texts = (f"{key:032x}"[:8] + "…" for key in keys)
        parents = " + ".join(map(short_id, shard.parent_shard_ids))
        rows.append([shard.shard_id, "open" if shard.open else "closed", *texts, share(keys), parents])
    if width() < _WHOLE_IDS:
        heads = ["shard", "state", "from", "share", "parents"]
        rows = [[short_id(row[0]), row[1], row[2], *row[4:]] for row in rows]
        show(table(heads, rows, (0, 2, 3)))
    else:
        heads = ["shard", "state", "starting hash key", "ending hash key", "share", "parents"]
        show(table(heads, rows, (2, 3, 4)))


def _predict(args: argparse.Namespace) -> None:
    shard_map = load_shard_map(args)
    predictions = []
    for key, hash_key in hashed_keys(args):
        auto = shard_map.distribution == "AUTO"
        predictions.append((key, str(hash_key), None if auto else shard_map.shard_for(hash_key).shard_id))
    if args.json:
        names = ("key", "hashKey", "shardId")
        show_json([dict(zip(names, row, strict=True)) for row in predictions])
    else:
        rows = [[key, shard_id or "any (AUTO)", hash_key] for key, hash_key, shard_id in predictions]
        show(table(["key", "shard", "hash key"], rows, (2,)))


def _stream(shard_map: ShardMap) -> dict[str, Any]:
    return {} if shard_map.stream is None else dict(_camel_case(stream_members(shard_map.stream)))
