"""``kpl-codec explain``: nothing that this project can say is left without an explanation."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import get_args, get_type_hints

import pytest

import kpl_codec
from kpl_codec.cli.explain import _MODULES, _OF_EXTRAS, error_classes, requirements, symptoms
from kpl_codec.cli.main import main
from kpl_codec.errors import KplError
from kpl_codec.findings import KINDS
from tests.examples import share

SPEC = Path(__file__).parents[2] / "spec"
#: Never raised themselves: what is raised is below them.
BASES = {"DecodeError"}


def run(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> str:
    assert main(["explain", *argv]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def below(kind: type[KplError]) -> Iterator[type[KplError]]:
    for one in kind.__subclasses__():
        yield one
        yield from below(one)


def test_every_error_class_is_explained() -> None:
    for module in walk_packages(kpl_codec.__path__, "kpl_codec."):
        program = module.name.rpartition(".")[2] in ("__main__", "worker", "job")
        if not program and ".testing" not in module.name:
            import_module(module.name)
    ours = {kind.__name__: kind for kind in below(KplError) if kind.__module__.startswith("kpl_codec.")}
    found = list(error_classes())
    assert {error.name for error in found} == ours.keys() - BASES
    modules = {kind.__module__.removeprefix("kpl_codec.") for kind in ours.values() if "todo" in dir(kind)}
    assert modules <= {
        *_MODULES,
        *_OF_EXTRAS,
    }  # else it is known here, where all is imported, and nowhere else
    for error in found:
        kind = ours[error.name]
        assert (error.concerns, error.todo, error.requirement) == (kind.concerns, kind.todo, kind.requirement)
        assert error.codes, error.name
        assert set(kind.__dict__.get("codes", ())) <= set(error.codes)
        assert set(get_args(get_type_hints(kind)["code"])) <= set(error.codes) or "code" in kind.__dict__
        assert error.concerns.endswith(".")
        assert error.todo.endswith(".")


def test_every_code_kind_and_requirement_has_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    codes = {code for error in error_classes() for code in error.codes}
    step = 4 * share()
    for name in (*sorted(codes)[::step], *list(KINDS)[::step], *list(requirements())[:: 25 * share()]):
        assert run(capsys, name).strip(), name


def test_every_chapter_of_the_spec_is_known() -> None:
    assert {rule.chapter for rule in requirements().values()} == {
        path.name for path in SPEC.glob("*.md") if "**" in path.read_text() and path.name[0].isdigit()
    }


def test_a_requirement_names_what_rests_on_it(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "frm-3")
    assert "The last 16 bytes MUST be the MD5 digest" in " ".join(out.split())
    assert "checksum-mismatch" in out
    assert "What to do" in out
    assert "FRM-3  spec/01-aggregated-record.md" in out


def test_without_a_code_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    listed = {row.split()[0] for row in run(capsys).splitlines()}
    assert listed > {*KINDS, *requirements()}


PLAIN = r"Data begins with \xf3\x89\x9a\xc2, or is garbage, or cannot be decoded"
BASE64 = "Data begins with 84mawg"
SCHEMA = r"Data begins with \x03\x00 or \x03\x05, and then 16 odd bytes"
TWICE = "User records arrive twice (duplicates), or out of order"
BOTO = "NoRegionError, NoCredentialsError, AccessDeniedException and others of boto3"
READING = "ProvisionedThroughputExceededException while reading"
CALL = "botocore.errorfactory.ClientError: An error occurred"
UNDELIVERED = "user record not delivered: expired (...), or refused, closed, dropped"
LEDGER = "the ledger of ... cannot be written to ... in the log"
FAILED = "PutRecords failed: ReadTimeoutError (or another code) in the log of a producer"
LOGGED = "2026-11-26 12:00:00,123 ERROR kpl_codec.producer"


@pytest.mark.parametrize(
    ("text", "best"),
    [
        ("nested aggregate", "nested-aggregate"),
        ("empty", "capture-empty"),
        ("UnicodeDecodeError", PLAIN),
        (
            "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xf3 in position 0: invalid byte",
            PLAIN,
        ),
        ("F3899AC2", PLAIN),
        ("f3 89 9a c2 0a 01", PLAIN),
        (r"b'\xf3\x89\x9a\xc2\n\x01a'", PLAIN),
        ("84mawgoBYRABGgMIABoDCAEa", BASE64),
        ('{"Data": "84mawgoBYRABGgMIABoDCAEa", "PartitionKey": "a"}', BASE64),
        ("my consumer gets binary garbage that starts with f3 89 9a c2", PLAIN),
        ("<Buffer f3 89 9a c2 0a 03 63 2d 30 ... 7 more bytes>", PLAIN),
        ("Uint8Array(62) [ 243, 137, 154, 194, 10", PLAIN),
        ("[-13, -119, -102, -62, 10, 3", PLAIN),
        ("0xf3 0x89 0x9a 0xc2 0x0a", PLAIN),
        ("java.nio.charset.MalformedInputException: Input length = 1", PLAIN),
        ("Unexpected exception during deaggregation, record was: ...", "The KCL logs"),
        ("Task timed out after 60.00 seconds", "A Lambda function times out"),
        ("Failed records disappear in Lambda", "Failed records disappear in Lambda"),
        ("other-key", "other-key"),
        ("kpl", "kpl"),
        ("plain", "plain"),
        ("ODRtYXdnb0JZ", BASE64),
        (r"\x03\x05\x12", SCHEMA),
        ("AwC3tKfwnJZOSqaH", SCHEMA),
        (
            "its first 100 bytes are a sound aggregated record",
            '"its first N bytes are a sound aggregated record"',
        ),
        (
            "kpl_codec.errors.IndexOutOfTable: index 9 is outside partition_key_table, whose length is 1 "
            "(at byte 5) [MSG-7]",
            "IndexOutOfTable",
        ),
        ("shard shardId-000000000007 is not in the map [SHD-4]", "SHD-4"),
        ("the producer holds 5000 user records (99999 bytes) and takes no more", "ProducerFull"),
        ("user record not delivered: expired (RequestTimeout) after 12 attempts", UNDELIVERED),
        (f"{LOGGED}: 500 user records not delivered: refused (ResourceNotFoundException)", UNDELIVERED),
        ("1 user record not delivered: closed (no-answer)", UNDELIVERED),
        (f"{LOGGED} the ledger of p1 cannot be written to /a/b, and is tried again: No space left", LEDGER),
        (f"{LOGGED} PutRecords failed: ReadTimeoutError", FAILED),
        ("1 of 11 user records are defective: checksum-mismatch (1)", "checksum-mismatch"),
        ("ProvisionedThroughputExceededException", READING),
        (
            f"{CALL} (ProvisionedThroughputExceededException) when calling the GetRecords operation: "
            "Rate exceeded for shard shardId-000000000000 in stream orders under account 123456789012.",
            READING,
        ),
        (
            f"{CALL} (ExpiredIteratorException) when calling the GetRecords operation: Iterator expired.",
            "ExpiredIteratorException",
        ),
        (
            f"{CALL} (ResourceNotFoundException) when calling the GetRecords operation: Stream orders "
            "under account 123456789012 not found.",
            BOTO,
        ),
        ("botocore.exceptions.NoRegionError: You must specify a region.", BOTO),
        ("You must specify a region", BOTO),
        ('Could not connect to the endpoint URL: "https://kinesis.eu-west-1.amazonaws.com/"', BOTO),
        ("No module named 'six'", "ModuleNotFoundError: No module named 'six' from aws_kinesis_agg"),
    ],
)
def test_what_people_paste_finds_the_right_section_first(
    text: str, best: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = run(capsys, text)
    assert " ".join(shown.split()).startswith(best)
    assert len([row for row in shown.splitlines() if row and not row.startswith(" ")]) <= 10


def test_a_section_is_shown_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, "UnicodeDecodeError")
    assert (
        """Deaggregate it:

    import kpl_codec as kpl

    data = """
        in shown
    )
    assert r"b'\xf3\x89\x9a\xc2' True b'" in shown
    assert "spec/guides/lambda.md" in run(capsys, "Task timed out after 3.00"), "where a link leads"
    assert "<!--" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "banana",
        "banana kinesis",
        "records never arrive",
        "out of order, and late",
        "KeyError: 'kinesis'",
        "AttributeError: 'Record' object has no attribute 'sub_sequence_number'",
        "java.util.concurrent.TimeoutException: a worker is empty",
        "at 03:05:12 on 03-05-2026 with 0305 records",
        "a" * 100_000,
    ],
)
def test_what_nothing_is_about_is_no_guess(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", text]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("kpl-codec: nothing is about ")
    assert TWICE in captured.out, "the headings of the page by symptom"


def test_every_sign_finds_its_own_section_first() -> None:
    sections = symptoms()
    signs = [(sign, section.title) for section in sections for sign in section.signs]
    assert len(signs) > 30
    for sign, title in signs:
        text = f"2026-11-27 ERROR in orders-42: {sign}, and goes on"
        if sign[0] == "=" or len(sign) == len("0x0300"):
            text = sign[1:] if sign[0] == "=" else f"{sign} 0xb7"
        found = [one.title for one in sections if one.is_in(text)]
        assert title in found, sign


def test_without_extras_it_says_what_it_leaves_out() -> None:
    code = "import sys; sys.modules.update(dict.fromkeys(('pyarrow', 'botocore', 'boto3', 'pyspark')))\n"
    code += "from kpl_codec.cli.main import main; sys.exit(main(['explain']))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "checksum-mismatch" in run.stdout
    assert "errors of what needs botocore, pyarrow" in run.stderr


@pytest.mark.slow
def test_it_needs_no_sources(tmp_path: Path) -> None:
    """Of a package that is installed as bytecode alone."""
    compiled = shutil.copytree(
        Path(kpl_codec.__file__).parent, tmp_path / "kpl_codec", ignore=shutil.ignore_patterns("__pycache__")
    )
    compileall.compile_dir(compiled, quiet=2, legacy=True)
    for source in compiled.rglob("*.py"):
        source.unlink()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for name in ("no-data-source", "checksum-mismatch", "FRM-3"):
        code = "import sys, kpl_codec; from kpl_codec.cli.main import main; "
        code += f"print(kpl_codec.__file__); sys.exit(main(['explain', '{name}']))"
        command = [sys.executable, "-c", code]
        run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        assert run.stdout.startswith(str(tmp_path))
        assert "What to do" in run.stdout
