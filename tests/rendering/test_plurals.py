"""One of a thing is not many: texts with a number take `plural`."""

from __future__ import annotations

import re
from pathlib import Path

import kpl_codec
from kpl_codec.rendering.labels import plural

from ..every import every

PACKAGE = Path(kpl_codec.__file__).parent
_COUNTED = (
    "attempts|bytes|calls|characters|files|findings|Kinesis records|open shards|polls|records|rows|slots|"
    "user records|values|vectors"
)
#: Numbers that are never 1.
_LIMITS = r"_?[A-Z]|self\._max_size\}"
#: Modules whose texts have fields of an error, a `repr`, or numbers that are never 1.
EXCEPT = {
    "errors.py", "deaggregation/explanation.py", "format/message.py", "format/compression.py",
    "format/hash_keys.py", "format/nested.py", "producer/mailbox.py", "producer/record.py",
    "spark/source/write.py",
    "aws/fetch_by_sequence_number.py", "testing/demo_command.py",
}  # fmt: skip


def test_plural() -> None:
    assert [plural(n, "row") for n in (0, 1, 2_000)] == ["0 rows", "1 row", "2,000 rows"]
    assert plural(1, "row names", "rows name") == "1 row names"


MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


@every("name", MODULES)
def test_no_text_puts_a_number_before_a_plural(name: str) -> None:
    path = PACKAGE / name
    if name not in EXCEPT:
        found = re.findall(rf"(?:\{{(?!{_LIMITS})[^{{}}]*[^f{{}}]\}}|%d) (?:{_COUNTED})\b", path.read_text())
        assert not found
