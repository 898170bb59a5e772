"""Texts of "what to do", of findings, errors and what was removed, stand alone: whoever has only the text can
follow it."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

from kpl_codec.cli.explain import error_classes
from kpl_codec.cli.main import COMMANDS, _parser
from kpl_codec.cli.removed import REMOVED
from kpl_codec.findings import KINDS

from ..every import every

TEXTS = {
    **{f"finding-{kind.name}": kind.todo for kind in KINDS.values()},
    **{f"error-{error.name}": error.todo for error in error_classes(say_missing=False)},
    **REMOVED,
}
ROOT = Path(__file__).parents[2]
#: A command may be named without its arguments where the text speaks of what it wrote.
_OUTPUT = re.compile(r"(?:output|results) of (?:the )?`kpl-codec \w+`")


def problem_of(text: str) -> str | None:
    """What a reader of ``text`` alone cannot know; None if nothing."""
    first = text.split(". ")[0]
    if found := re.match(r"(?:\w+ ){0,2}(it|its|them|they|their|this|these|those)\b(?! \w+ly)", first, re.I):
        return f"{found[1]!r}: of what?"
    if found := re.search(r"the (?:text|message|error) (?:says|expects)|that the text \w+", text):
        return f"{found[0]!r}: what is it?"
    if re.match("(?:Find|Read) [^.]*\\.?$", text) and "`" not in text:
        return "and then?"
    if "kpl-codec" in re.sub(r"`[^`]*`", "", text.replace("kpl-codec)", "")):
        return "a command without backticks"
    if missing := [page for page in re.findall(r"spec/\S+\.md", text) if not (ROOT / page).exists()]:
        return f"there is no {missing}"
    for command in re.findall(r"`kpl-codec ([^`]*)`", _OUTPUT.sub("", text)):
        name, *arguments = shlex.split(command)
        if name not in COMMANDS:
            return f"there is no command {name}"
        with contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                args = _parser([name]).parse_args([name, *arguments])
            except SystemExit:
                return f"{command}: {said.getvalue().splitlines()[-1]}"
        needs_more = not args.output if name == "validate" else not arguments
        if name in ("validate", "cat", "inspect", "explain") and needs_more:
            return f"{command}: of what?"
    return None


@every("name", TEXTS)
def test_a_text_of_what_to_do_stands_alone(name: str) -> None:
    assert problem_of(TEXTS[name]) is None, TEXTS[name]


@every(
    "text",
    [
        "Find its writer.",
        "spec/guides/nothing.md says how.",
        "Do what the text says.",
        "Find the writer of the record.",
        "Give it a folder of its own.",
        "Open them: `kpl-codec cat FILE`.",
        "`kpl-codec findings` prints what was found.",
        "Run `kpl-codec validate --stream NAME`.",
        "Look at `kpl-codec cat`.",
        "First kpl-codec validate, then audit.",
        "Run `kpl-codec cat FILE --no-such-option`.",
    ],
)
def test_a_text_that_leans_on_another_is_found(text: str) -> None:
    assert problem_of(text) is not None
