"""``kpl-codec keys``: hashes partition keys, allocates explicit hash keys."""

from __future__ import annotations

import argparse
from itertools import islice

from ..format.hash_keys import ALL_HASH_KEYS, parse_hash_key
from ..rendering.terminal import show, show_json, table, write
from ..shards.skew import balanced_keys
from .command_inputs import each_line, hashed_keys, load_shard_map
from .options import add, add_action, add_aws, add_shards, add_shared


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    hashing = add_action(
        commands, "hash", "print the hash key of each partition key: its MD5 as a number", _hash
    )
    add_shared(hashing, "keys", "--keys-from")
    add_aws(hashing, kinesis=False)

    allocate = add_action(commands, "allocate", "make explicit hash keys that spread evenly", _allocate)
    allocate.description = (
        "Make explicit hash keys that spread evenly over all hash keys, and stay so when shards are split or "
        "merged. With --stream or --shards the shards that have the fewest of --existing get the first keys."
    )
    add(allocate, "count N", "how many (default: 1)", nargs="?", default=1)
    add(allocate, "--existing FILE", "hash keys in use, one a line; - for standard input")
    add_shards(allocate, required=False)


def _hash(args: argparse.Namespace) -> None:
    pairs = hashed_keys(args)
    if args.json:
        show_json([{"key": key, "hashKey": str(n), "hex": f"{n:032x}"} for key, n in pairs])
    else:
        heads = ["key", "hash key", "of the space"]
        show(table(heads, [[key, str(n), f"{100 * n / 2**128:.2f}%"] for key, n in pairs], (1, 2)))


def _allocate(args: argparse.Namespace) -> None:
    ranges = [ALL_HASH_KEYS]
    if args.stream or args.shards:
        ranges = [shard.hash_key_range for shard in load_shard_map(args).open_shards]
    existing = each_line(args.existing, parse_hash_key) if args.existing else []
    keys = list(islice(balanced_keys(ranges, [hash_key for _, hash_key in existing]), args.count))
    if args.json:
        show_json([str(key) for key in keys])
    else:
        write("".join(f"{key}\n" for key in keys))
