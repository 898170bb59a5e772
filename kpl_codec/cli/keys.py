"""``kpl-codec keys``: hash partition keys, weigh them on shards, allocate hash keys, split the space."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..format.hash_keys import ALL_HASH_KEYS, HashKeyRange, parse_hash_key, partition_key_hash
from ..pictures.svg import skew_svg
from ..pictures.terminal import share, short_id, skew_bars
from ..shards.allocation import HashKeyAllocator, ShardKeyAllocator, nth_key
from ..shards.skew import Skew, skew_of
from .source import UsageError, add_source, load_shard_map, read_lines, write_text
from .terminal import print_json, table, width

HELP = "Hash partition keys, weigh them on shards, allocate balanced hash keys, split the key space."


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    hashing = commands.add_parser("hash", help="the hash key of partition keys (MD5)")
    hashing.add_argument("keys", nargs="*", metavar="KEY")
    hashing.add_argument("--keys-from", metavar="FILE", help="one key a line; - for standard input")
    hashing.set_defaults(action=_hash)

    skew = commands.add_parser("skew", help="how unevenly keys fall on shards")
    add_source(skew, required=False)
    skew.add_argument("keys", nargs="*", metavar="KEY")
    skew.add_argument("--keys-from", metavar="FILE", help="one key a line; - for standard input")
    skew.add_argument("--explicit", action="store_true", help="the keys are explicit hash keys")
    skew.add_argument("--shard-count", type=int, metavar="N", help="on N even shards instead of a stream's")
    skew.add_argument("--svg", metavar="FILE", help="also draw the bars into this file")
    skew.add_argument(
        "--limit", type=float, metavar="R", help="exit 1 if the fullest is above R times the mean"
    )
    skew.set_defaults(action=_skew)

    allocate = commands.add_parser(
        "allocate",
        help="explicit hash keys that stay balanced",
        description="Explicit hash keys that stay balanced through splits and merges. With a stream or a "
        "listing the shards with the fewest keys come first; without, the whole key space is halved and "
        "halved again. Keys in use are given with --existing; the same keys in any order, the same answer.",
    )
    add_source(allocate, required=False)
    allocate.add_argument("count", type=int, nargs="?", default=1, help="how many (default: 1)")
    allocate.add_argument("--existing", metavar="FILE", help="hash keys in use, one a line; - for stdin")
    allocate.add_argument("--shard-count", type=int, metavar="N", help="on N even shards")
    allocate.add_argument("--space", metavar="START:END", help="another key space, both ends included")
    allocate.add_argument(
        "--order",
        choices=["tree", "left-to-right", "half-to-half"],
        help="fill each level in this order, from nothing",
    )
    allocate.set_defaults(action=_allocate)

    split = commands.add_parser("split", help="the even split of the key space, as CreateStream cuts it")
    split.add_argument("count", type=int, help="into how many ranges")
    split.add_argument("--space", metavar="START:END", help="another range, both ends included")
    split.set_defaults(action=_split)

    for command in (hashing, skew, allocate, split):
        command.add_argument("--json", action="store_true", help="JSON instead of tables")


def run(args: argparse.Namespace) -> int:
    """0 clean, 1 findings (skew above its limit). Raises KplError for bad input."""
    return int(args.action(args))


def _keys(args: argparse.Namespace) -> list[str]:
    keys = [*args.keys, *(read_lines(args.keys_from) if args.keys_from else ())]
    if not keys:
        raise UsageError(reason="no keys given")
    return keys


def _space(text: str | None) -> HashKeyRange:
    if text is None:
        return ALL_HASH_KEYS
    start, colon, end = text.partition(":")
    if not colon:
        raise UsageError(reason=f"no range: {text!r} (use START:END)")
    return HashKeyRange(parse_hash_key(start), parse_hash_key(end))


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
    found = [(key, partition_key_hash(key)) for key in _keys(args)]
    if args.json:
        print_json([{"Key": key, "HashKey": str(n), "Hex": f"{n:032x}"} for key, n in found])
    else:
        rows = [[key, str(n), f"{n:032x}", f"{100 * n / 2**128:.2f}%"] for key, n in found]
        print(table(["key", "hash key", "hex", "of the space"], rows, (1, 3)))
    return 0


def _skew(args: argparse.Namespace) -> int:
    where = _ranges(args)
    if where is None:
        raise UsageError(reason="on which shards? --stream, --shards or --shard-count")
    ranges, names = where
    make = parse_hash_key if args.explicit else partition_key_hash
    keys = _keys(args)
    skew = skew_of(map(make, keys), ranges)
    if args.svg:
        write_text(args.svg, skew_svg(skew, names, f"{len(keys):,} keys on {len(names)} shards"))
    if args.json:
        print_json(_skew_facts(skew, names))
    else:
        print(skew_bars(skew, names, width()))
        print(f"fullest / mean = {skew.ratio:.2f}, {skew.total:,} keys on {len(names)} shards")
    return 1 if args.limit is not None and skew.ratio > args.limit else 0


def _skew_facts(skew: Skew, names: Sequence[str]) -> dict[str, object]:
    shards = [{"Shard": name, "Count": count} for name, count in zip(names, skew.counts, strict=True)]
    return {"Total": skew.total, "Ratio": skew.ratio, "Shards": shards}


def _allocate(args: argparse.Namespace) -> int:
    if args.count < 1:
        raise UsageError(reason="the count must be at least 1")
    where = _ranges(args)
    existing = list(map(parse_hash_key, read_lines(args.existing))) if args.existing else []
    space = _space(args.space)
    if args.order is not None:
        if where is not None or existing:
            raise UsageError(reason="--order fills the space from nothing: no shards, no existing keys")
        keys = [nth_key(n, space, args.order) for n in range(args.count)]
    else:
        if where is not None and args.space:
            raise UsageError(reason="--space and shards exclude each other")
        allocator: ShardKeyAllocator | HashKeyAllocator = (
            ShardKeyAllocator(where[0], existing) if where else HashKeyAllocator(space, existing)
        )
        keys = [allocator.next_key() for _ in range(args.count)]
    if args.json:
        print_json([str(key) for key in keys])
    else:
        print("\n".join(map(str, keys)))
    return 0


def _split(args: argparse.Namespace) -> int:
    ranges = _space(args.space).split(args.count)
    if args.json:
        print_json(
            [
                {"StartingHashKey": str(r.starting_hash_key), "EndingHashKey": str(r.ending_hash_key)}
                for r in ranges
            ]
        )
    else:
        rows = [
            [str(i), str(r.starting_hash_key), str(r.ending_hash_key), share(r)] for i, r in enumerate(ranges)
        ]
        print(table(["", "starting hash key", "ending hash key", "share"], rows, (0, 1, 2, 3)))
    return 0
