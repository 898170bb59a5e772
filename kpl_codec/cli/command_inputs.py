"""The inputs of commands: the shards of a stream, keys, and files on this machine or in S3."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import KplError, ShardMapError
from ..format.hash_keys import partition_key_hash
from ..format.limits import MAX_PARTITION_KEY_LENGTH
from ..format.records import KinesisRecord
from ..rendering.labels import refusal
from ..rendering.terminal import note
from ..shards.live_shard_map import StreamUnavailable
from ..shards.shard import Distribution
from ..shards.shard_map import ShardMap
from ..shards.stream_name import stream_of
from .options import UsageError
from .progress import waiting

if TYPE_CHECKING:
    from ..captures import Location


# -- results --------------------------------------------------------------------------------------


def check_new_output(output: Location, keep: str = "") -> None:
    """`validate.results.check_output`, and a note about what killed jobs have left beside ``output``."""
    from ..validate.results import check_output, left_behind

    check_output(output, keep)
    # SPK-126: "What a killed job has left of its results MUST be named by the next job with that output."
    for folder in left_behind(output):
        whose = "a killed job has left it, or another job writes it now: if none runs, delete it"
        note(f"{folder} holds user records: {whose}")


# -- streams --------------------------------------------------------------------------------------


def paths_or_stream(args: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go together. ``args.only`` becomes the record locations that
    the file lists."""
    if bool(args.paths) == bool(args.stream):
        raise UsageError(reason="give either PATH (- for standard input), or --stream NAME")
    follow = getattr(args, "follow", None)  # None: of a command that ends at the newest record
    if follow and not args.stream:
        raise UsageError(reason="--follow goes with --stream")
    if args.only and (not args.stream or follow):
        raise UsageError(reason="--only goes with --stream" + (", and not with --follow" if follow else ""))
    if args.since == "LATEST" and not follow:
        why = "reads nothing: the newest record is the last that is read"
        raise UsageError(reason=f"--since LATEST {why if follow is None else 'goes with --follow'}")
    if args.only:  # read before any call
        from ..aws.fetch_by_sequence_number import NAMES_NONE, find_sequence_numbers

        locations = find_sequence_numbers(read_bytes(args.only))
        if all(getattr(one, "reason", None) == NAMES_NONE for one in locations):
            expected = "expected one sequence number a line, or shardId:number, or a notice of Lambda"
            raise UsageError(reason=f"{args.only} has no sequence number: {expected}")
        args.only = locations


def client_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `kpl_codec.aws.kinesis_client`. An ARN's region is used if --region is
    absent."""
    settings = {name: getattr(args, name) for name in ("region", "endpoint_url", "profile", "role_arn")}
    region = stream_of(args.stream).region
    if settings["region"] is not None and region not in (None, settings["region"]):
        raise UsageError(reason=f"--region is {settings['region']}, but the stream is in {region}")
    return {**settings, "region": region or settings["region"]}


def client_of(args: argparse.Namespace) -> Any:
    """A client as the arguments say, after its server was reached. Raises StreamUnavailable, UsageError."""
    from ..aws.calls import call_errors, failure_of
    from ..aws.client import check_reachable, kinesis_client

    settings = client_settings(args)
    try:
        with waiting(f"asking Kinesis for {args.stream}"):
            check_reachable(stream_of(args.stream), **settings)
        return kinesis_client(**settings)
    except call_errors() as error:
        failure = failure_of(error)
        raise StreamUnavailable(
            stream=args.stream, operation="connect", code=failure.code, reason=failure.reason, permanent=True
        ) from None
    except ValueError as error:
        example = "give a URL such as http://localhost:4567"
        raise UsageError(reason=f"--endpoint-url {args.endpoint_url}: {error}; {example}") from None


def load_shard_map(args: argparse.Namespace) -> ShardMap:
    """The shard map of --shards, else of --stream. Raises StreamUnavailable, ShardMapError, InputError."""
    if args.shards:
        distribution: Distribution = getattr(args, "distribution", "USER_PARTITION_KEY")
        data = read_bytes(args.shards)
        try:
            return ShardMap.from_json(data, distribution=distribution, source=args.shards)
        except ShardMapError as error:
            if error.code != "malformed":
                raise
            hint = "--shards takes what `aws kinesis list-shards` or `kpl-codec shards list --json` prints"
            raise UsageError(reason=f"{error.describe()}; {hint}") from None
    from ..aws.stream_reading import fetch_shard_map

    client = client_of(args)
    with waiting(f"reading the shards of {args.stream}"):
        return fetch_shard_map(client, args.stream)


# -- keys -----------------------------------------------------------------------------------------


def hashed_keys(args: argparse.Namespace) -> list[tuple[str, int]]:
    """The keys of ``args``, at least one, each with its hash key. Raises UsageError."""
    pairs = [(key, _hash_of(key)) for key in args.keys]
    if args.keys_from:
        pairs += each_line(args.keys_from, _hash_of)
    if not pairs:
        empty = f"{args.keys_from} has no line with a key" if args.keys_from else "no keys"
        raise UsageError(reason=f"{empty}; give KEY, or --keys-from FILE with one key a line")
    return pairs


def _hash_of(key: str) -> int:
    if not 1 <= len(key) <= MAX_PARTITION_KEY_LENGTH:
        raise UsageError(
            reason=f"a partition key has 1 to {MAX_PARTITION_KEY_LENGTH} characters, not {len(key)}"
        )
    return partition_key_hash(key)


def each_line(path: str, to_hash_key: Callable[[str], int]) -> list[tuple[str, int]]:
    """The keys in a file, one a line, with their hash keys. Raises UsageError, which names the line."""
    pairs = []
    for number, line in enumerate(read_bytes(path).splitlines(), 1):
        try:
            if line:
                text = line.decode()
                pairs.append((text, to_hash_key(text)))
        except UnicodeDecodeError:
            raise UsageError(reason=f"{path}, line {number}: not UTF-8") from None
        except KplError as error:
            raise UsageError(reason=f"{path}, line {number}: {error}") from None
    return pairs


# -- files ----------------------------------------------------------------------------------------


class CapturedRecord(NamedTuple):
    """A Kinesis record, the name of its stream where that is known, and where it is in a capture: file, line,
    position (byte, or row of Parquet), and item (which record of a JSON value of several, from 0)."""

    stream: str | None
    record: KinesisRecord
    file: str | None = None
    line: int | None = None
    position: int | None = None
    item: int | None = None


class Unreadable(NamedTuple):
    """Something in a file that is not a Kinesis record. ``place``: file and line, byte or row."""

    code: str
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.code}" + (f": {self.text}" if self.text else "")


def location_of(path: str) -> Location:
    """The file or folder at ``path``, after its file system or S3 was reached. Raises InputError."""
    from ..captures import Location  # pyarrow

    location = Location(path)
    with waiting(f"asking for {path}"):
        location.kind()
    return location


def results_of(path: str, *names: str) -> list[Location]:
    """Those of ``names`` that exist in the results folder at ``path``, of which no part is missing. Raises
    UsageError if none exists, and InputError."""
    from ..validate.results import check_whole

    folder = location_of(path)
    parts = [folder / name for name in names if (folder / name).kind() is not None]
    if not parts:
        whys = {None: "no such file or folder", "file": "it is a file, not a folder"}
        why = whys.get(folder.kind(), f"it has no {names[0]}")
        hint = "give the --output of kpl-codec validate"
        raise UsageError(reason=f"cannot read {path}: {why}; {hint}")
    check_whole(folder, names[0])
    return parts


def read_bytes(path: str) -> bytes:
    """A file's bytes, - for standard input. Raises UsageError, InputError."""
    location = location_of(path) if "://" in path else None  # for local files pyarrow is not needed
    with waiting(f"reading {'standard input' if path == '-' else path}"):
        if path == "-":
            return sys.stdin.buffer.read()
        if location is not None:
            return location.read()
        try:
            return Path(path).read_bytes()
        except (OSError, ValueError) as error:
            reason = refusal(error) if isinstance(error, OSError) else error
            raise UsageError(reason=f"cannot read {path}: {reason}") from None
