"""What the project is built and kept by: workflows, issue forms, lock, hooks, changelog; by the checkers that
others use, too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .changelog import notes

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
SCHEMAS = {
    "vendor.github-workflows": sorted(GITHUB.glob("workflows/*.yml")),
    "vendor.dependabot": [GITHUB / "dependabot.yml"],
    "vendor.github-issue-forms": sorted(GITHUB.glob("ISSUE_TEMPLATE/[!c]*.yml")),
}


def check(*command: str) -> None:
    pytest.importorskip("check_jsonschema", reason="the checkers need Python 3.11")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS)
def test_each_file_follows_its_schema(schema: str) -> None:
    check(sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, SCHEMAS[schema]))


@pytest.mark.slow
def test_no_workflow_can_be_misused() -> None:
    """Permissions, pinned actions, injected texts, and what else zizmor looks at."""
    check("zizmor", "--offline", "--persona", "pedantic", str(GITHUB))


def test_every_tested_python_has_wheels() -> None:
    settings = (ROOT / "pyproject.toml").read_text()
    matrix = (GITHUB / "workflows/ci.yml").read_text()
    for version in ("3.10", "3.11", "3.12", "3.13", "3.14"):
        assert f"cp{version.replace('.', '')}-*" in settings
        assert f'"{version}"' in matrix


def test_a_file_of_the_package_is_read_in_one_sitting() -> None:
    """CONTRIBUTING's limit of 600 lines."""
    files = [file for kind in ("py", "pyx", "pxi") for file in (ROOT / "kpl_codec").rglob(f"*.{kind}")]
    sizes = {file.relative_to(ROOT).as_posix(): len(file.read_text().splitlines()) for file in files}
    assert {file: size for file, size in sizes.items() if size > 600} == {}


# -- the lock, and what is set up by it --------------------------------------------------------------


def test_the_lock_has_all_that_is_needed_to_build_and_to_test() -> None:
    """A requirement that is new in pyproject.toml and not in the lock: `make lock`."""
    settings = (ROOT / "pyproject.toml").read_text()
    built_by = re.findall(r'"([^"]+)"', re.findall(r"^requires = (.*)$", settings, re.MULTILINE)[0])
    tables = ("[project.optional-dependencies]", "[dependency-groups]")
    extras = "\n".join(settings.partition(table)[2].partition("\n[")[0] for table in tables)
    lines = [line.partition("  #")[0] for line in extras.splitlines() if not line.startswith("#")]
    given = [*built_by, *re.findall(r'"([A-Za-z][^"]*)"', "\n".join(lines))]
    needed = {canonicalize_name(Requirement(one).name) for one in given}
    assert {"setuptools", "cython", "boto3", "pytest", "ruff"} <= needed
    lock = (ROOT / "requirements.lock").read_text()
    assert needed - {"kpl-codec"} <= set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))
    assert "--hash=sha256:" in lock  # where one has a hash, pip wants a hash and a version of each


def commands_of(target: str) -> list[str]:
    """What a target of the Makefile runs."""
    text = (ROOT / "Makefile").read_text().replace("$(PYTHON)", "python3").replace("$(BIN)", ".venv/bin")
    body = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)[0]
    return [" ".join(line.split()) for line in body.replace("\\\n", " ").splitlines()]


def test_readme_ci_and_make_set_up_and_test_by_the_same_commands() -> None:
    wanted = " && ".join([*commands_of("packages"), *commands_of("setup"), *commands_of("test")])
    for page in ("README.md", ".github/workflows/ci.yml"):
        assert wanted in " ".join((ROOT / page).read_text().replace("\\\n", " ").split()), page
    ci = (ROOT / ".ci/run").read_text().splitlines()
    assert {"PIP_COMPILE=0 make packages", "make -o packages -j 3 setup lint classes &"} <= set(ci)


def test_hooks_are_what_make_lint_runs() -> None:
    """From .venv, and so in the versions of the lock."""
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["entry"] for hook in repository["hooks"]] == commands_of("lint")
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}


# -- the changelog ------------------------------------------------------------------------------------


def test_the_changelog_keeps_its_form() -> None:
    """That of keepachangelog.com. A release candidate has what is not released yet."""
    text = (ROOT / "CHANGELOG.md").read_text()
    (version,) = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    current = version if re.fullmatch(r"[\d.]+", version) else "Unreleased"
    assert any(head.startswith(f"[{current}]") for head in heads[:2])
    assert {head.partition("]")[0][1:] for head in heads} <= {*re.findall(r"^\[(.+)\]: https://", text, re.M)}
    released = [head for head in heads if head != "[Unreleased]"]
    assert [head for head in released if not re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", head)] == []
    assert released == sorted(released, key=lambda head: head.partition(" - ")[2], reverse=True)
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert {*re.findall(r"^### (.*)$", text, re.MULTILINE)} <= kinds


def test_the_notes_of_a_release_are_what_the_changelog_says_of_it() -> None:
    heads = {"[Unreleased]": "new", "[1.1.0] - 2027-02-01": "one", "[1.0.0] - 2027-01-01": "old"}
    text = "# Changelog\n\n" + "".join(f"## {head}\n\n{said}\n\n" for head, said in heads.items())
    text += "[Unreleased]: https://a\n[1.1.0]: https://b\n[1.0.0]: https://c\n"
    assert notes(text, "1.1.0") == "one\n"
    assert notes(text, "1.0.0") == "old\n"
    assert notes(text, "2.0.0rc1") == "new\n"  # a release candidate has no heading of its own
    with pytest.raises(LookupError, match=r"2\.0\.0"):
        notes(text, "2.0.0")


# -- what is published --------------------------------------------------------------------------------


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What is committed."""
    if not (ROOT / ".git").exists():
        pytest.skip("an unpacked sdist")
    subprocess.run(["git", "clone", "-q", ROOT, tmp_path / "clone"], check=True)
    return tmp_path / "clone"


@pytest.mark.slow
def test_an_sdist_has_what_git_knows_and_a_wheel_the_package_without_its_c(clone: Path) -> None:
    (clone / "token").touch()
    setup = [sys.executable, "-c", "from setuptools import setup; setup()", "-q"]
    made = ["sdist", "build_py", "--build-lib", "built"]
    subprocess.run([*setup, *made], cwd=clone, check=True, capture_output=True)
    known = set(subprocess.check_output(["git", "ls-files", "-z"], cwd=clone, text=True).split("\0")) - {""}
    with tarfile.open(next(clone.glob("dist/*.tar.gz"))) as packed:
        names = {one.name.partition("/")[2] for one in packed if one.isfile()}
    assert {name for name in names if ".egg-info/" not in name} == known | {"PKG-INFO", "setup.cfg"}
    package = {name for name in known if name.startswith("kpl_codec/")}
    shipped = {path.relative_to(clone / "built").as_posix() for path in clone.glob("built/**/*.*")}
    assert shipped == {name for name in package if Path(name).suffix not in (".pyx", ".pxi", ".h")}


@pytest.mark.slow
def test_the_test_of_a_wheel_finds_all_files_that_it_imports(tmp_path: Path) -> None:
    settings = (ROOT / "pyproject.toml").read_text()
    for name in re.findall(r'"([^"]+)"', settings.partition("test-sources = [")[2].partition("]")[0]):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, target)
    (tmp_path / "kpl_codec").symlink_to(ROOT / "kpl_codec")
    (tests,) = re.findall(r'^test-command = "python -m pytest (.*)"$', settings, re.MULTILINE)
    program = f"import sys, pytest; sys.path = [path for path in sys.path if path != {str(ROOT)!r}]\n"
    program += f"sys.exit(pytest.main([{tests!r}, '--collect-only']))"
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode in (0, 5), ran.stdout  # 5: without the compiled extension nothing is collected


@pytest.mark.slow
def test_the_workflow_makes_the_notes_and_the_vectors_of_a_release(clone: Path) -> None:
    steps = yaml.safe_load((GITHUB / "workflows/release.yml").read_text())["jobs"]["github"]["steps"]
    (script,) = (step["run"] for step in steps if step.get("name") == "Notes and vectors")
    tag = {"GITHUB_REF_NAME": "v1.0.0rc1"}
    subprocess.run(["bash", "-ec", script], cwd=clone, env={**os.environ, **tag}, check=True)
    assert len((clone / "notes.md").read_text()) > 100
    with tarfile.open(clone / "kpl-codec-vectors-1.0.0rc1.tar.gz") as packed:
        assert {path.name for path in (ROOT / "spec/vectors").glob("*.json")} <= {
            Path(name).name for name in packed.getnames()
        }


def test_files_name_tests_and_programs_that_are_there() -> None:
    """The commands of workflows, the Makefile, settings and CONTRIBUTING.md."""
    names = ("Makefile", ".ci/run", "pyproject.toml", "CONTRIBUTING.md")
    gone = []
    for file in (*GITHUB.glob("workflows/*.yml"), *(ROOT / name for name in names)):
        text = file.read_text()
        paths = set(re.findall(r"\b(?:tests|fuzz|spec)/[\w/.-]*\w", text)) - {"tests/ROOM"}
        gone += [(file.name, path) for path in paths if not list(ROOT.glob(f"{path}*"))]
        for module in re.findall(r"-m ((?:tests|fuzz|kpl_codec)[\w.]*)", text):
            parts = ROOT.joinpath(*module.split("."))
            if not (parts.with_suffix(".py").exists() or (parts / "__main__.py").exists()):
                gone.append((file.name, module))
    assert gone == []
