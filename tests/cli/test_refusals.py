"""What commands refuse: one line that says what, why and what mends it; nothing is written."""

from __future__ import annotations

import re
from itertools import cycle
from pathlib import Path

import pytest

from kpl_codec import __version__
from kpl_codec.cli.main import COMMANDS
from kpl_codec.cli.removed import REMOVED

from ..every import every
from .commands import LINES, PATH_LINES, run, words

#: What a command refuses, too.
WRONG = [
    "cat x --stream s",
    "cat x --follow",
    "cat $'not\\xffutf8'",
    "cat --stream orders --endpoint-url nonsense --region x",
    "cat --stream orders --profile nobody",
    "findings capture.json",
    "inspect",
    "inspect abcd",
    "inspect xyz!",
    "inspect abc",
    "inspect --stream s",
    "keys allocate 0",
    "keys allocate 2 --existing folder",
    "keys hash",
    "keys hash $'\\xff'",
    "keys hash --keys-from frame.bin",
    "keys allocate 1 --existing capture.json",
    "shards list --shards capture.json",
    "shards list --shards folder",
    "shards predict --shards shards.json",
    "validate capture.json --shards folder --output new2",
    "validate capture.json --shards shards.json --output capture.json",
    "validate capture.json --shards shards.json --output frame.bin/below",
    "validate --stream orders --output new2 --region x --endpoint-url http://127.0.0.1:1",
    "cat capture.json --limit -1",
    "",
    "nonsense",
    "demo nonsense",
    "keys",
    "validate x",
    "watch",
]
NO_FOLDER = "is no folder to write to: give s3://BUCKET/PREFIX, or a folder"
#: Commands that write to a folder, without the folder; places that are none.
WRITERS = (
    "validate capture.json --shards shards.json --output",
    "audit --produced put.jsonl --handled handled.parquet --output",
    "demo --output",
)
PLACES = (
    "s3:/bucket/checked",
    "S3://bucket/checked",
    "s3://",
    "gs://bucket/checked",
    "dbfs:/checked",
    "abfss://c@a.dfs.core.windows.net/checked",
    "https://bucket.s3.amazonaws.com/checked",
    "arn:aws:s3:::bucket/checked",
)
RESULTS = "; give the --output of kpl-codec validate"
#: What a command refuses, and a part of what it says.
REFUSED = [
    ("explain --nothing", "unknown option --nothing (see kpl-codec explain --help)"),
    ("findings nosuch", "cannot read nosuch: no such file or folder" + RESULTS),
    ("findings folder", "cannot read folder: it has no findings" + RESULTS),
    ("inspect folder", "cannot read folder: it is a folder, not a file"),
    (
        "inspect joined.bin",
        "joined.bin holds several aggregated records: the first ends at byte 45; kpl-codec cat and "
        "validate read each",
    ),
    ("demo --output frame.bin", "HERE/frame.bin: it is a file (name a new or empty folder)"),
    (
        "validate capture.json --shards shards.json --output /proc/x",
        "cannot write to /proc/x: no such file or folder",
    ),
    ("shards list --shards frame.bin", "`kpl-codec shards list --json` prints"),
    (
        "validate capture.json --shards shards.json --output results",
        "the folder is not empty (name another folder, or remove this one)",
    ),
    ("validate folder --shards shards.json --output new2", "there is no file in it"),
    ("validate capture.json --shards none.json --output new2", "malformed"),
    ("cat", "give either PATH (- for standard input), or --stream NAME"),
    ("validate --output c", "give either PATH (- for standard input), or --stream NAME"),
    ("watch --stream orders --since 5m", "--since needs --all"),
    ("validate a --shard-map b --output c", "did you mean --shards? (see kpl-codec validate --help)"),
    ("shards predict --key a --stream s", "unknown option --key; did you mean --keys-from?"),
    ("keys hash a --nothing", "unknown option --nothing (see kpl-codec keys hash --help)"),
    ("cat a --json", "unknown option --json (see kpl-codec cat --help)"),  # not --only
    ("-x", "unknown option -x (see kpl-codec --help)"),
    ("validat a", "unknown command validat; did you mean validate? (see kpl-codec --help)"),
    ("keys hasch", "unknown action hasch; did you mean hash? (see kpl-codec keys --help)"),
    (
        "cat a --since yesterday",
        "argument --since: 'yesterday' is not a time such as 2026-01-31T12:00:00Z, or 5m for five "
        "minutes ago; or TRIM_HORIZON, or LATEST (see kpl-codec cat --help)",
    ),
    ("watch --stream s --max-calls=0", "argument --max-calls: "),
    ("watch --stream s --sampling-rate=much", "argument --sampling-rate: "),
    ("watch --stream s --for=0s", "argument --for: "),
    ("watch --stream s --sampling-rate 1e-7", "is shorter than 0.01 s: give a higher rate"),
    ("watch --stream s --all --since 9999-01-01", "argument --since: '9999-01-01' is in the future"),
    (
        "shards list --stream orders --role-arn reader",
        "argument --role-arn: 'reader' is not a role such as arn:aws:iam::123456789012:role/NAME",
    ),
    (
        "cat --stream s --region x --endpoint-url y",
        "Invalid endpoint: y; give a URL such as http://local",
    ),
    ("shards list --stream arn:aws:s3:::bucket", "its ARN"),
    ("watch --once --stream 'a b'", "argument --stream: "),
    (
        "cat --stream arn:aws:kinesis:eu-west-1:123456789012:stream/orders --region us-east-1",
        "--region is us-east-1, but the stream is in eu-west-1",
    ),
    ("keys allocate --shards - --existing -", "standard input (-) can be read only once"),
    ("cat - --limit 1 -", "standard input (-) can be read only once"),
    ("cat capture.json --limit 1 ''", "argument PATH: it is empty"),
    ("inspect frame.bin --shard-id x", "--shard-id goes with --stream"),
    # Options that one beside them makes useless, or that contradict each other (ARG-4).
    ("cat capture.json --region x", "--region goes with --stream"),
    ("cat capture.json --endpoint-url http://x", "--endpoint-url goes with --stream"),
    ("keys hash a --profile x", "--profile goes with a path in S3"),
    ("shards list --shards shards.json --role-arn arn:aws:iam::123456789012:role/r", "--role-arn goes with "),
    ("validate --stream a --output c --distribution AUTO", "--distribution goes with --shards"),
    ("watch --stream a --all --sampling-rate 5%", "--sampling-rate does nothing with --all"),
    ("validate --stream a --output c --only numbers.txt --since 1h", "--since does nothing with --only"),
    ("cat capture.json --limit 1 --limit=2", "--limit is given twice"),
    ("cat capture.json --since 2026-01-01 --until 2025-01-01", "--until is not after --since"),
    ("cat --stream orders --follow --until 2025-01-01", "--until is not after --since"),
    ("inspect frame.bin --sequence-number 7", "--sequence-number goes with --stream, or with a capture"),
    (
        "audit --produced put.jsonl --handled handled.parquet --put-before 2999-01-01",
        "--put-before is in the future",
    ),
    *((line, "") for line in WRONG),
    *((line, f" {line.split()[-1]} was removed: {instead} (see ") for line, instead in REMOVED.items()),
    *((f"{line} {place}", NO_FOLDER) for line, place in zip(cycle(WRITERS), PLACES, strict=False)),
]


@pytest.mark.requirement("ARG-1", "ARG-4", "SPK-10", "SPK-19", "SPK-20", "SHD-2")
@every(("line", "part"), REFUSED)
def test_an_error_is_one_line_in_a_pipe_and_at_most_three_on_a_terminal(
    line: str, part: str, folder: Path
) -> None:
    files = set(folder.rglob("*"))
    status, out, text = run(line)
    assert (status, out) == (2, "")
    assert part.replace("HERE", str(folder)) in text
    assert re.fullmatch(r"kpl-codec: [^\n]+\n", text)
    assert not re.search(r"[A-Z]\w+Error\b", text), "a class of Python or botocore"
    lines = run(line, COLUMNS="100").err.splitlines()
    assert set(folder.rglob("*")) == files
    assert " ".join(map(str.strip, lines)) == text.strip()
    assert all(len(row) <= 100 or len(row.split()) == 1 for row in lines)  # (or a path)
    assert len(text.replace(str(folder), "/tmp/folder")) <= 290, "more than three lines"


@every("line", [line.words for line in (*LINES, *PATH_LINES)])
def test_a_path_that_is_not_there_is_named(line: str, folder: Path) -> None:
    """Of every argument that is read."""
    given = words(line)
    for at, word in enumerate(line.split()):
        if word.startswith("AT/") and given[at - 1] != "--output":
            status, out, err = run([*given[:at], "nosuch", *given[at + 1 :]])
            assert (status, out) == (2, "")
            assert err.startswith("kpl-codec: cannot read nosuch: no such file or folder")


def test_the_table_of_what_was_removed_goes_with_1_0() -> None:
    """kpl_codec/cli/removed.py, and its use in main.py."""
    assert re.match(r"0\.|1\.0\.0(a|b|rc)\d", __version__)


def test_every_command_refuses_something() -> None:
    assert COMMANDS.keys() <= {line.partition(" ")[0] for line, _ in REFUSED}


#: What is taken although it looks like something refused above.
TAKEN = [
    "cat capture.json --key a --key b",
    "findings results --kind hot-key --kind mixed-aggregate --json-lines --json-lines",
    "inspect capture.json --sequence-number 7",
    "validate capture.json --shards shards.json --quiet --output=new",
    "validate capture.json --shards shards.json --quiet --output=./s3:/new",
    "validate capture.json --shards shards.json --quiet --output=file:HERE/new",
    "validate --shards=~/here/shards.json ~/here/in --output=~/out --quiet",
]


def test_what_only_looks_wrong_is_taken(folder: Path, tmp_path: Path) -> None:
    """bash leaves the ~ of --output=~/out; the command replaces it."""
    for line in TAKEN:
        assert run(line.replace("HERE", f"{tmp_path}/uri"), HOME=str(tmp_path)).status != 2, line
    made = [folder / "s3:/new", tmp_path / "uri/new", tmp_path / "out"]
    assert all(place.is_dir() for place in made)
