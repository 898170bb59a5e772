"""Every finding there can be has a name, a meaning and something to do about it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

import kpl_codec
from kpl_codec import errors
from kpl_codec.captures.capture_rows import shard_of
from kpl_codec.findings import KINDS, SEVERITIES, FindingType, kind_of, worst
from kpl_codec.findings.catalogue import ALL, WATCH
from kpl_codec.shards.placement import Verdict

from ..every import every

PACKAGE = Path(kpl_codec.__file__).parent
SPEC, TESTS = PACKAGE.parent / "spec", PACKAGE.parent / "tests"


def defect_codes() -> set[str]:
    """The code of every defect that the decoder finds."""
    found: set[str] = set()
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, errors.DecodeError):
            own = value.__dict__.get("code")
            # The class's own, or those that it declares.
            found |= {own} if own else set(get_args(get_type_hints(value)["code"]))
    return found - {"not-aggregated"}  # a plain record is no defect


def test_every_defect_of_the_decoder_is_a_kind() -> None:
    found = defect_codes()
    assert len(found) > 14
    assert found - KINDS.keys() == set(), "each needs a FindingType in findings/catalogue.py"


def test_every_verdict_but_expected_is_a_kind() -> None:
    unknown = {*get_args(Verdict)} - {"expected"} - KINDS.keys()
    assert unknown == set(), "each needs a FindingType in findings/catalogue.py"


def test_every_kind_is_reported_by_some_code() -> None:
    """The code names it; kinds of captures are put together from the codes of `CaptureError`."""
    paths = [path for end in ("*.py", "*.pyx", "*.pxi", "*.h") for path in PACKAGE.rglob(end)]
    code = "\n".join(path.read_text() for path in paths if not path.match("findings/catalogue*"))
    named = {name for name in KINDS if not name.startswith("capture")}
    unreported = {name for name in named if f'"{name}"' not in code}
    assert unreported == set(), (
        "nothing reports them: findings/record_findings.py, validate/report/, watch/record_checks.py, ..."
    )


def test_every_kind_has_an_example() -> None:
    """A test or a vector names it: kinds of captures and of audits also without the word in front."""
    files = [path for path in TESTS.rglob("*.py") if path.parent != Path(__file__).parent]
    files += (TESTS.parent / "spec" / "vectors").glob("*.json")
    texts = "\n".join(path.read_text() for path in files)
    missing = {
        name
        for name in KINDS
        if not any(f'"{one}"' in texts for one in (name, re.sub("^(capture|audit)-", "", name)))
    }
    assert missing == set(), "each needs a test that makes one and says its kind"


def test_every_kind_of_watch_is_in_its_chapter() -> None:
    chapter = (SPEC / "10-watch.md").read_text()
    names = {kind.name for kind in WATCH}
    assert "hot-key" in names
    missing = {name for name in names if f"`{name}`" not in chapter}
    assert missing == set(), "the table of section 10.2 has to name them"


def test_a_kind_that_nobody_listed_still_has_a_place() -> None:
    kind = kind_of("capture-something-new")
    assert (kind.name, kind.severity) == ("capture-something-new", "error")
    assert "capture-something-new" in kind.title


@every("kind", ALL, ids=lambda kind: kind.name)
def test_a_kind_is_whole(kind: FindingType) -> None:
    assert KINDS[kind.name] is kind, "it is listed twice"
    assert kind.severity in SEVERITIES
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", kind.name)
    for text in (kind.meaning, kind.todo):
        assert text.endswith(".")
        assert "  " not in text
        assert text.count("`") % 2 == 0


def test_the_requirements_named_are_in_the_spec() -> None:
    text = "\n".join(path.read_text() for path in SPEC.glob("*.md"))
    there = set(re.findall(r"^\*\*([A-Z]{3}-\d+)\*\*", text, re.MULTILINE))
    assert {kind.requirement for kind in KINDS.values() if kind.requirement} <= there


def test_worst_is_the_first_of_the_severities_there() -> None:
    assert worst([]) is None
    assert worst(["on-parent"]) == "info"
    assert worst(["on-parent", "duplicate"]) == "warning"
    assert worst(["duplicate", "naive-aggregator", "truncated"]) == "critical"


def test_the_file_name_that_unknown_shard_advises_says_the_shard() -> None:
    (advised,) = re.findall(r"shardId\S+\.bin", KINDS["unknown-shard"].todo)
    assert shard_of(f"captured/{advised}", None) == ("shardId-000000000000", "path")
