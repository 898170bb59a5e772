"""The headline accounts for everything in a capture: its numbers are those of what was put into it."""

from __future__ import annotations

import base64
import json
import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap
from kpl_codec.shards.stream_name import Stream
from kpl_codec.validate import LocalEngine, validate
from kpl_codec.validate.report.summary import counts
from tests.examples import examples

from .examples import frame

LISTED = [Shard(f"shardId-{i:012d}", keys) for i, keys in enumerate(ALL_HASH_KEYS.split(2))]
TWO = ShardMap(LISTED, stream=Stream("orders"))
SORTS = (
    "sound", "explicit", "plain", "misplaced", "expired-shard", "broken", "no-data", "damaged", "garbage",
    "nested", "encoded", "other-stream", "duplicate",
)  # fmt: skip


def user_records(rnd: random.Random, shard: str, count: int) -> list[kpl.UserRecord]:
    """``count`` user records whose hash keys are in the range of ``shard``."""
    keys = (f"k{rnd.randrange(10**6)}" for _ in iter(int, 1))
    fitting = (key for key in keys if TWO.shard_for(kpl.effective_hash_key(key)).shard_id == shard)
    return [kpl.UserRecord(next(fitting), b"data") for _ in range(count)]


def line(data: bytes | None, shard: str, number: int, stream: str = "orders", key: str = "k") -> str:
    record = {"SequenceNumber": str(10**55 + number), "PartitionKey": key}
    if data is not None:
        record["Data"] = base64.b64encode(data).decode()
    return json.dumps({"StreamName": stream, "ShardId": shard, "Records": [record]})


def capture(rnd: random.Random, sorts: list[str]) -> tuple[list[str], Counter[str]]:
    """The lines of a file, and what is in them: user records by what a KCL consumer gets, and what cannot be
    read by its sort."""
    lines: list[str] = []
    truth: Counter[str] = Counter()
    sound: list[tuple[str, int]] = []
    for number, sort in enumerate(sorts):
        count = rnd.randrange(1, 5)
        home, other = rnd.sample([shard.shard_id for shard in LISTED], 2)
        own = kpl.encode(user_records(rnd, home, count))
        if sort == "sound":
            sound.append((line(own, home, number), count))
            lines.append(sound[-1][0])
            truth["delivered"] += count
        elif sort == "plain":
            lines.append(line(b"plain", home, number))
            truth["delivered"] += 1
        elif sort == "explicit":
            # Put with an explicit hash key, which the capture does not have: a finding that is only a fact.
            lines.append(line(b"plain", home, number, key=user_records(rnd, other, 1)[0].partition_key))
            truth["delivered"] += 1
        elif sort == "misplaced":
            mixed = kpl.encode(user_records(rnd, home, count) + user_records(rnd, other, 1))
            lines.append(line(mixed, home, number))
            truth["dropped"] += count + 1
        elif sort == "expired-shard":
            lines.append(line(own, "shardId-000000000099", number))
            truth["unknown"] += count
        elif sort == "broken":
            lines.append(line(own[:-1] + bytes([own[-1] ^ 1]), home, number))
            truth["raw"] += 1
            truth["broken"] += 1
        elif sort == "no-data":
            lines.append(line(None, home, number))
            truth["places"] += 1
        elif sort == "damaged":  # an index behind the end of the table of partition keys
            message = b"\x0a\x01k\x1a\x05\x08\x07\x1a\x01y"
            lines.append(line(frame(message), home, number))
            truth["dropped"] += 1
            truth["damaged"] += 1
        elif sort == "garbage":
            lines.append('{"Records": [{"Sequ')
            truth["places"] += 1
        elif sort == "nested":
            lines.append(
                line(
                    kpl.encode([kpl.UserRecord(user_records(rnd, home, 1)[0].partition_key, own)]),
                    home,
                    number,
                )
            )
            truth["delivered"] += 1
            truth["hidden"] += 1
        elif sort == "encoded":
            lines.append(line(base64.b64encode(own), home, number))
            truth["delivered"] += 1
            truth["hidden"] += 1
        elif sort == "other-stream":
            lines.append(line(own, home, number, stream="payments"))
            truth["unknown"] += count
        elif sound:
            again, count = rnd.choice(sound)
            lines.append(again)
            truth["delivered"] += count
    truth["places"] += not lines  # an empty file is told, too
    return lines, truth


@pytest.mark.requirement("SPK-20")
@settings(max_examples=examples(25), deadline=None)
@example(["plain", "garbage"], 0)
@given(st.lists(st.sampled_from(SORTS), min_size=1, max_size=12), st.integers(0, 2**32))
def test_the_headline_accounts_for_all_that_was_there(sorts: list[str], seed: int) -> None:
    lines, truth = capture(random.Random(seed), sorts)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "in").mkdir()
        (Path(folder) / "in/a.jsonl").write_text("\n".join(lines))
        result = validate([f"{folder}/in"], TWO, output=f"{folder}/out", engine=LocalEngine(cores=1))
    facts = result.summary
    totals = facts["totals"]
    fates = {name: truth[name] for name in ("delivered", "dropped", "raw", "unknown")}
    # The sums meet, in the data and in the table.
    assert {name: totals["kcl"].get(name, 0) for name in fates} == fates
    assert totals["userRecords"] == sum(totals["kcl"].values()) == sum(fates.values())
    assert sum(totals["verdicts"].values()) == totals["userRecords"]
    assert sum(shard["userRecords"] for shard in facts["shards"]) == totals["userRecords"]
    assert sum(shard["dropped"] for shard in facts["shards"]) == totals["lostAtKcl"] == truth["dropped"]
    # (The KCL drops user records of damaged aggregates, too: those have no cause.)
    assert sum(cause["dropped"] for cause in facts["causes"]) == truth["dropped"] - truth["damaged"]
    rows = {count.label: count.value for count in counts(facts)}
    assert rows.get("broken frames", 0) == truth["broken"]
    assert rows.get("Not read", 0) == truth["places"]
    # And the headline names each number that is not 0.
    text = facts["verdict"].replace(",", "")
    for number, words in (
        (truth["dropped"], "A KCL consumer drops {} user record"),
        (truth["unknown"], "Whether a KCL consumer drops {} user record"),
        (truth["broken"], "{} Kinesis record"),
        (truth["places"], "{} file"),
        (truth["damaged"], "{} user record"),
        (truth["hidden"], "{} record"),
    ):
        assert number == 0 or words.format(number) in text, text
    if totals["kinesisRecords"] and not truth["delivered"] + truth["dropped"]:
        assert text.startswith("No user record could be checked. ")
    elif truth["unknown"] + truth["raw"] + truth["places"] and not truth["dropped"]:
        nothing = f"A KCL consumer drops none of the {truth['delivered']} user record"
        assert text.startswith(nothing) or not totals["kinesisRecords"]
    broken = truth["broken"] + truth["damaged"] + truth["hidden"]
    assert broken or facts["headline"] != "Broken records"
    assert totals["kinesisRecords"] or "nothing is known" in text
    assert any(truth[name] for name in truth if name != "delivered") or "cannot" not in text
