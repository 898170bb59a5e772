"""The table of commands: how each is called on a small input. The tests of this folder walk it, each under a
condition of its own: in a pipe, on a terminal, with hostile text, in S3, without packages, ..."""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa

from kpl_codec import ShardMap, UserRecord, encode
from kpl_codec.captures.files import RESULTS, Location
from kpl_codec.cli.main import _parser, main
from kpl_codec.findings import Finding
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.ledger.ledger import Ledger
from kpl_codec.shards.shard import Shard
from kpl_codec.validate.scan import findings_batch

from ..audit.model import table_of

#: Escape sequences (also as C1), a bell, a return, other ends of lines, a text that runs backwards, and a
#: bare delete.
HOSTILE = "a\x1b[2J\x1b]0;t\x07\x9b31m\r\x85\u2028\u2029\u202ex\u2066\x7f"
#: What rewrites a terminal.
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
SHARDS = ("shardId-000000000000", "shardId-000000000001")


class Line(NamedTuple):
    """``words``: AT stands for the folder of `write_inputs` and `write_results`, NUMBER for a sequence
    number. ``needs``: the extras without which it does not begin."""

    words: str
    status: int = 0
    needs: str = ""


#: On files of this machine, or in S3. (The demo starts a server: test_demo.py.)
LINES = [
    Line("audit --produced AT/put.jsonl --handled AT/handled.parquet", 1, "cli,aws"),
    Line(
        "audit --produced AT/put.jsonl --handled AT/handled.parquet --output AT/audit/",
        1,
        "cli,aws",
    ),
    Line("cat AT/in/", 1, "cli"),
    Line("cat AT/frame.json", 0, "cli"),
    Line("explain"),
    Line("explain mixed-aggregate"),
    Line("explain FRM-3"),
    Line("explain AccessDeniedException"),
    Line("findings AT/results/", 1, "cli"),
    Line("findings AT/results/ --kind mixed-aggregate", 1, "cli"),
    Line("inspect AT/frame.bin"),
    Line("inspect AT/broken.bin", 1),
    Line("inspect AT/in/1.json --sequence-number 9", 1, "cli"),
    Line("keys allocate 2 --existing AT/keys.txt"),
    Line("keys allocate 2 --shards AT/shards.json"),
    Line("keys hash a"),
    Line("keys hash --keys-from AT/keys.txt"),
    Line("shards list --shards AT/split.json"),
    Line("shards predict --shards AT/shards.json --keys-from AT/keys.txt"),
    Line("validate AT/in/ --shards AT/shards.json --output AT/new/ --quiet", 1, "cli"),
]
#: More lines with a path. They print nothing.
PATH_LINES = [
    Line("cat --stream orders --only AT/shards.json", 2),
    Line("validate --stream orders --only AT/shards.json --output AT/new/", 2),
]
#: On a stream, which is named behind them.
STREAM_LINES = [
    Line("cat --limit 1", 0, "cli,aws"),
    Line("cat --follow --since 1h --limit 1", 0, "cli,aws"),
    Line(f"inspect --shard-id {SHARDS[0]} --sequence-number NUMBER", 0, "cli,aws"),
    Line("keys allocate", 0, "cli,aws"),
    Line("shards list", 0, "cli,aws"),
    Line("shards predict a", 0, "cli,aws"),
    Line("watch --once", 0, "cli,aws"),
    Line("watch --all --since 1h --once", 0, "cli,aws"),
]


def words(line: str, place: str = "") -> list[str]:
    """A line as bash hands it over, bytes that are no UTF-8 included. ``place``: what AT stands for; else the
    folder in which the command runs."""
    line = line.replace("AT/", f"{place}/" if place else "")
    return [word.removeprefix("$").replace("\\xff", "\udcff") for word in shlex.split(line)]


class Ended(NamedTuple):
    status: int
    out: str
    err: str


def run(
    line: str | list[str],
    *,
    stdin: bytes = b"",
    stdout: Any = "",
    stderr: Any = "",
    encoding: str = "utf-8",
    **environment: str,
) -> Ended:
    """Run a command in this process, and in its folder, without what an earlier run of the line has written.
    ``stdout``, ``stderr``: other files than those whose text is in `Ended`; None: closed by the shell."""
    given = words(line) if isinstance(line, str) else line
    for made in ("new", "audit"):
        shutil.rmtree(made, ignore_errors=True)
    streams = {"stdin": io.TextIOWrapper(io.BytesIO(stdin)), "stdout": stdout, "stderr": stderr}
    for name in ("stdout", "stderr"):
        if streams[name] == "":
            streams[name] = io.TextIOWrapper(io.BytesIO(), encoding)
    with mock.patch.multiple(sys, **streams), mock.patch.dict(os.environ, environment):
        try:
            status = main(given)
        except SystemExit as ended:
            status = int(ended.code or 0)
        sys.stdout.flush()
    out = streams["stdout"].buffer.getvalue().decode(encoding) if stdout == "" else ""
    err = streams["stderr"].buffer.getvalue().decode(encoding) if stderr == "" else ""
    return Ended(status, out, err)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """``parser`` and those of its commands and their actions."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)


def parser_of(line: str) -> argparse.ArgumentParser:
    """The parser of a line's command, or of its action."""
    given = line.split()
    name = " ".join(given[: 2 if given[0] in ("keys", "shards") else 1])
    return next(one for one in parsers(_parser(given)) if one.prog == f"kpl-codec {name}")


def with_json(lines: list[Line]) -> list[str]:
    """The lines whose commands take --json or --json-lines, with it."""
    found = []
    for line in lines:
        parser = parser_of(line.words)
        for option in ("--json", "--json-lines"):
            if option in parser._option_string_actions:
                name = parser.prog.removeprefix("kpl-codec ")
                found.append(f"{name} {option}{line.words.removeprefix(name)}")
    return found


def ledger_of(records: dict[str, bytes]) -> str:
    """The lines of a producer's ledger, by sequence number."""
    lines: list[str] = []
    writer = Ledger(lines.append).writer("orders")
    for number, data in records.items():
        writer.put(SHARDS[0], number, partition_key="a", data=data)
    writer.close()
    return "\n".join((*lines, ""))


def write_findings(results: Path, *parts: list[Finding]) -> None:
    """Results with these findings alone, each list a file, as the tasks of validate leave them."""
    (results / "findings").mkdir()
    for number, part in enumerate(parts):
        table = pa.Table.from_batches([findings_batch(part)])
        file = Location(results / f"findings/part-{number}.parquet")
        file.write_table(table, RESULTS, f"one run/findings/{number}")
    summary = {"rows": {"findings": sum(map(len, parts))}, "run": "one run"}
    (results / "summary.json").write_text(json.dumps(summary))


@cache
def _put(frame: bytes) -> str:
    """The ledger of the first two records: each has an id, so that a second is another."""
    return ledger_of({"7": frame, "8": b"plain"})


def write_inputs(place: Location | Path, foreign: str = "") -> None:
    """What the lines read, but for results: captures with a sound aggregate, one that the KCL drops, a plain
    record and a broken frame; the map of their two shards, and one of a split.

    ``foreign``: more text in the keys, names, sequence numbers and shard ids."""
    place = Location(place)
    ranges = ALL_HASH_KEYS.split(2)
    shards = [f"{shard}{foreign}" for shard in SHARDS]
    stream, key = f"orders{foreign}", f"a{foreign}"
    own = [Shard(*pair, starting_sequence_number="1") for pair in zip(shards, ranges, strict=True)]
    parent = Shard(shards[0], ALL_HASH_KEYS, ending_sequence_number="9")
    split = [parent, *(Shard(f"shardId-00000000000{n}", held) for n, held in enumerate(ranges, 1))]
    frame = encode([UserRecord(key, b"1"), UserRecord("b", b"2" + foreign.encode(), "7")])
    mixed = encode([UserRecord(f"customer-{n}{foreign}", b"%d" % n) for n in range(20)])
    broken = frame[:-1] + bytes([frame[-1] ^ 1])

    def answer(shard: str, *records: bytes) -> bytes:
        """What GetRecords answers, the first with sequence number 7."""
        rows = [
            {
                "SequenceNumber": f"{number}{foreign}",
                "PartitionKey": key,
                "Data": base64.b64encode(data).decode(),
            }
            for number, data in enumerate(records, 7)
        ]
        return json.dumps({"StreamName": stream, "ShardId": shard, "Records": rows}).encode()

    files = {
        "shards.json": ShardMap(own).to_json().encode(),
        "split.json": ShardMap(split).to_json().encode(),
        "frame.bin": frame,
        "broken.bin": broken,
        "joined.bin": frame + frame,
        "capture.json": answer(shards[0], frame, broken),
        "in/0.json": answer(shards[0], frame, b"plain", mixed),
        "in/1.json": answer(shards[1], b"plain", b"plain", broken),
        "frame.json": answer(shards[0], frame),
        "none.json": b'{"Records": []}',
        "keys.txt": b"17\n4\n",
        "put.jsonl": _put(frame).encode(),
        "handled.parquet": table_of([(SHARDS[0], "7", 0), (SHARDS[0], "8", 0)]),
    }
    if "://" not in str(place):
        Path(str(place), "in").mkdir()
    for name, content in files.items():
        (place / name).write(content)


def write_results(place: Location | Path, capture: str = "in", output: str = "results") -> int:
    """The results of validating ``capture``, a name of `write_inputs`; gives the command's status."""
    line = f"validate AT/{capture} --shards AT/shards.json --output AT/{output} --quiet"
    return main(words(line, str(place)))
