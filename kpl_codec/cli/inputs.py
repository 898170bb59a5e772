"""What commands read: a stream's shards, keys, and files wherever they are."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..aws_errors import what_to_check
from ..errors import HashKeyError, KplError
from ..format.hash_keys import parse_hash_key, partition_key_hash
from ..format.records import KinesisRecord
from ..limits import MAX_PARTITION_KEY_LENGTH
from ..shards.live_shard_map import StreamUnavailable
from ..shards.shard import Distribution
from ..shards.shard_map import ShardMap
from ..shards.stream_name import stream_of
from .progress import waiting

if TYPE_CHECKING:
    from ..captures import Location


class UsageError(KplError):
    """The command line asks for what cannot be done; ``reason`` says why."""

    code = "usage"
    reason: str
    text = "{reason}"
    concerns = "Whoever runs the command. Nothing was written."
    todo = "Read the command's --help."


# -- streams --------------------------------------------------------------------------------------


def paths_or_stream(args: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go together. ``args.only`` becomes the places in it."""
    if bool(args.paths) + bool(args.stream) + bool(getattr(args, "queue", None)) != 1:
        queue = ", or --queue NAME" if hasattr(args, "queue") else ""
        raise UsageError(reason=f"give either PATH (- for standard input), or --stream NAME{queue}")
    if args.follow and not args.stream:
        raise UsageError(reason="--follow goes with --stream")
    if args.only and (not args.stream or args.follow):
        raise UsageError(reason="--only goes with --stream, and not with --follow")
    if args.since == "LATEST" and not args.follow:
        raise UsageError(reason="--since latest goes with --follow")
    if args.only:  # read before anything is asked for
        from ..aws.fetch_by_sequence_number import sequence_numbers

        places = sequence_numbers(read_bytes(args.only))
        if not places:
            what = "a JSON member sequenceNumber, or one a line"
            raise UsageError(reason=f"{args.only} has no sequence number: {what}")
        args.only = places


def connection(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `kpl_codec.aws.client.kinesis_client`; the region of an ARN counts."""
    given = {name: getattr(args, name) for name in ("region", "endpoint_url", "profile", "role_arn")}
    region = stream_of(args.stream).region
    if given["region"] is not None and region not in (None, given["region"]):
        raise UsageError(reason=f"--region is {given['region']}, but the stream is in {region}")
    return {**given, "region": region or given["region"]}


def client_of(args: argparse.Namespace) -> Any:
    """The client the arguments ask for, once its server was reached. Raises StreamUnavailable, UsageError."""
    from ..aws.calls import call_errors, failure_of
    from ..aws.client import kinesis_client, reach

    settings = connection(args)
    try:
        with waiting(f"asking Kinesis for {args.stream}"):
            reach(stream_of(args.stream), **settings)
        return kinesis_client(**settings)
    except call_errors() as error:
        failure = failure_of(error)
        raise StreamUnavailable(
            stream=args.stream, operation="connect", code=failure.code, reason=failure.reason, permanent=True
        ) from None
    except ValueError as error:  # an endpoint that is no URL
        raise UsageError(reason=str(error)) from None


def other_client(args: argparse.Namespace, what: str, region: str | None, **more: Any) -> Any:
    """A client for ``what``, in --region or ``region``. ``more``: of `kinesis_client`. Raises UsageError."""
    from ..aws.calls import call_errors, failure_of
    from ..aws.client import kinesis_client

    try:
        region = args.region or region
        return kinesis_client(region=region, profile=args.profile, role_arn=args.role_arn, **more)
    except call_errors() as error:
        failure = failure_of(error)
        why = "; ".join(filter(None, (failure.reason.rstrip("."), what_to_check(failure.code))))
        raise UsageError(reason=f"{what}: {why}") from None


def load_shard_map(args: argparse.Namespace, *, closed: bool = False) -> ShardMap:
    """The shard map of --shards, else of --stream. Raises StreamUnavailable, ShardMapError, InputError."""
    if args.shards:
        distribution: Distribution = getattr(args, "distribution", "USER_PARTITION_KEY")
        return ShardMap.from_json(read_bytes(args.shards), distribution, source=args.shards)
    from ..aws.list_shards import fetch_shard_map

    client = client_of(args)
    with waiting(f"reading the shards of {args.stream}"):
        return fetch_shard_map(client, args.stream, closed=closed)


# -- keys -----------------------------------------------------------------------------------------


def hashed_keys(args: argparse.Namespace) -> list[tuple[str, int]]:
    """The keys of ``args``, at least one, each with its hash key. Raises UsageError."""
    hashed = partial(hash_key_of, explicit=args.explicit)
    found = [(key, hashed(key)) for key in args.keys]
    if args.keys_from:
        found += each_line(args.keys_from, hashed)
    if not found:
        raise UsageError(reason="no keys given")
    return found


def hash_key_of(key: str, *, explicit: bool) -> int:
    """The hash key of a partition key, or of the text of an explicit one. Raises UsageError, HashKeyError."""
    if explicit:
        try:
            return parse_hash_key(key)
        except HashKeyError as error:
            raise HashKeyError(reason=f"{key!r} is {error.reason}") from None
    if not 1 <= len(key) <= MAX_PARTITION_KEY_LENGTH:
        raise UsageError(
            reason=f"no partition key: {len(key)} characters (Kinesis takes 1 to {MAX_PARTITION_KEY_LENGTH})"
        )
    return partition_key_hash(key)


def each_line(path: str, hashed: Callable[[str], int]) -> list[tuple[str, int]]:
    """The keys in a file, with their hash keys. Raises UsageError, which names the line."""
    found = []
    for number, line in enumerate(read_bytes(path).splitlines(), 1):
        try:
            if line:
                text = line.decode()
                found.append((text, hashed(text)))
        except UnicodeDecodeError:
            raise UsageError(reason=f"{path}, line {number}: not UTF-8") from None
        except KplError as error:
            raise UsageError(reason=f"{path}, line {number}: {error}") from None
    return found


# -- files ----------------------------------------------------------------------------------------


class Captured(NamedTuple):
    stream: str | None
    record: KinesisRecord


class Unreadable(NamedTuple):
    """Something in a file that is not a Kinesis record. ``place``: file and line, byte or row."""

    code: str
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.code}" + (f": {self.text}" if self.text else "")


def location_of(path: str) -> Location:
    """The file or folder, once what holds it was reached. Raises InputError."""
    from ..captures import Location  # pyarrow

    found = Location(path)
    with waiting(f"asking for {path}"):
        found.kind()
    return found


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
            reason = getattr(error, "strerror", None) or error
            raise UsageError(reason=f"cannot read {path}: {reason}") from None
