"""Other programs and the files that go with them: answers to the vectors, the KPL's settings.

An input of `programs` is what a program prints, a line for each answer; or JSON {"answers": [...]}. One of
`properties` is the KPL's configuration file.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path

from kpl_codec.conformance.grading import GRADES, run
from kpl_codec.conformance.program import ProgramError
from kpl_codec.producer import ConfigError, ProducerConfig

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


def properties(given: bytes) -> None:
    """The settings of a KPL configuration file, or ConfigError that names the setting."""
    text = given.decode("utf-8", "replace")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it names settings that have no meaning here
            config = ProducerConfig.from_kpl_properties(text)
            assert config == ProducerConfig.from_kpl_properties(text + "\n# comment")
    except ConfigError as error:
        assert error.setting in str(error) or repr(error.setting) in str(error)


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


_SETTINGS = [
    b"# comment\nRecordMaxBufferedTime = 100\nRecordTtl: 30000\n",
    b"AggregationEnabled true\nCollectionMaxCount=\\\n  500\nRegion=eu-west-1",
    b"RateLimit=0\n",
    b"NoSuchName=1",
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
    "properties": Target(
        properties,
        lambda: _SETTINGS,
        {
            "lines": repeated(b"RecordTtl=30000\n"),
            "continued": repeated(b"\\\n", head=b"Region="),
            "blanks": repeated(b" ", head=b"Region"),
            "no value": repeated(b"a", head=b"RecordTtl="),
        },
    ),
}
