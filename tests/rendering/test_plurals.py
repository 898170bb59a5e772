"""One of a thing is not many: texts with a number take `plural`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kpl_codec
from kpl_codec.rendering.labels import plural

PACKAGE = Path(kpl_codec.__file__).parent
_COUNTED = "attempts|bytes|calls|files|findings|Kinesis records|polls|records|rows|slots|user records|vectors"
#: Texts with fields of an error, a `repr`, and numbers that are never 1.
EXCEPT = {
    "errors.py", "deaggregation/explanation.py", "format/message.py", "format/compression.py",
    "format/hash_keys.py", "format/nested.py", "producer/pending.py", "spark/source/write.py",
    "aws/fetch_by_sequence_number.py", "cli/demo.py",
}  # fmt: skip


def test_plural() -> None:
    assert [plural(n, "row") for n in (0, 1, 2_000)] == ["0 rows", "1 row", "2,000 rows"]
    assert plural(1, "row names", "rows name") == "1 row names"


@pytest.mark.parametrize(
    "path",
    [path for path in PACKAGE.rglob("*.py") if path.parts[len(PACKAGE.parts)] not in ("validate", "audit")],
)
def test_no_text_puts_a_number_before_a_plural(path: Path) -> None:
    if path.relative_to(PACKAGE).as_posix() not in EXCEPT:
        found = re.findall(rf"(?:\{{[^{{}}]*[^f{{}}]\}}|%d) (?:{_COUNTED})\b", path.read_text())
        assert not found
