"""Where a command gets its shards and keys from: a live stream, or files."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import KplError
from ..findings import SEVERITIES
from ..format.hash_keys import parse_hash_key, partition_key_hash
from ..limits import MAX_PARTITION_KEY_LENGTH
from ..pictures.labels import utc
from ..shards.live_shard_map import StreamUnavailable
from ..shards.shard_map import ShardMap
from ..shards.stream import StreamNameError, stream_of

if TYPE_CHECKING:
    from ..aws.only import Place


class UsageError(KplError):
    """The command line asks for what cannot be done; ``reason`` says why."""

    code = "usage"
    reason: str
    text = "{reason}"
    concerns = "Whoever runs the command. Nothing was written."
    todo = "Read the command's --help."


def at_least(least: int) -> Callable[[str], int]:
    """The type of options that take a whole number of ``least`` or more."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number of {least} or more")
        return value

    return number


def above_zero(what: str) -> Callable[[str], float]:
    """The type of options that take a finite number above 0. ``what`` it is, for the refusal."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < inf:
            raise argparse.ArgumentTypeError(f"{text!r} is no {what} above 0")
        return value

    return number


seconds = above_zero("number of seconds")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(text: str) -> float:
    """The type of options that take a time span: the seconds of 90, 90s, 5m, 2h or 1d."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"no duration: {text!r} (use 90s, 5m, 2h)")
    return float(match[1]) * _UNITS[match[2] or "s"]


def since(text: str) -> datetime:
    """The type of --since: so long ago (5m, 2h), or a time (ISO 8601, in UTC where it names no zone)."""
    if re.fullmatch(r"\d+(\.\d+)?[smhd]", text):
        with suppress(OverflowError):
            return datetime.now(timezone.utc) - timedelta(seconds=duration(text))
    try:
        return utc(datetime.fromisoformat(text.replace("Z", "+00:00")))
    except ValueError:
        reason = f"no time: {text!r} (use 2024-01-31T12:00:00Z, or 5m for five minutes ago)"
        raise argparse.ArgumentTypeError(reason) from None


def stream_type(text: str) -> str:
    """The type of --stream: a stream's name or ARN."""
    try:
        stream_of(text)
    except StreamNameError as error:
        raise argparse.ArgumentTypeError(error.describe()) from None
    return text


def add_stream(parser: argparse.ArgumentParser, use: str, *, required: bool = False) -> None:
    """--stream, with what it is for, and the connection."""
    parser.add_argument("--stream", type=stream_type, required=required, metavar="NAME", help=use)
    add_connection(parser)


def add_since(parser: argparse.ArgumentParser, records: str) -> None:
    """--since TIME; ``records``: which of them it is about."""
    text = f"{records} from this time on (ISO 8601, default UTC), or from so long ago (5m, 2h)"
    parser.add_argument("--since", type=since, metavar="TIME", help=text)


def add_only(parser: argparse.ArgumentParser, what: str) -> None:
    """--only FILE; ``what`` it gives."""
    text = f"{what}: those whose sequence numbers FILE has (JSON, such as a channel's dead letters)"
    parser.add_argument("--only", metavar="FILE", help=text)


def places_of(path: str) -> list[Place]:
    """The sequence numbers in the file of --only. Raises UsageError, InputError."""
    from ..aws.only import sequence_numbers

    places = sequence_numbers(read_bytes(path))
    if not places:
        raise UsageError(reason=f"{path} has no sequence number: a JSON member sequenceNumber, or one a line")
    return places


def add_fail_on(parser: argparse.ArgumentParser, finding: str) -> None:
    """--fail-on SEVERITY; ``finding``: what makes the exit status 1."""
    text = f"exit with 1 {finding} (default: %(default)s)"
    parser.add_argument("--fail-on", choices=SEVERITIES, default="warning", help=text)


def add_connection(parser: argparse.ArgumentParser) -> None:
    """--region, --endpoint-url, --profile and --role-arn."""
    parser.add_argument("--region", help="AWS region (default: as for the AWS CLI)")
    parser.add_argument("--endpoint-url", metavar="URL", help="another Kinesis server, such as a local one")
    parser.add_argument("--profile", metavar="NAME", help="profile of the AWS configuration to use")
    parser.add_argument("--role-arn", metavar="ARN", help="assume this role for all calls to Kinesis")


def connection(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `add_connection` as those of `kpl_codec.aws.client.kinesis_client`; the region of an
    ARN counts. Raises UsageError, StreamNameError."""
    given = {name: getattr(args, name) for name in ("region", "endpoint_url", "profile", "role_arn")}
    region = stream_of(args.stream).region
    if given["region"] is not None and region not in (None, given["region"]):
        raise UsageError(reason=f"--region is {given['region']}, but the stream is in {region}")
    return {**given, "region": region or given["region"]}


def add_source(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """--stream NAME_OR_ARN or --shards FILE, and the connection."""
    group = parser.add_mutually_exclusive_group(required=required)
    group.add_argument("--stream", type=stream_type, metavar="NAME", help="a stream's name or ARN")
    group.add_argument(
        "--shards",
        metavar="FILE",
        help="what 'aws kinesis list-shards' printed, one page or several; - for standard input",
    )
    add_connection(parser)


def add_keys(parser: argparse.ArgumentParser, *, explicit: bool = True) -> None:
    """KEY ..., --keys-from FILE and, with ``explicit``, --explicit."""
    parser.add_argument("keys", nargs="*", metavar="KEY", help="partition keys")
    parser.add_argument("--keys-from", metavar="FILE", help="one key a line; - for standard input")
    if explicit:
        parser.add_argument("--explicit", action="store_true", help="the keys are explicit hash keys")
    else:
        parser.set_defaults(explicit=False)


def hashed_keys(args: argparse.Namespace) -> list[tuple[str, int]]:
    """The keys of ``args`` (see `add_keys`), at least one, each with its hash key. Raises UsageError."""
    hashed = partial(hash_key_of, explicit=args.explicit)
    found = [(key, hashed(key)) for key in args.keys]
    if args.keys_from:
        found += _each_line(args.keys_from, hashed)
    if not found:
        raise UsageError(reason="no keys given")
    return found


def hash_keys_from(path: str) -> list[int]:
    """Hash keys, one a line, - for standard input. Raises UsageError, which names the line."""
    return [hash_key for _, hash_key in _each_line(path, parse_hash_key)]


def hash_key_of(key: str, *, explicit: bool) -> int:
    """The hash key of a partition key, or of the text of an explicit one. Raises UsageError, HashKeyError."""
    if explicit:
        return parse_hash_key(key)
    if not 1 <= len(key) <= MAX_PARTITION_KEY_LENGTH:
        raise UsageError(
            reason=f"no partition key: {len(key)} characters (Kinesis takes 1 to {MAX_PARTITION_KEY_LENGTH})"
        )
    return partition_key_hash(key)


def _each_line(path: str, hashed: Callable[[str], int]) -> list[tuple[str, int]]:
    found = []
    for number, text in enumerate(read_lines(path), 1):
        try:
            if text:
                found.append((text, hashed(text)))
        except KplError as error:
            raise UsageError(reason=f"{path}, line {number}: {error}") from None
    return found


def client_of(args: argparse.Namespace) -> Any:
    """The client the arguments ask for, once its server was reached. Raises StreamUnavailable, UsageError,
    ModuleNotFoundError."""
    from ..aws.calls import CALL_ERRORS, failure_of
    from ..aws.client import kinesis_client, reach

    settings = connection(args)
    try:
        reach(stream_of(args.stream), **settings)
        return kinesis_client(**settings)
    except CALL_ERRORS as error:
        failure = failure_of(error)
        raise StreamUnavailable(
            stream=args.stream, operation="connect", code=failure.code, reason=failure.reason, permanent=True
        ) from None
    except ValueError as error:  # an endpoint that is no URL
        raise UsageError(reason=str(error)) from None


def read_bytes(path: str) -> bytes:
    """A file's bytes, - for standard input. Raises UsageError, InputError."""
    if path == "-":
        return sys.stdin.buffer.read()
    if "://" in path:
        from ..captures import Location  # pyarrow, which local files need not

        return Location(path).read()
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(reason=f"cannot read {path}: {reason}") from None


def read_lines(path: str) -> list[str]:
    """A file's lines, - for standard input. Raises UsageError."""
    data = read_bytes(path)
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise UsageError(reason=f"{path}, line {number}: not UTF-8") from None


def load_shard_map(args: argparse.Namespace, *, closed: bool = False) -> ShardMap:
    """The shard map of ``args`` (see `add_source`). Raises StreamUnavailable, ShardMapError,
    UsageError."""
    if args.stream:
        from ..aws.shard_map import fetch_shard_map

        return fetch_shard_map(client_of(args), args.stream, closed=closed)
    return ShardMap.from_json(read_bytes(args.shards), source=args.shards)
