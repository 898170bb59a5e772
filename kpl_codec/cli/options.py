"""Options and arguments that several commands have: each has one name, one meaning and one help text."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..base.arguments import FOLDER, output_folder
from ..errors import KplError
from ..findings import SEVERITIES
from ..rendering.labels import plural, utc
from ..rendering.terminal import note
from ..shards.stream_name import StreamNameError, stream_of

#: Where reading begins: at the oldest record, after the newest, or at a time.
Since = Literal["TRIM_HORIZON", "LATEST"] | datetime
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
#: The longest duration, in seconds: ten years. The system cannot wait for centuries.
_LONGEST = 3650 * 86400
_WHEN = "a time span ago (5m, 2h, 7d) or a time (ISO 8601, UTC if it names no zone)"


class UsageError(KplError):
    """The command line asks for something that cannot be done; ``reason`` says why."""

    code = "usage"
    reason: str
    text = "{reason}"
    concerns = "Whoever runs the command. Nothing was written."
    todo = "Change the arguments that the error names; the command's --help lists all of them."


# -- types ----------------------------------------------------------------------------------------


def at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= sys.maxsize:
            limit = f"at least {least}" if value < least else f"at most {sys.maxsize}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {limit}")
        return value

    return number


def above_zero(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def duration(text: str) -> float:
    """A time span: the seconds of 90, 90s, 5m, 2h or 1d."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    seconds = float(match[1]) * _UNITS[match[2] or "s"] if match is not None else 0.0
    if not 0 < seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s, 5m or 2h")
    return seconds


def not_empty(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("it is empty (is a variable of the shell not set?)")
    return text


def path(text: str) -> str:
    """A path, with the home folder for ``~``: bash does not replace ``~`` in ``--output=~/results``."""
    not_empty(text)
    return str(Path(text).expanduser()) if text == "~" or text.startswith("~/") else text


def new_folder(text: str) -> str:
    """The folder of an option that is written to."""
    if output_folder(folder := path(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no folder to write to: give {FOLDER}")
    return folder


def moment(text: str) -> datetime:
    if re.fullmatch(r"\d+(\.\d+)?[smhd]", text):
        return datetime.now(timezone.utc) - timedelta(seconds=duration(text))
    try:
        return utc(datetime.fromisoformat(text.replace("Z", "+00:00")))
    except (ValueError, OverflowError):
        reason = f"{text!r} is not a time such as 2026-01-31T12:00:00Z, or 5m for five minutes ago"
        raise argparse.ArgumentTypeError(reason) from None


def since(text: str) -> Since:
    if text == "TRIM_HORIZON":
        return "TRIM_HORIZON"
    if text == "LATEST":
        return "LATEST"
    try:
        begin = moment(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; or TRIM_HORIZON, or LATEST") from None
    if begin > datetime.now(timezone.utc):
        raise argparse.ArgumentTypeError(f"{text!r} is in the future")
    return begin


def role_arn(text: str) -> str:
    if not re.fullmatch(r"arn:[^:]+:iam::\d{12}:role/\S+", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a role such as arn:aws:iam::123456789012:role/NAME"
        )
    return text


def stream_name(text: str) -> str:
    try:
        stream_of(text)
    except StreamNameError as error:
        raise argparse.ArgumentTypeError(error.describe()) from None
    return text


# -- options --------------------------------------------------------------------------------------

#: The type of an option's value by its metavar; values with other metavars are text.
_TYPES: Mapping[str, Callable[[str], Any]] = {
    "N": at_least(1),
    "DURATION": duration,
    "WHEN": moment,
    **dict.fromkeys(("DATA", "DIR", "FILE", "PATH"), path),
}
#: Options and arguments of several commands, as they are typed, and their help with {fields}.
_SHARED = {
    "paths PATH": "captures: files or folders, also in S3; - for standard input",
    "results DIR": "the folder that kpl-codec validate or audit wrote",
    "keys KEY": "partition keys",
    "--keys-from FILE": "more keys, one a line; - for standard input",
    "--stream NAME": "{use}; its name or ARN",
    "--shards FILE": "the shards of a stream: output of `aws kinesis list-shards` or `kpl-codec shards list "
    "--json`; - for standard input",
    "--since WHEN": f"where reading begins: TRIM_HORIZON, LATEST, {_WHEN}; default: {{begin}}",
    "--until WHEN": f"only records that arrived before: {_WHEN}",
    "--only FILE": "read only the records of FILE: sequence numbers, or a notice of Lambda",
    "--limit N": "at most N {what}",
    "--json": "print one JSON value",
    "--quiet": "print no progress on standard error",
    "--fail-on": "exit with 1 for findings of this severity or worse (default: %(default)s)",
    "--region REGION": "region of the stream (default: as for the AWS CLI)",
    "--endpoint-url URL": "another Kinesis server, such as a local one",
    "--profile NAME": "profile of the AWS configuration{use}",
    "--role-arn ARN": "role to assume{use}",
}
_MORE: Mapping[str, Mapping[str, Any]] = {
    "paths": {"nargs": "*"},
    "keys": {"nargs": "*"},
    "--stream": {"type": stream_name},
    "--since": {"type": since},
    "--fail-on": {"choices": SEVERITIES, "default": "warning"},
    "--role-arn": {"type": role_arn},
}


class Company(NamedTuple):
    """Options that an option needs one of, or does nothing with."""

    needs: tuple[str, ...] = ()
    not_with: tuple[str, ...] = ()


#: Stands in `Company.needs` for a path in S3, in any argument.
IN_S3 = "a path in S3"
_ALONE = Company()


def why_not(given: list[argparse.Action], args: argparse.Namespace) -> str | None:
    """Why the options ``given`` cannot be taken; None if they can. What is given twice comes twice."""
    # ARG-4: "An option of a command that changes nothing, and one with a value that is given twice, MUST be
    # refused."
    names = [action.option_strings[-1] for action in given]
    paths = [one for value in vars(args).values() for one in (value if isinstance(value, list) else [value])]
    in_s3 = any(isinstance(path, str) and path.startswith(("s3://", "s3a://", "s3n://")) for path in paths)
    for action, name in zip(given, names, strict=True):
        repeatable = action.nargs == 0 or type(action).__name__ in ("_AppendAction", "_ExtendAction")
        if names.count(name) > 1 and not repeatable:
            return f"{name} is given twice"
        needs, not_with = vars(action).get("company", _ALONE)
        if needs and not {*needs} & {*names} and not (IN_S3 in needs and in_s3):
            return f"{name} goes with {' or '.join(needs)}"
        for other in names:
            if other in not_with:
                return f"{name} does nothing with {other}"
    return None


def add(
    parser: argparse._ActionsContainer, option: str, text: str, company: Company = _ALONE, **more: Any
) -> None:
    """Add an option or argument as it is typed, such as "--output DIR", with its help. Without a metavar it
    is a flag, unless it has choices. ``company``: what it goes with. ``more``: as for argparse."""
    name, _, metavar = option.partition(" ")
    if metavar:
        kind = new_folder if option.startswith("-") and metavar == "DIR" else _TYPES.get(metavar, not_empty)
        more = {"metavar": metavar, "type": kind, **more}
    elif "choices" not in more and "action" not in more:
        more["action"] = "store_true"
    vars(parser.add_argument(name, help=text, **more))["company"] = company


def add_shared(
    parser: argparse._ActionsContainer, *names: str, company: Company = _ALONE, **fields: str
) -> None:
    """Add options and arguments of `_SHARED` by name. ``company``: what each of them goes with."""
    shared = {option.partition(" ")[0]: (option, text) for option, text in _SHARED.items()}
    for name in names:
        option, text = shared[name]
        add(parser, option, text.format(**fields), company, **_MORE.get(name, {}))


def note_nothing(args: argparse.Namespace, what: str, read: int, place: str, *options: str) -> None:
    """Say on standard error why nothing was printed: ``place`` holds no ``what`` (user records, say), or the
    given ``options`` let none of the ``read`` ones through."""
    given = [option for option in options if getattr(args, option[2:].replace("-", "_")) is not None]
    chosen = " and ".join(given)
    if read:
        note(f"nothing to print: of {plural(read, what)} in {place}, none is let through by {chosen}")
    else:
        note(f"there is no {what} in {place}" + (f" with {chosen}" if chosen else ""))


def add_shards(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add --stream and --shards, one of which says where the shards come from."""
    group = parser.add_mutually_exclusive_group(required=required)
    add_shared(group, "--stream", "--shards", use="the stream")
    add_aws(parser)


def add_aws(parser: argparse.ArgumentParser, *, kinesis: bool = True) -> None:
    """Add --profile and --role-arn; with ``kinesis`` also --region and --endpoint-url. Without it the command
    calls AWS for paths in S3 only."""
    group = parser.add_argument_group("AWS")
    callers = ("--stream",) if kinesis else ()
    if kinesis:
        add_shared(group, "--region", company=Company(callers))
        add_shared(group, "--endpoint-url", company=Company(callers))
    use = "" if kinesis else ", for paths in S3"
    add_shared(group, "--profile", "--role-arn", company=Company((*callers, IN_S3)), use=use)


def add_action(
    commands: Any, name: str, what: str, run: Callable[[argparse.Namespace], None]
) -> argparse.ArgumentParser:
    """Add the action ``name`` of a command, with --json. ``what``: its help."""
    action: argparse.ArgumentParser = commands.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}."
    )
    action.set_defaults(run=run)
    add_shared(action, "--json")
    return action
