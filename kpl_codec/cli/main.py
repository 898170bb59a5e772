"""`kpl-codec COMMAND ...`: finds the command's module and runs it.

A command module has ``configure(parser) -> None``, ``run(args) -> int`` (or one for each action), and an
EPILOG if its help ends with more. Exit status: 0 clean, 1 findings, 2 failure (bad input or usage, something
missing on the machine), 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NoReturn

from .. import __version__
from ..errors import KplError
from ..lazy import EXTRAS, extra_for
from ..without_pandas import hide_pandas
from .exit_status import CLEAN, FAILURE, INTERRUPTED

#: Command -> what it does.
COMMANDS = {
    "demo": "Fill a local stream from several writers, split a shard, and find what is lost.",
    "validate": "Check captures or a stream: what is broken, on the wrong shard, or lost at the KCL.",
    "watch": "Read a small part of a live stream, and tell what is being lost.",
    "audit": "Compare what was put with what was handled, and name what is missing.",
    "repair": "Put user records again that validate found lost at the KCL, aggregated per shard.",
    "findings": "Print what validate found, worst first.",
    "cat": "Print the user records of captures or of a stream.",
    "inspect": "Show one record byte by byte, its defects, and what the KCL makes of it.",
    "explain": "Say what an error code, a kind of finding or a requirement means, and what to do.",
    "shards": "List a stream's shards, predict where keys go, show the shards' history.",
    "keys": "Hash partition keys, count them per shard, make balanced hash keys.",
    "generate": "Make a capture of any size, with its shard map, the same every time.",
    "conformance": "Ask any implementation the vectors of the specification.",
}
#: Command -> its module: with its feature, or in this folder under its own name.
MODULES = {
    "validate": "validate.validate_command",
    "watch": "watch.watch_command",
    "audit": "audit.audit_command",
    "repair": "validate.repair_command",
    "findings": "validate.findings_command",
    "shards": "cli.shards_command",
    "keys": "cli.keys_command",
    "conformance": "conformance.conformance_command",
}


class Parser(argparse.ArgumentParser):
    """argparse's parser with the error prefix of all commands, without the usage."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.suggest_on_error = True  # "maybe you meant": argparse has it from Python 3.14

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Paths may also stand behind options; an unknown option is the error of its command."""
        known, unknown = super().parse_known_args(args, namespace)
        many = next((action.dest for action in self._get_positional_actions() if action.nargs == "*"), None)
        if many and not any(word.startswith("-") for word in unknown if word != "-"):
            getattr(known, many).extend(unknown)
            return known, []
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        sys.exit(_failed(f"{message} (see {self.prog} --help)"))


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """All commands; only the one asked for is imported and has its arguments."""
    parser = Parser(
        prog="kpl-codec",
        description="Aggregated Kinesis records: read, check, repair, explain.",
        epilog="Exit status: 0 nothing found, 1 findings, 2 failure.\n"
        'Completion in bash and zsh: eval "$(register-python-argcomplete kpl-codec)"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kpl-codec {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, what in COMMANDS.items():
        command = commands.add_parser(
            name, help=what, description=what, formatter_class=parser.formatter_class
        )
        if name == wanted:
            module = import_module(f"kpl_codec.{MODULES.get(name, f'cli.{name}')}")
            command.epilog = getattr(module, "EPILOG", None)
            command.set_defaults(run=getattr(module, "run", None))
            module.configure(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    try:
        args = _parser(arguments).parse_args(arguments)
        from ..rendering.terminal import write_whatever_the_encoding

        write_whatever_the_encoding()
        # SPK-19: "Exit status 0 MUST mean that nothing was found, 1 that something was, 2 that the job could
        # not be done."
        with _identity(getattr(args, "profile", None), getattr(args, "role_arn", None)):
            return int(args.run(args))
    except KplError as error:
        return _failed(str(error))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        extra = extra_for(missing, *arguments[:1], "cli")  # demo and watch have extras of their own
        return _failed(
            f'{missing} is not installed. Install the extra {extra}: pip install "kpl-codec[{extra}]", '
            f'or in a checkout: pip install ".[{extra}]"'
        )
    except BrokenPipeError:  # the reader closed our output: `| head`
        from ..rendering.terminal import drop_output

        drop_output()
        return CLEAN
    except OSError as error:  # no space, no permission, not a folder
        return _failed(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED


@contextmanager
def _identity(profile: str | None, role_arn: str | None) -> Iterator[None]:
    """All that this process and those that it starts ask AWS for, they ask as ``profile`` and as the role,
    whatever else is in the environment.

    Set in the environment, which the processes of Spark and of the local engine get: as an argument the role
    would go through every path of a capture into each of their tasks."""
    before = dict(os.environ)
    if profile is not None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            os.environ.pop(name, None)
        os.environ["AWS_PROFILE"] = profile
    if role_arn is not None:
        os.environ["KPL_CODEC_ROLE_ARN"] = role_arn  # aws.s3 reads it
    try:
        yield
    finally:
        if profile is not None or role_arn is not None:
            os.environ.clear()
            os.environ.update(before)


def _open_closed_streams() -> None:
    """Null devices for streams that were closed before (``>&-``): no file must get their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - it stays open


def _complete() -> None:
    import argcomplete

    typed = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0")) or None]
    argcomplete.autocomplete(_parser(typed.split()[1:]))


def _failed(reason: str) -> int:
    from ..rendering.labels import safe_lines

    with suppress(OSError):  # nobody can be told
        sys.stderr.write(f"kpl-codec: {safe_lines(reason)}\n")
        sys.stderr.flush()
    return FAILURE


def entry() -> None:
    """The command as a process."""
    hide_pandas()
    try:
        status = main()
    except Exception:  # noqa: BLE001 - a bug: show the traceback, and never end with the status of findings
        with suppress(OSError):
            traceback.print_exc()
        status = FAILURE
    sys.exit(status)


if __name__ == "__main__":
    entry()
