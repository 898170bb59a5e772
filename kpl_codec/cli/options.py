"""Options and arguments that several commands have: each has one name, one meaning and one help text."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from math import inf
from typing import Any, Literal

from ..findings import SEVERITIES
from ..pictures.labels import utc
from ..shards.stream import StreamNameError, stream_of

#: Where reading begins: at the oldest record, after the newest, or at a time.
Since = Literal["TRIM_HORIZON", "LATEST"] | datetime
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WHEN = "so long ago (5m, 2h, 7d) or a time (ISO 8601, UTC if it names no zone)"


# -- types ----------------------------------------------------------------------------------------


def at_least(least: int) -> Callable[[str], int]:
    """Whole numbers of ``least`` or more."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number of {least} or more")
        return value

    return number


def above_zero(text: str) -> float:
    """Finite numbers above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def duration(text: str) -> float:
    """A time span: the seconds of 90, 90s, 5m, 2h or 1d."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 90s, 5m or 2h")
    return float(match[1]) * _UNITS[match[2] or "s"]


def moment(text: str) -> datetime:
    """So long ago, or a time."""
    if re.fullmatch(r"\d+(\.\d+)?[smhd]", text):
        with suppress(OverflowError):
            return datetime.now(timezone.utc) - timedelta(seconds=duration(text))
    try:
        return utc(datetime.fromisoformat(text.replace("Z", "+00:00")))
    except ValueError:
        reason = f"{text!r} is no time such as 2026-01-31T12:00:00Z, or 5m for five minutes ago"
        raise argparse.ArgumentTypeError(reason) from None


def since(text: str) -> Since:
    """beginning, latest, or a `moment`."""
    if text == "beginning":
        return "TRIM_HORIZON"
    if text == "latest":
        return "LATEST"
    try:
        begin = moment(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; or beginning, or latest") from None
    if begin > datetime.now(timezone.utc):
        raise argparse.ArgumentTypeError(f"{text!r} is in the future")
    return begin


def role_arn(text: str) -> str:
    """The ARN of a role."""
    if not re.fullmatch(r"arn:[^:]+:iam::\d{12}:role/\S+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no role such as arn:aws:iam::123456789012:role/NAME")
    return text


def stream_name(text: str) -> str:
    """A stream's name or ARN."""
    try:
        stream_of(text)
    except StreamNameError as error:
        raise argparse.ArgumentTypeError(error.describe()) from None
    return text


# -- what is read ---------------------------------------------------------------------------------


def add_action(commands: Any, name: str, what: str) -> argparse.ArgumentParser:
    """The action ``name`` of a command, and ``what`` it is for."""
    added: argparse.ArgumentParser = commands.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}."
    )
    return added


def add_paths(parser: argparse.ArgumentParser) -> None:
    """PATH ...: captures."""
    text = "captures: files or folders, also in S3; - for standard input"
    parser.add_argument("paths", nargs="*", metavar="PATH", help=text)


def add_results(parser: argparse.ArgumentParser) -> None:
    """DIR: what validate wrote."""
    parser.add_argument("results", metavar="DIR", help="the folder that validate wrote")


def add_stream(parser: argparse._ActionsContainer, use: str) -> None:
    """--stream; ``use``: what it is for."""
    parser.add_argument("--stream", type=stream_name, metavar="NAME", help=f"{use}; its name or ARN")


def add_shards(parser: argparse.ArgumentParser, *, required: bool = True, even: bool = False) -> None:
    """--stream or --shards, and with ``even`` --shard-count: where the shards come from."""
    group = parser.add_mutually_exclusive_group(required=required)
    group.add_argument("--stream", type=stream_name, metavar="NAME", help="the stream; its name or ARN")
    add_shards_file(group)
    if even:
        text = "N even shards, as CreateStream makes them"
        group.add_argument("--shard-count", type=at_least(1), metavar="N", help=text)
    add_aws(parser)


def add_shards_file(parser: argparse._ActionsContainer) -> None:
    text = "what `aws kinesis list-shards` or `kpl-codec shards list --json` printed; - for standard input"
    parser.add_argument("--shards", metavar="FILE", help=text)


def add_keys(parser: argparse.ArgumentParser, *, explicit: bool = True) -> None:
    """KEY ..., --keys-from and, with ``explicit``, --explicit."""
    parser.add_argument("keys", nargs="*", metavar="KEY", help="partition keys")
    text = "more keys, one a line; - for standard input"
    parser.add_argument("--keys-from", metavar="FILE", help=text)
    if explicit:
        parser.add_argument("--explicit", action="store_true", help="the keys are explicit hash keys")
    else:
        parser.set_defaults(explicit=False)


def add_since(parser: argparse._ActionsContainer, default: str) -> None:
    """--since."""
    text = f"where reading begins: beginning, latest, {_WHEN}; default: {default}"
    parser.add_argument("--since", type=since, metavar="WHEN", help=text)


def add_only(parser: argparse._ActionsContainer) -> None:
    """--only."""
    text = "of the stream just the records whose sequence numbers FILE has (JSON, such as dead letters)"
    parser.add_argument("--only", metavar="FILE", help=text)


def add_until(parser: argparse.ArgumentParser) -> None:
    text = f"only what arrived before: {_WHEN}"
    parser.add_argument("--until", type=moment, metavar="WHEN", help=text)


def add_aws(parser: argparse.ArgumentParser, *, kinesis: bool = True) -> None:
    """--profile and --role-arn; with ``kinesis`` also --region and --endpoint-url."""
    group = parser.add_argument_group("AWS")
    if kinesis:
        group.add_argument("--region", help="region of the stream (default: as for the AWS CLI)")
        text = "another Kinesis server, such as a local one"
        group.add_argument("--endpoint-url", metavar="URL", help=text)
    group.add_argument("--profile", metavar="NAME", help="profile of the AWS configuration")
    group.add_argument("--role-arn", type=role_arn, metavar="ARN", help="role to assume for all calls to AWS")


# -- what is told ---------------------------------------------------------------------------------


def add_limit(parser: argparse.ArgumentParser, what: str, default: str = "all") -> None:
    """--limit: at most so many of ``what``; the ``default`` is the command's own."""
    text = f"at most N {what} (default: {default})"
    parser.add_argument("--limit", type=at_least(1), metavar="N", help=text)


def add_json(parser: argparse._ActionsContainer, *, lines: bool = False) -> None:
    text = "print a JSON object a line" if lines else "print one JSON value"
    parser.add_argument("--json", action="store_true", help=text)


def add_fail_on(parser: argparse._ActionsContainer) -> None:
    text = "exit with 1 for findings of this severity or worse (default: %(default)s)"
    parser.add_argument("--fail-on", choices=SEVERITIES, default="warning", help=text)


def add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
