"""What pages say of commands is what the code says."""

from __future__ import annotations

from . import made


def test_pages_have_what_the_code_says() -> None:
    stale = [path.name for path in made.PAGES if made.made(text := path.read_text()) != text]
    assert not stale, f"run python -m tests.guides.made: {stale}"


def test_every_option_of_a_command_is_made() -> None:
    page = (made.ROOT / "spec/guides/command-line.md").read_text()
    lacking = {
        f"{name} {option}"
        for name, parser in made.commands()
        for action in parser._actions
        for option in action.option_strings
        if f"`{option}" not in page and option not in ("-h", "--help")
    }
    assert not lacking
