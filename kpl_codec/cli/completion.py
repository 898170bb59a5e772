"""``kpl-codec completion``: completes commands and options in a shell, by argcomplete."""

from __future__ import annotations

import argparse

from ..pictures.terminal import write

_EPILOG = """\
bash, zsh: eval "$(kpl-codec completion bash)" in ~/.bashrc or ~/.zshrc
fish:      kpl-codec completion fish > ~/.config/fish/completions/kpl-codec.fish
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", choices=["bash", "zsh", "fish"])


def run(args: argparse.Namespace) -> int:
    """0."""
    from argcomplete.shell_integration import shellcode

    write(shellcode(["kpl-codec"], shell=args.shell) + "\n")
    return 0
