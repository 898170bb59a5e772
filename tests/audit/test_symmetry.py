"""The result of an audit is a function of the rows that can be read and of what cannot: not of the order,
names and grouping of files, nor of the order of rows."""

from __future__ import annotations

import json
import random
import re
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kpl_codec.audit.audit_run import AuditError, audit
from kpl_codec.ledger.ledger import SUFFIX

from ..examples import examples
from .test_law import Folders


def members_of(data: bytes) -> list[bytes]:
    """The members of gzip in a file."""
    members = []
    while data:
        member = zlib.decompressobj(31)
        member.decompress(data)
        rest = member.unused_data
        members.append(data[: len(data) - len(rest)])
        data = rest
    return members


def set_apart(folders: Folders) -> None:
    """Tables of one folder that have the same bytes count once (AUD-40), whatever they are of: here each has
    other blank lines at its end."""
    for number, table in enumerate(sorted(folders.consumed.rglob("*.csv"))):
        table.write_bytes(table.read_bytes() + b"\n" * number)


def regroup(folders: Folders, chance: random.Random) -> None:
    """The same members, lines and rows in other files, with other names, in another order."""
    for side in (folders.produced, folders.consumed):
        members, lines, rows = list[bytes](), list[str](), list[str]()
        for file in sorted(side.iterdir()):
            if file.name.endswith(SUFFIX):
                members += members_of(file.read_bytes())
            elif file.suffix == ".csv":
                rows += filter(None, file.read_text().splitlines()[1:])
            else:
                lines += file.read_text().splitlines()
            file.unlink()
        files: dict[Path, list[bytes]] = {}

        def put(data: bytes, ending: str, files: dict[Path, list[bytes]] = files, side: Path = side) -> None:
            folder = chance.choice([side, side / "sub"])
            files.setdefault(folder / f"{chance.randrange(3)}{ending}", []).append(data)

        for parts in (members, lines, rows):
            chance.shuffle(parts)
        for member in members:
            put(member, chance.choice([SUFFIX, ".bin", ".log.gz"]))
        for line in lines:
            put(json.dumps({"log": line}).encode() if chance.random() < 0.5 else line.encode(), ".log")
        for row in rows:
            put(row.encode(), ".csv")
        for path, parts in files.items():
            path.parent.mkdir(exist_ok=True)
            head = [b"shard,sequence_number,sub_sequence_number"] if path.suffix == ".csv" else []
            text = path.suffix in (".csv", ".log")
            path.write_bytes(b"".join(part + b"\n" * text for part in head + parts))


def rename(folders: Folders, chance: random.Random) -> None:
    """The same files, of which each has a name that sorts elsewhere."""
    files = [file for side in (folders.produced, folders.consumed) for file in side.iterdir()]
    for number, file in enumerate(chance.sample(files, len(files))):
        file.rename(file.with_name(f"{number:03d}-{file.name}"))


def sums_and_findings(folders: Folders) -> tuple[Any, ...]:
    """What an audit says, without the names of files."""
    try:
        result = audit([str(folders.produced)], [str(folders.consumed)], stream="orders")
    except AuditError as error:
        return (error.code,)
    files = {file.name for side in (folders.produced, folders.consumed) for file in side.rglob("*.*")}
    facts = {name: value for name, value in result.facts.items() if name not in ("notes", "unreadable")}
    facts.pop("files")
    said = [*facts.pop("incomplete"), json.dumps(facts), *map(repr, result.findings)]
    for name in sorted(files, key=len, reverse=True):
        said = [text.replace(name, "FILE") for text in said]
    # (Which of several files with the same hole is named their names decide, and so whose row.)
    return tuple(sorted(re.sub(r"(cannot be read of FILE), row [\d,]+", r"\1", text) for text in said))


@pytest.mark.requirement("AUD-36")
@given(seed=st.integers(0, 2**32))
@example(seed=2421934772)  # two tables of the same rows
@settings(max_examples=examples(60))
def test_the_result_is_the_same_whatever_the_files_are(seed: int) -> None:
    with TemporaryDirectory() as scratch:
        folders = Folders(seed, Path(scratch))
        folders.write_log(spoiled=False)
        set_apart(folders)
        before = sums_and_findings(folders)
        regroup(folders, random.Random(seed))
        set_apart(folders)
        assert sums_and_findings(folders) == before


@pytest.mark.requirement("AUD-36")
@given(seed=st.integers(0, 2**32), happenings=st.lists(st.sampled_from(Folders.HAPPENINGS), max_size=3))
@example(seed=1530058312, happenings=[Folders.cut_table])  # two tables whose holes are of different rows
@settings(max_examples=examples(60))
def test_damaged_files_say_the_same_by_other_names(seed: int, happenings: list[Any]) -> None:
    with TemporaryDirectory() as scratch:
        folders = Folders(seed, Path(scratch))
        folders.write_log(spoiled=True)
        for happening in happenings:
            if files := folders.files():
                happening(folders, folders.chance.choice(files))
        before = sums_and_findings(folders)
        rename(folders, random.Random(seed))
        assert sums_and_findings(folders) == before
