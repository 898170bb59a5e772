"""``kpl-codec explain``: nothing that this project can say is left without an explanation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

import kpl_codec
from kpl_codec.aws_errors import _ROWS, OWN_CODES, advice_of
from kpl_codec.cli.explain import _MODULES, _OF_EXTRAS, error_classes, requirements
from kpl_codec.deaggregation.fingerprints import SIGNS, WRITERS
from kpl_codec.findings import KINDS
from kpl_codec.shards.placement import CAUSES
from tests.examples import share

from ..every import every
from ..test_errors import CLASSES
from .commands import run

SPEC = Path(__file__).parents[2] / "spec"
#: Never raised themselves: what is raised is below them.
BASES = {"DecodeError"}


def said(*argv: str, code: int = 0) -> str:
    ended = run(["explain", *argv])
    assert ended.status == code
    return ended.err if code else ended.out


def test_every_error_class_is_explained() -> None:
    ours = {kind.__name__: kind for kind in CLASSES}
    found = list(error_classes())
    assert {error.name for error in found} == ours.keys() - BASES
    modules = {kind.__module__.removeprefix("kpl_codec.") for kind in ours.values() if "todo" in dir(kind)}
    # Else it is known here, where all is imported, and nowhere else.
    assert modules <= {*_MODULES, *_OF_EXTRAS}
    for error in found:
        kind = ours[error.name]
        assert (error.concerns, error.todo, error.requirement) == (kind.concerns, kind.todo, kind.requirement)
        assert error.codes, error.name
        assert set(kind.__dict__.get("codes", ())) <= set(error.codes)
        assert set(get_args(get_type_hints(kind)["code"])) <= set(error.codes) or "code" in kind.__dict__
        assert error.concerns.endswith(".")
        assert error.todo.endswith(".")


def test_every_name_that_is_printed_is_explained() -> None:
    """Of findings, writers, causes, and codes of errors and of AWS, and requirements."""
    codes = {code for error in error_classes() for code in error.codes}
    names = (*WRITERS, *(sign.name for sign in SIGNS), *CAUSES, *KINDS, "ExpiredTokenException")
    for name in names[:: share()]:
        assert said(name).startswith((name, f"capture-{name}")), name
    for name in (*sorted(codes)[:: 4 * share()], *list(requirements())[:: 25 * share()]):
        assert said(name).strip(), name


def test_every_code_of_aws_is_explained_by_its_row_first() -> None:
    """What a class says of a code that it gives as an example holds for the class alone. A listing's code in
    small letters is explained by the class of the listing's errors."""
    codes = {code for code in _ROWS if not code.islower()}
    assert {"ProvisionedThroughputExceededException", "AccessDeniedException", "429"} <= codes
    classes = {code: error.name for error in error_classes() for code in error.codes if code in codes}
    assert len(classes) >= 4
    wrong = []
    for code in {*classes, *sorted(codes)[:: 4 * share()]}:
        advice = advice_of(code)
        own = f"{code} {'A code of kpl_codec' if code in OWN_CODES else 'An error code of AWS, or of boto3'}"
        first = f"{own}: {advice.means}. What to do: {advice.todo}."
        for name in (code, code.lower()) if code in classes else (code,):
            text = " ".join(said(name).split())
            if not text.startswith(first) or classes.get(code, "") not in text[len(first) :]:
                wrong.append(name)
    assert wrong == []


def test_every_chapter_of_the_spec_is_known() -> None:
    assert {rule.chapter for rule in requirements().values()} == {
        path.name for path in SPEC.glob("*.md") if "**" in path.read_text() and path.name[0].isdigit()
    }


def test_a_requirement_names_what_rests_on_it() -> None:
    out = said("frm-3")
    assert "The last 16 bytes MUST be the MD5 digest" in " ".join(out.split())
    assert "checksum-mismatch" in out
    assert "What to do" in out
    assert "FRM-3  spec/01-aggregated-record.md" in out


def test_without_a_name_all_are_listed() -> None:
    assert {row.split()[0] for row in said().splitlines()} > {*KINDS, *requirements()}


@every(
    ("names", "origin"),
    [
        (("ExpiredTokenException", "NoRegionError"), "An error code of AWS, or of boto3: "),
        (("DaemonException", "UserRecordFailedException"), "An exception of the KPL: "),
        (("ShutdownException", "BlockedOnParentShardException"), "An exception of the KCL: "),
        (tuple(OWN_CODES), "A code of kpl_codec: "),
    ],
)
def test_it_says_whose_a_name_is(names: tuple[str, ...], origin: str) -> None:
    assert [name for name in names if origin not in said(name)] == []


def test_every_code_that_our_modules_give_is_explained_as_ours() -> None:
    """A finding, of an error class, or in `OWN_CODES`. One is botocore's, given where it has raised it."""
    sources = [path for path in Path(kpl_codec.__file__).parent.rglob("*.py") if path.name != "aws_errors.py"]
    given = {
        code
        for path in sources
        for code in re.findall(r"""(?:\bcode=|\bFailure\()"([\w-]+)\"""", path.read_text())
    }
    of_errors = {code for error in error_classes(say_missing=False) for code in error.codes}
    findings = {kind.removeprefix("capture-") for kind in KINDS}
    assert given >= OWN_CODES
    assert given - of_errors - findings - OWN_CODES == {"SSLCertVerificationError"}


def test_what_is_no_name_is_not_looked_for() -> None:
    text = said("a line of a log", code=2)
    assert "nothing is called 'a line of a log'" in text
    assert "spec/guides/by-symptom.md" in text
    assert "did you mean checksum-mismatch?" in said("checksum-mismatsh", code=2)
