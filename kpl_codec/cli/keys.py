"""``kpl-codec keys``: hash partition keys, count them per shard, allocate hash keys, split the space."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import islice

from ..format.hash_keys import ALL_HASH_KEYS, HashKeyRange
from ..pictures.diagrams import skew_bars
from ..pictures.labels import percent, plural, share, short_id
from ..pictures.terminal import line, show, show_json, table, width, write
from ..shards.allocation import balanced_keys
from ..shards.skew import Skew, skew_of
from .source import (
    UsageError,
    add_keys,
    add_source,
    at_least,
    hash_keys_from,
    hashed_keys,
    load_shard_map,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    hashing = commands.add_parser("hash", help="the hash key of partition keys (MD5)")
    add_keys(hashing, explicit=False)
    hashing.set_defaults(action=_hash)

    skew = commands.add_parser("skew", help="how unevenly keys fall on shards")
    add_source(skew, required=False)
    add_keys(skew)
    skew.add_argument("--shard-count", type=int, metavar="N", help="on N even shards instead of a stream's")
    skew.set_defaults(action=_skew)

    allocate = commands.add_parser(
        "allocate",
        help="explicit hash keys that stay balanced",
        description="Explicit hash keys that stay balanced through splits and merges. With a stream or a "
        "listing, shards with the fewest keys come first; without, the whole key space is halved again and "
        "again. --existing names the keys in use; their order does not matter.",
    )
    add_source(allocate, required=False)
    allocate.add_argument("count", type=int, nargs="?", default=1, help="how many (default: 1)")
    allocate.add_argument("--existing", metavar="FILE", help="hash keys in use, one a line; - for stdin")
    allocate.add_argument("--shard-count", type=int, metavar="N", help="on N even shards")
    allocate.set_defaults(action=_allocate)

    split = commands.add_parser("split", help="the even split of the key space, as CreateStream cuts it")
    split.add_argument("count", type=int, help="into how many ranges")
    split.set_defaults(action=_split)

    hot = commands.add_parser("hot", help="the partition keys with most user records, exactly counted")
    hot.add_argument("results", metavar="DIR", help="the folder that kpl-codec validate wrote")
    hot.add_argument("--top", type=at_least(1), default=10, metavar="N", help="how many (default: 10)")
    hot.set_defaults(action=_hot)

    for command in (hashing, skew, allocate, split, hot):
        command.add_argument("--json", action="store_true", help="JSON instead of tables")


def run(args: argparse.Namespace) -> int:
    """0. Raises KplError for bad input."""
    return int(args.action(args))


def _ranges(args: argparse.Namespace) -> tuple[list[HashKeyRange], list[str]] | None:
    """The shards' ranges and names; None where no shards are given."""
    if args.stream or args.shards:
        shards = load_shard_map(args).open_shards
        return [s.hash_key_range for s in shards], [short_id(s.shard_id) for s in shards]
    if args.shard_count is not None:
        ranges = ALL_HASH_KEYS.split(args.shard_count)
        return ranges, [str(i) for i in range(len(ranges))]
    return None


def _hash(args: argparse.Namespace) -> int:
    found = hashed_keys(args)
    if args.json:
        show_json([{"key": key, "hashKey": str(n), "hex": f"{n:032x}"} for key, n in found])
    else:
        heads = ["key", "hash key", "of the space", "hex"]
        rows = [[key, str(n), f"{100 * n / 2**128:.2f}%", f"{n:032x}"] for key, n in found]
        shown = 4 if width() >= 100 else 3  # the hexadecimal form where there is room
        show(table(heads[:shown], [row[:shown] for row in rows], (1, 2)))
    return 0


def _skew(args: argparse.Namespace) -> int:
    where = _ranges(args)
    if where is None:
        raise UsageError(reason="on which shards? --stream, --shards or --shard-count")
    ranges, names = where
    keys = [hash_key for _, hash_key in hashed_keys(args)]
    skew = skew_of(keys, ranges)
    if args.json:
        show_json(_skew_facts(skew, names))
    else:
        write(skew_bars(skew, names, width()) + "\n")
        show(line(f"fullest / mean = {skew.ratio:.2f}, {skew.total:,} keys on {len(names)} shards"))
    return 0


def _skew_facts(skew: Skew, names: Sequence[str]) -> dict[str, object]:
    shards = [{"shard": name, "count": count} for name, count in zip(names, skew.counts, strict=True)]
    return {"total": skew.total, "ratio": skew.ratio, "shards": shards}


def _allocate(args: argparse.Namespace) -> int:
    if args.count < 1:
        raise UsageError(reason="the count must be at least 1")
    where = _ranges(args)
    existing = hash_keys_from(args.existing) if args.existing else []
    allocated = balanced_keys(where[0] if where else [ALL_HASH_KEYS], existing)
    keys = list(islice(allocated, args.count))
    if args.json:
        show_json([str(key) for key in keys])
    else:
        write("".join(f"{key}\n" for key in keys))
    return 0


def _split(args: argparse.Namespace) -> int:
    ranges = ALL_HASH_KEYS.split(args.count)
    if args.json:
        names = ("startingHashKey", "endingHashKey")
        show_json([{name: str(key) for name, key in zip(names, _ends(r), strict=True)} for r in ranges])
    else:
        rows = [[str(i), *map(str, _ends(r)), share(r)] for i, r in enumerate(ranges)]
        show(table(["", "starting hash key", "ending hash key", "share"], rows, (0, 1, 2, 3)))
    return 0


def _ends(keys: HashKeyRange) -> tuple[int, int]:
    return keys.starting_hash_key, keys.ending_hash_key


def _hot(args: argparse.Namespace) -> int:
    from .hot_keys import hot_keys

    if args.top < 1:
        raise UsageError(reason="--top must be at least 1")
    found, total = hot_keys(args.results, args.top)
    if args.json:
        rows = [
            {"key": key, "hashKey": str(hash_key), "userRecords": count} for key, hash_key, count in found
        ]
        show_json({"userRecords": total, "keys": rows})
    else:
        shown = [[key, f"{count:,}", percent(count, total), str(hash_key)] for key, hash_key, count in found]
        show(table(["key", "user records", "share", "hash key"], shown, (1, 2, 3)))
        show(line(f"of {plural(total, 'user record')} with a partition key"))
    return 0
