"""``kpl-codec keys``: hashes partition keys, allocates hash keys, counts the hottest keys."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any
from zlib import crc32

from ..cli.options import add, add_action, add_aws, add_shards, add_shared
from ..cli.progress import waiting
from ..format.hash_keys import ALL_HASH_KEYS, parse_hash_key, partition_key_hash
from ..rendering.labels import percent, plural
from ..rendering.terminal import line, note, show, show_json, table, write
from ..shards.skew import balanced_keys
from .command_inputs import each_line, hashed_keys, load_shard_map, location_of, results_of

#: How many hot keys are printed without --limit.
_SHOWN = 10
#: How many parts the partition keys are cut into. Keys are counted one by one only in the parts with most
#: user records, so that the keys of other parts take no memory.
_PARTS, _COUNTED_PARTS = 1 << 16, 1 << 12


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

    hot = add_action(commands, "hot", "print the partition keys with most user records", _hot)
    add_shared(hot, "results", "--limit", what=f"keys (default: {_SHOWN})")
    add_aws(hot, kinesis=False)


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


def _hot(args: argparse.Namespace) -> None:
    with waiting(f"counting the keys of {args.results}"):
        hot, total = _hot_keys(args.results, args.limit or _SHOWN)
        read = json.loads((location_of(args.results) / "summary.json").read()).get("totals", {})
    if args.json:
        rows = [{"key": key, "hashKey": str(hash_key), "userRecords": count} for key, hash_key, count in hot]
        show_json({"userRecords": total, "keys": rows})
    elif not hot:
        note(f"there is no user record with a partition key in {args.results}")
    else:
        texts = [[key, f"{count:,}", percent(count, total), str(hash_key)] for key, hash_key, count in hot]
        show(table(["key", "user records", "share", "hash key"], texts, (1, 2, 3)))
        show(line(f"of {plural(total, 'user record')} with a partition key"))
    # ACC-5, as in cat_command.py
    if without := read.get("userRecords", total) - total:
        note(f"not counted: {plural(without, 'user record')} whose partition key is not known")
    if closed := read.get("brokenFrames"):
        text = "counts as one user record of its own key, whatever is in it"
        note(f"{plural(closed, 'Kinesis record')} cannot be opened: each {text}")


def _hot_keys(results: str, top: int) -> tuple[list[tuple[str, int, int]], int]:
    """The ``top`` partition keys: key, hash key, user records; and the user records of all keys.

    Counts are exact. A key that was not counted has no more user records than the fullest part that was not
    counted by key, so no hot key is left out. Raises UsageError for a folder without user records,
    InputError.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    (folder,) = results_of(results, "user-records")
    schema = pa.schema({"partitionKey": pa.string()})  # also for an empty folder
    with_key = pc.field("partitionKey").is_valid()

    def counted() -> Iterator[tuple[list[str], Any, Any]]:
        """Of each batch its keys, how many user records each has, and its part: by the key, as the user
        records of one key may have many hash keys."""
        for batch in folder.rows(["partitionKey"], with_key, schema):
            counted = pc.value_counts(batch["partitionKey"].cast(pa.string()))
            keys = counted.field("values").to_pylist()
            parts = np.fromiter((crc32(key.encode()) % _PARTS for key in keys), np.int64, len(keys))
            yield keys, counted.field("counts").to_numpy(), parts

    of_parts = np.zeros(_PARTS, np.int64)
    for _, numbers, parts in counted():
        np.add.at(of_parts, parts, numbers)
    fullest = np.zeros(_PARTS, bool)
    fullest[np.argsort(of_parts, kind="stable")[-_COUNTED_PARTS:]] = True
    counts: Counter[str] = Counter()
    for keys, numbers, parts in counted():
        for at in np.flatnonzero(fullest[parts]).tolist():
            counts[keys[at]] += int(numbers[at])
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:top]
    return [(key, partition_key_hash(key), count) for key, count in ranked], int(of_parts.sum())
