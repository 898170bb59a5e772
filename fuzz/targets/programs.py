"""Other programs' answers to the vectors.

An input is what a program prints, a line for each answer; or JSON {"answers": [...]}.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from kpl_codec.conformance.grading import GRADES, run
from kpl_codec.conformance.program import ProgramError

from .. import corpus
from .target import Target, dumped, loaded, repeated

_VECTORS = [vector for vector in corpus.vectors() if len(json.dumps(vector)) < 600][::40]


def programs(given: bytes) -> None:
    """Every vector that is asked gets one grade, whatever a program prints; or ProgramError."""
    value = loaded(given)
    answers = given
    with tempfile.TemporaryDirectory(prefix="kpl-codec-fuzz-") as folder:
        if isinstance(value, dict) and "answers" in value:
            found = value["answers"]
            lines = found if isinstance(found, list) else [found]
            answers = "".join(json.dumps(line) + "\n" for line in lines).encode()
        printed = Path(folder, "printed")
        printed.write_bytes(answers)
        try:
            # A program that does not wait for questions: it prints everything at once, and ends.
            result = run(["cat", str(printed)], _VECTORS, timeout=5.0)
        except ProgramError as error:
            assert str(error)
            return
    assert len(result.grades) + result.unsupported == len(_VECTORS)
    for grade in result.grades:
        assert grade.grade in GRADES
        assert "hang" not in grade.detail


def _seeds() -> list[bytes]:
    hello = {"name": "n", "version": "1", "ops": sorted({vector["kind"] for vector in _VECTORS})}
    answers = [hello, *({"id": vector["id"], "error": {"code": "e"}} for vector in _VECTORS)]
    rows = [{"id": vector["id"], "user_records": [], "rows": []} for vector in _VECTORS]
    return [
        "\n".join(map(json.dumps, answers)).encode(),
        "\n".join(map(json.dumps, [hello, *rows])).encode(),
        *dumped({"answers": [hello, *({**v, **v["input"]} for v in _VECTORS)]}),
        json.dumps(hello).encode(),
    ]


TARGETS = {
    "programs": Target(
        programs,
        _seeds,
        {
            "lines": repeated(b'{"id":null}\n', head=b'{"name":"n","ops":["decode"]}\n'),
            "open brackets": repeated(b"["),
        },
        json=True,
    ),
}
