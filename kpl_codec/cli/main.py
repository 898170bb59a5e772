"""`kpl-codec COMMAND ...`: finds the command's module and runs it.

A command module has ``configure(parser)``, ``run(args)`` (or one for each action), which returns the exit
status or None for 0, and an EPILOG if its help says more. Exit status: 0 nothing found, 1 findings, 2 failure
(bad input or usage, a package is missing), 130 interrupted by Ctrl-C, 143 by SIGTERM.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

from .. import __version__
from ..base.lazy import PACKAGES, install
from ..base.without_pandas import hide_pandas
from ..errors import KplError
from .exit_status import CLEAN, FAILURE, INTERRUPTED
from .options import why_not
from .removed import REMOVED

#: Command -> what it does, and two examples.
COMMANDS = {
    "demo": "Fill a local stream from several writers, split a shard, and report what is lost.",
    "validate": "Check captures or a stream: which records are broken, misplaced, or dropped by the KCL.",
    "watch": "Sample a live stream and report records that are being lost.",
    "audit": "Compare what producers put with what consumers handled, and list what is missing.",
    "findings": "Print what validate or audit found, worst first.",
    "cat": "Print the user records of captures, or of a stream.",
    "inspect": "Show one record byte by byte, its defects, and how the KCL handles it.",
    "explain": "Look up a code, an error, a finding or a requirement: what it means and what to do.",
    "shards": "List a stream's shards, predict the shard of a key.",
    "keys": "Hash partition keys, make explicit hash keys that spread evenly.",
}
EXAMPLES = {
    "demo": ("", "--output trial"),
    "validate": (
        "--stream orders --output checked",
        "captured --shards shards.json --output checked --fail-on critical",
    ),
    "watch": ("--stream orders", "--stream orders --all --since 5m --once --fail-on critical"),
    "audit": (
        "--produced put/ --handled handled/",
        "--produced put/ --handled handled/ --stream orders --output missing",
    ),
    "findings": ("checked", "checked --kind mixed-aggregate --json-lines"),
    "cat": ("captured --limit 10", "--stream orders --follow"),
    "inspect": (
        "record.bin",
        "captured/shardId-000000000000.json --sequence-number 4959...",
    ),
    "explain": ("mixed-aggregate", "FRM-3"),
    "shards": ("list --stream orders", "predict --stream orders customer-1"),
    "keys": ("hash customer-1", "allocate 4 --stream orders"),
}
#: Command -> its module, in the folder of its feature.
MODULES = {
    "demo": "testing.demo_command",
    "validate": "validate.validate_command",
    "watch": "watch.watch_command",
    "audit": "audit.audit_command",
    "findings": "validate.findings_command",
    "cat": "cli.cat_command",
    "inspect": "cli.inspect_command",
    "explain": "cli.explain",
    "shards": "aws.shards_command",
    "keys": "cli.keys_command",
}
#: The extras that a command needs, and those that it needs for a word that begins so.
NEEDS = dict.fromkeys(COMMANDS, "cli") | {"demo": "demo", "watch": "cli,aws", "audit": "cli,aws"}
_NEEDS_OF_WORDS = {
    "aws": ("--stream", "s3://"),
    "otel": ("--otel",),
    "spark-local": ("spark", "--engine=spark"),
}
#: The packages whose versions `--version` prints, if they are installed.
_PACKAGES = ("boto3", "pyarrow", "pyspark")
_WIDEST_HELP = 88
#: The metavars of arguments that are read; - is standard input.
_READ = ("PATH", "FILE", "DATA")
#: The errors of the operating system if a folder or a file in it cannot be made.
_CANNOT_WRITE = {
    errno.ENOENT, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.ENOTDIR,
}  # fmt: skip


#: Texts in the library's errors that advise an argument, and the option of commands that stands for it.
_OPTIONS = {
    "give a region": "give --region",
    "set AWS_PROFILE": "give --profile, or set AWS_PROFILE",
    "the endpoint URL": "--endpoint-url",
}


class Parser(argparse.ArgumentParser):
    """argparse's parser. An error is one line, which names the command and what may have been meant."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, formatter_class=_HelpFormatter, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Paths may also follow options. The command's own parser reports an unknown option."""
        words = list(sys.argv[1:] if args is None else args)
        self._check_words(words)
        parsed, unknown = super().parse_known_args(words, namespace)
        many = next((action for action in self._get_positional_actions() if action.nargs == "*"), None)
        if many and not any(word.startswith("-") for word in unknown if word != "-"):
            try:
                getattr(parsed, many.dest).extend(self._get_value(many, word) for word in unknown)
            except argparse.ArgumentError as error:
                self.error(str(error))
            unknown = []
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        ours = words[: words.index("--")] if "--" in words else words
        options = (self._option_string_actions.get(word.partition("=")[0]) for word in ours)
        if reason := why_not([action for action in options if action is not None], parsed):
            self.error(reason)
        inputs = [getattr(parsed, action.dest) for action in self._actions if action.metavar in _READ]
        if [*inputs, *(path for paths in inputs if isinstance(paths, list) for path in paths)].count("-") > 1:
            self.error("standard input (-) can be read only once")
        return parsed, unknown

    def _check_words(self, words: Sequence[str]) -> None:
        """Refuse unknown options and commands before argparse reports that a required one is missing."""
        commands: Any = self._subparsers._group_actions[0] if self._subparsers is not None else None
        options = [*self._option_string_actions]
        for word in words:
            name = word.partition("=")[0] if word.startswith("--") else word[:2]
            if word == "--":
                return
            is_option = word.startswith("-") and word != "-" and not word[1].isdigit()
            if is_option and name not in options:
                self._unknown("option", name, options)
            if commands is not None and not word.startswith("-"):
                if word not in commands.choices:
                    self._unknown(commands.metavar.lower(), word, [*commands.choices])
                return

    def _unknown(self, what: str, word: str, names: list[str]) -> NoReturn:
        if instead := REMOVED.get(f"{self.prog} {word}".removeprefix("kpl-codec ")):
            self.error(f"{what} {word} was removed: {instead}")
        stripped = {name.lstrip("-"): name for name in names}
        # By a lower cutoff "repair" is like "explain".
        near = get_close_matches(word.lstrip("-"), stripped, 1, 0.6 if what == "option" else 0.75)
        near += [name for name in stripped if name.startswith(word.lstrip("-"))]
        self.error(f"unknown {what} {word}" + (f"; did you mean {stripped[near[0]]}?" if near else ""))

    def _print_message(self, message: str, file: Any = None) -> None:
        """Prints help. argparse would say nothing where standard output is full or closed."""
        from ..rendering.terminal import write

        write(message)

    def error(self, message: str) -> NoReturn:
        sys.exit(_fail(f"{message} (see {self.prog} --help)"))


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of descriptions and examples; no line is wider than pages of the site."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(shutil.get_terminal_size().columns - 2, _WIDEST_HELP))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text if "\n" in text else argparse.HelpFormatter._fill_text.__get__(self)
        return str(fill(text, width, indent))


class _Version(argparse.Action):
    """``--version``: prints the versions that a bug report needs."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        import platform
        from importlib.metadata import PackageNotFoundError, version

        from ..base.compiled import speedups
        from ..rendering.terminal import write

        kind = "pure Python" if speedups is None else "compiled"
        lines = [f"kpl-codec {__version__} ({kind})"]
        lines.append(f"Python {platform.python_version()}, {platform.platform(terse=True)}")
        for package in _PACKAGES:
            try:
                installed = version(package)
            except PackageNotFoundError:
                installed = "not installed"
            lines.append(f"{package} {installed}")
        write("".join(f"{line}\n" for line in lines))
        sys.exit(CLEAN)


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands. Only the called command is imported and has its arguments."""
    parser = Parser(
        prog="kpl-codec",
        description="Reads, checks and explains Kinesis records that the KPL aggregated.",
        epilog="To begin: kpl-codec demo, or kpl-codec validate --stream NAME --output DIR.\n"
        "kpl-codec COMMAND --help has examples.\n\n"
        "Exit status: 0 nothing found, 1 findings, 2 failure, 130 interrupted (Ctrl-C), 143 SIGTERM.\n"
        'Completion in bash and zsh: eval "$(register-python-argcomplete kpl-codec)"',
    )
    text = "versions, and whether the compiled extension is used: for a bug report"
    parser.add_argument("--version", action=_Version, nargs=0, help=text)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    command_name = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, what in COMMANDS.items():
        command = commands.add_parser(name, help=what, description=what)
        if name == command_name:
            module = import_module(f"kpl_codec.{MODULES[name]}")
            lines = [f"  kpl-codec {name} {example}".rstrip() for example in EXAMPLES[name]]
            examples = "\n".join(["Examples:", *lines])
            command.epilog = "\n\n".join(filter(None, [getattr(module, "EPILOG", "").strip(), examples]))
            command.set_defaults(run=getattr(module, "run", None))
            module.configure(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    args = argparse.Namespace()
    try:
        args = _parser(arguments).parse_args(arguments)
        from ..rendering.terminal import write_whatever_the_encoding

        write_whatever_the_encoding()
        # SPK-19: "Exit status 0 MUST mean that nothing was found, 1 that something was, 2 that the job could
        # not be done."
        with _identity(getattr(args, "profile", None), getattr(args, "role_arn", None)):
            return args.run(args) or CLEAN
    except KplError as error:
        text = str(error)
        for advice, option in _OPTIONS.items():
            text = text.replace(advice, option)
        return _fail(text)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES:
            raise
        command = next(word for word in arguments if not word.startswith("-"))
        needs = f"{command} needs {package}, which is not installed."
        return _fail(f"{needs} Run: {install(_extras(command, arguments))}")
    except BrokenPipeError:  # the reader closed our output: `| head`
        from ..rendering.terminal import drop_output

        drop_output()
        return CLEAN
    except OSError as error:
        return _fail(_reason(error, getattr(args, "output", None) or getattr(args, "results", None)))
    except KeyboardInterrupt:
        return INTERRUPTED


def _extras(command: str, words: Sequence[str]) -> str:
    """All extras that a command line needs."""
    of_words = (
        extra for extra, begins in _NEEDS_OF_WORDS.items() for word in words if word.startswith(begins)
    )
    needed = dict.fromkeys((*NEEDS[command].split(","), *of_words))
    if command == "demo":  # its extra brings it
        needed.pop("aws", None)
    return ",".join(needed)


def _reason(error: OSError, folder: str | None) -> str:
    """What the operating system refused, and the path: that of ``error``, or the command's output folder."""
    if error.errno is None:
        return str(error)
    from ..rendering.labels import refusal

    if error.filename is not None:
        return f"{error.filename}: {refusal(error)}"
    if folder and error.errno in _CANNOT_WRITE:  # pyarrow names no path, and gives the reason twice
        return f"cannot write to {folder}: {refusal(error)}"
    return refusal(error)


@contextmanager
def _identity(profile: str | None, role_arn: str | None) -> Iterator[None]:
    """Makes all calls to AWS, of this process and of those that it starts, as ``profile`` and ``role_arn``.

    They are set in the environment, which the processes of Spark and of the local engine inherit: as an
    argument the role would go through every path of a capture into each of their tasks."""
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


class _ClosedOutput(io.TextIOWrapper):
    """Standard output that the shell has closed (``>&-``): each write to it fails."""

    def write(self, text: str) -> int:
        raise OSError("standard output is closed")


def _open_closed_streams() -> None:
    """Open null devices for standard streams that the shell has closed, so that no file gets their
    numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream: Any = open(os.devnull, mode)  # noqa: SIM115 - it stays open
            setattr(sys, name, _ClosedOutput(stream.detach()) if name == "stdout" else stream)


def _complete() -> None:
    import argcomplete

    typed = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0")) or None]
    argcomplete.autocomplete(_parser(typed.split()[1:]))


def _fail(reason: str) -> int:
    from ..rendering.terminal import note

    note(reason)
    return FAILURE


def entry() -> None:
    """The entry point of the process `kpl-codec`: runs `main` and exits with its status. SIGTERM ends it as
    Ctrl-C does: what it began is removed, its servers and workers end."""
    ended: list[int] = []

    def end(number: int, frame: object) -> NoReturn:
        ended.append(128 + number)
        signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)
    hide_pandas()
    try:
        status = main()
    except Exception:  # noqa: BLE001 - a bug: show the traceback, and never end with the status of findings
        with suppress(OSError):
            traceback.print_exc()
        status = FAILURE
    sys.exit(ended[0] if ended else status)


if __name__ == "__main__":
    entry()
