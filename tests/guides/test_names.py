"""Commands, options, names, files and extras that README, guides and the specification name exist."""

from __future__ import annotations

import importlib.metadata
import pydoc
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

import kpl_codec as kpl
from kpl_codec.cli.main import COMMANDS, _parser

from ..cli.commands import parsers
from ..every import every

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path for path in (*ROOT.glob("*.md"), *ROOT.glob("spec/**/*.md")) if path.name != "CHANGELOG.md"
)


#: Options of others: of Glue's jobs, Spark, pip, pytest, and this repository's own tools.
_OF_OTHERS = {
    "--additional-python-modules",
    "--conf",
    "--deploy-mode",
    "--force",
    "--hypothesis-profile",
    "--platform",
    "--time",
}


def commands(page: str) -> list[str]:
    """What a page has its reader type after ``kpl-codec``."""
    lines = page.replace("\\\n", " ")
    started = r"(?:kpl-codec|spark-submit \"\$\(python -m kpl_codec\.spark\.job\)\")"
    typed = re.findall(rf"^(?: {{4,}})?{started} +([a-z].*)$", lines, re.MULTILINE)
    typed += re.findall(r"`kpl-codec ([a-z][^`]*)`", lines)
    return [line.partition("  #")[0].strip() for line in typed]


@every("path", PAGES, ids=lambda path: path.name)
def test_commands_and_options_exist(path: Path) -> None:
    for command in commands(path.read_text()):
        wanted, *options = shlex.split(re.sub(r"\[[^]]*\]|\.\.\.", "", command))
        ours = options[: options.index("--")] if "--" in options else options  # behind it is another program
        given = {option.partition("=")[0] for option in ours if option.startswith("--")}
        for form in wanted.split("|"):
            assert form in COMMANDS, f"{path.name}: kpl-codec {command}"
            assert given <= _options(form), f"{path.name}: {command}"


def test_files_of_the_words_exist() -> None:
    page = (ROOT / "spec/words.md").read_text()
    files = re.findall(r"`([\w/]+(?:\.py|/))`", page)
    assert len(files) > 30
    assert [name for name in files if not (ROOT / "kpl_codec" / name).exists()] == []


@every("path", PAGES, ids=lambda path: path.name)
def test_names_in_the_text_exist(path: Path) -> None:
    names_in_the_text_exist(path)


def names_in_the_text_exist(path: Path) -> None:
    """Names of this package, files of this repository, extras, wheels, and options without a command."""
    page = path.read_text()
    for name in re.findall(r"\bkpl_codec(?:\.\w+)+", page):
        if not name.endswith((".py", ".so")):
            assert pydoc.locate(name) is not None, f"{path.name}: {name}"
    # A file in running text, too, and a folder in backticks.
    files = re.findall(r"(?<![\w/.])(?:tests|fuzz|kpl_codec|spec)/[\w/.-]*\.[a-z]+\b", page)
    for name in [*files, *re.findall(r"`((?:tests|fuzz|kpl_codec|spec)/[\w/.-]+?)/?`", page)]:
        assert any(ROOT.glob(name)), f"{path.name}: {name}"
    extras = importlib.metadata.metadata("kpl-codec").get_all("Provides-Extra") or []
    for named in re.findall(r"(?:kpl-codec|\.whl|\"\.)\[([a-z][a-z,-]*)\]", page):
        assert set(named.split(",")) <= {*extras, "dev"}, f"{path.name}: {named}"
    for version in re.findall(r"kpl_codec-([\d.]+)-cp", page):
        assert version == kpl.__version__
    for option in re.findall(r"`(--[a-z][a-z-]*)", page):
        assert option in _OF_OTHERS.union(*map(_options, COMMANDS)), f"{path.name}: {option}"


@cache
def _options(command: str) -> set[str]:
    """The options that a command, or one of its actions, takes."""
    prog = f"kpl-codec {command}"
    return {
        option
        for parser in parsers(_parser([command]))
        if f"{parser.prog} ".startswith(f"{prog} ")
        for option in parser._option_string_actions
    }


def test_commands_are_found() -> None:
    page = "text `kpl-codec cat --x` and\n\n    kpl-codec validate --a b \\\n      --c  # why\n"
    assert commands(page) == ["validate --a b        --c", "cat --x"]
    assert commands('    spark-submit "$(python -m kpl_codec.spark.job)" validate --a\n') == ["validate --a"]


@every(
    "page",
    [
        "`kpl_codec.aws.Consumer`",
        "`tests/nothing.py`",
        "the program (tests/nothing.py) does",
        'pip install ".[nothing]"',
        "pip install kpl_codec-9.9.9-cp311-cp311-linux_x86_64.whl",
        "with `--no-such-option`",
    ],
)
def test_a_stale_name_fails(page: str, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(page)
    with pytest.raises(AssertionError):
        names_in_the_text_exist(path)


#: In a template or command of an event source mapping: a limit, and what Lambda's users need beside it.
LIMITS = re.compile(r"MaximumRetryAttempts|MaximumRecordAge|maximum-retry-attempts|maximum-record-age", re.I)


def unsafe_mappings(page: str) -> list[str]:
    """Code blocks after which Lambda gives records up, and nothing names them."""
    blocks = re.findall(r"^( *)```[^\n]*\n(.*?)^\1```", page, re.M | re.S)
    return [
        code
        for _, code in blocks
        if LIMITS.search(code) and ("OnFailure" not in code or re.search(r"record-?age", code, re.I))
    ]


def test_no_mapping_gives_up_records_that_nothing_names() -> None:
    """A limit of retries needs a destination. An age also discards what was never tried."""
    for setting, unsafe in (
        ("MaximumRetryAttempts: 10", True),
        ("MaximumRetryAttempts: 10\nDestinationConfig:\n  OnFailure: ...", False),
        ("aws lambda create-event-source-mapping --maximum-retry-attempts 3", True),
        ("MaximumRecordAgeInSeconds: 3600\nOnFailure: ...", True),
        ("BatchSize: 100", False),
    ):
        assert bool(unsafe_mappings(f"Text.\n\n```yaml\n{setting}\n```\n")) == unsafe
    found = {str(path.relative_to(ROOT)): unsafe_mappings(path.read_text()) for path in PAGES}
    assert not {name: codes for name, codes in found.items() if codes}


@pytest.mark.requirement("KCL-5")
def test_no_text_takes_the_absence_of_a_line_for_a_proof() -> None:
    """The KCL logs this line in some settings only: without the setting its absence says nothing."""
    texts: list[str] = []
    for path in PAGES:
        texts += re.split(r"(?m)^(?=#+ |\*\*[A-Z]+-\d+\*\*)", path.read_text())
    about = [text for text in texts if "Cannot get the shard for this" in " ".join(text.split())]
    assert about
    assert [text for text in about if "skipShardSyncAtStartupIfLeasesExist" not in text] == []
