"""kcl-rs on the decoding vectors, beside the Java KCL: what spec/12-implementations.md says of it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections import Counter

import pytest

import kpl_codec as kpl

from ..spec.vectors import REPOSITORY, load
from .conformance import grade

pytest.importorskip("kcl_rs")
pytestmark = [pytest.mark.slow, pytest.mark.server]

PAGE = (REPOSITORY / "spec" / "12-implementations.md").read_text()
Delivered = list[tuple[str, bytes]]


def of_the_kcl(data: bytes) -> Delivered:
    """What the Java KCL delivers of a frame, on the only shard of a stream."""
    frame = [kpl.KinesisRecord("outer", data, "1", "shardId-000000000000")]
    delivered = kpl.deaggregate(frame, "kcl", hash_key_range=kpl.ALL_HASH_KEYS)
    return [(record.partition_key or "", record.data) for record in delivered]


def test_kcl_rs_on_the_vectors() -> None:
    grades, beside = Counter[str](), Counter[str]()
    decoding = [vector for vector in load() if vector["kind"] == "decode"]
    frames = "".join(f"{vector['input']['data']}\n" for vector in decoding)
    command = [sys.executable, "-m", "tests.interop.program_kcl_rs"]
    for _ in range(8):  # one time in three kcl-rs itself ends with a segmentation fault, and gives no answers
        run = subprocess.run(command, input=frames, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
        if run.returncode != -signal.SIGSEGV:
            break
    run.check_returncode()
    for vector, line in zip(decoding, run.stdout.splitlines(), strict=True):
        answer = json.loads(line)
        grades[grade(vector, answer, ("partition_key", "data"))] += 1
        data = bytes.fromhex(vector["input"]["data"])
        raw, java = [("outer", data)], of_the_kcl(data)
        rows = answer.get("user_records", ())
        ours = raw if "plain" in answer else [(r["partition_key"], bytes.fromhex(r["data"])) for r in rows]
        how = "unopened" if ours == raw else "opened" if java == raw else "lost" if not ours else "more"
        beside["same" if ours == java else how] += 1
    columns = ("pass", "refused", "unopened", "accepted", "lost", "wrong", "failed")
    (row,) = re.findall(r"^\| kcl-rs .*?\| (.*) \|$", PAGE, re.MULTILINE)
    documented = dict(zip(columns, (int(cell.strip() or 0) for cell in row.split("|")), strict=True))
    assert {word: grades[word] for word in columns} == documented
    counts = [beside[how] for how in ("same", "lost", "unopened", "opened", "more")]
    words = r"For (\d+) of.* loses (\d+) that.* hands (\d+) on.* opens (\d+) that.* delivers (\d+) that Java"
    match = re.search(words, PAGE, re.DOTALL)
    assert match is not None
    assert counts == [int(count) for count in match.groups()]
