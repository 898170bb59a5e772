"""Where a command gets its shards from: a live stream, or a file of ListShards answers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ..errors import KplError
from ..shards.live_shard_map import StreamUnavailable
from ..shards.shard_map import ShardMap


class UsageError(KplError):
    """The command line asks for what cannot be done; ``reason`` says why."""

    code = "usage"
    reason: str
    text = "{reason}"


def add_connection(parser: argparse.ArgumentParser) -> None:
    """--region, --endpoint-url."""
    parser.add_argument("--region", help="AWS region (default: as for the AWS CLI)")
    parser.add_argument("--endpoint-url", help="another Kinesis server, for instance a local one")


def add_source(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """--stream NAME_OR_ARN or --shards FILE, and the connection."""
    group = parser.add_mutually_exclusive_group(required=required)
    group.add_argument("--stream", metavar="NAME", help="a stream's name or ARN")
    group.add_argument(
        "--shards",
        metavar="FILE",
        help="what 'aws kinesis list-shards' printed, one page or several; - for standard input",
    )
    add_connection(parser)


def client_of(args: argparse.Namespace) -> Any:
    """The client the arguments ask for. Raises StreamUnavailable, also where boto3 is missing."""
    try:
        from ..aws.calls import CALL_ERRORS, failure_of
        from ..aws.client import kinesis_client
    except ModuleNotFoundError as error:
        raise StreamUnavailable(
            stream=args.stream, operation="import", code="no-boto3", reason=f"{error}: install kpl-codec[aws]"
        ) from None
    try:
        return kinesis_client(region=args.region, endpoint_url=args.endpoint_url)
    except CALL_ERRORS as error:
        failure = failure_of(error)
        raise StreamUnavailable(
            stream=args.stream, operation="connect", code=failure.code, reason=failure.reason, permanent=True
        ) from None


def stream_arguments(stream: str) -> dict[str, Any]:
    """``stream`` as keyword arguments: an ARN or a name."""
    return {"stream_arn": stream} if stream.startswith("arn:") else {"stream_name": stream}


def read_bytes(path: str) -> bytes:
    """A file's bytes, - for standard input. Raises UsageError."""
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(reason=f"cannot read {path}: {error.strerror}") from None


def write_text(path: str, text: str) -> None:
    """Write a file. Raises UsageError."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(reason=f"cannot write {path}: {error.strerror}") from None


def read_lines(path: str) -> list[str]:
    """A file's lines without empty ones, - for standard input. Raises UsageError."""
    try:
        return [line for line in read_bytes(path).decode().splitlines() if line]
    except UnicodeDecodeError:
        raise UsageError(reason=f"{path} is not UTF-8") from None


def load_shard_map(args: argparse.Namespace, *, closed: bool = False) -> ShardMap:
    """The shard map of ``args`` (see `add_source`). Raises StreamUnavailable, ShardMapError,
    UsageError."""
    if args.stream:
        from ..aws.shard_map import fetch_shard_map

        return fetch_shard_map(client_of(args), **stream_arguments(args.stream), closed=closed)
    return ShardMap.from_json(read_bytes(args.shards))
