"""The spec, the code that quotes it and the tests that name it belong together; every deviation has a reason,
a requirement that exists, and vectors that show it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from ..every import every
from .traceability import trace
from .vectors import REPOSITORY, load

#: Of this repository.
whole = cache(trace)


def test_every_requirement_is_enforced_and_tested() -> None:
    problems = whole().problems
    assert not problems, "\n" + "\n".join(problems)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small sound repository, for breaking."""
    for directory in ("spec/vectors", "kpl_codec", "tests"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "spec/01-a.md").write_text('**FRM-1** A frame MUST "start" well. *(format)*\n')
    (tmp_path / "spec/exceptions.json").write_text('{"exceptions": []}')
    (tmp_path / "spec/vectors/a.json").write_text(
        json.dumps({"vectors": [{"id": "a", "requirements": ["FRM-1"]}]})
    )
    (tmp_path / "kpl_codec/a.py").write_text('# FRM-1: "A frame MUST\n# "start" well."\nx = 1\n')
    (tmp_path / "tests/test_a.py").write_text('@pytest.mark.requirement("FRM-1")\ndef test(): pass\n')
    return tmp_path


def test_a_sound_repository_has_no_problems(repository: Path) -> None:
    assert trace(repository).problems == []


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("kpl_codec/a.py", "x = 1\n", "FRM-1: no code"),
        ("kpl_codec/a.py", '# FRM-1: "A frame MUST start badly."\n', "quotes what the spec does not say"),
        ("kpl_codec/b.py", '# FRM-9: "Else."\n', "FRM-9: kpl_codec/b.py:1 speaks of it"),
        ("kpl_codec/b.pxi", '# FRM-9: "Else."\n', "FRM-9: kpl_codec/b.pxi:1 speaks of it"),
        ("kpl_codec/b.h", '/* FRM-9: "Else." */\n', "FRM-9: kpl_codec/b.h:1 speaks of it"),
        ("kpl_codec/b.h", '/* FRM-1: "A frame\n * else." */\nint x;\n', "quotes what the spec does not say"),
        ("kpl_codec/b.py", '"""Says FRM-1 to FRM-2."""\n', "FRM-2: kpl_codec/b.py:1 speaks of it"),
        ("kpl_codec/b.py", '# FRM-1: "A frame"\n\nx = 1\n', "FRM-1: kpl_codec/b.py:1 stands above no code"),
        ("kpl_codec/b.py", 'if x:\n    y = 1\n    # FRM-1: "A frame"\nz = 1\n', "stands above no code"),
        ("kpl_codec/b.py", 'x = [\n    # FRM-1: "A frame"\n]\n', "stands above no code"),
        ("kpl_codec/b.pyx", '# FRM-9: "Else."\n', "FRM-9: kpl_codec/b.pyx:1 speaks of it"),
        ("tests/test_b.py", 'x = pytest.mark.requirement("FRM-1", "MSG-1")\n', "MSG-1: tests/test_b.py"),
        ("spec/vectors/a.json", '{"vectors": []}', "FRM-1: no vector"),
        ("spec/02-b.md", "**FRM-1** Twice. *(x)*\n", "FRM-1: stands in"),
        ("spec/02-b.md", "**KEY-1** No source.\n", "KEY-1: spec/02-b.md names no source"),
        ("spec/02-b.md", "**PRD-1** Untested. *(x)*\n", "PRD-1: no test"),
        (
            "spec/exceptions.json",
            '{"exceptions": [{"id": "FRM-1", "lacks": "vector", "reason": "x"}]}',
            "FRM-1: spec/exceptions.json excuses",
        ),
    ],
)
def test_each_flaw_is_named(repository: Path, file: str, text: str, problem: str) -> None:
    (repository / file).write_text(text)
    assert any(problem in found for found in trace(repository).problems)


DEVIATIONS = json.loads((REPOSITORY / "spec" / "deviations.json").read_text())["deviations"]


@every("deviation", DEVIATIONS, ids=lambda deviation: deviation["id"])
def test_each_deviation_is_complete(deviation: dict[str, object]) -> None:
    assert set(deviation) == {"id", "requirement", "from", "what", "reason", "vectors"}
    assert all(deviation.values())
    assert deviation["from"] in ("proto2", "KPL", "KCL", "AWS API", "aiokpl", "aws_kinesis_agg")


def test_deviations_have_ids_of_their_own_and_name_requirements_and_vectors_that_exist() -> None:
    assert len({deviation["id"] for deviation in DEVIATIONS}) == len(DEVIATIONS)
    vectors = {vector["id"] for vector in load()}
    requirements = whole().requirements
    for deviation in DEVIATIONS:
        assert deviation["requirement"] in requirements
        assert set(deviation["vectors"]) <= vectors, set(deviation["vectors"]) - vectors
