"""The headline accounts for everything in a capture: its numbers are those of what was put into it."""

from __future__ import annotations

import base64
import json
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from fuzz.invariants import frame
from kpl_codec.captures import Location
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap
from kpl_codec.shards.stream_name import Stream
from kpl_codec.validate import LocalEngine, validate
from kpl_codec.validate.report.summary import counts
from kpl_codec.validate.results import check_whole
from tests.every import every
from tests.examples import examples

LISTED = [Shard(f"shardId-{i:012d}", keys) for i, keys in enumerate(ALL_HASH_KEYS.split(2))]
TWO = ShardMap(LISTED, stream=Stream("orders"))
SORTS = (
    "sound", "explicit", "plain", "misplaced", "expired-shard", "broken", "no-data", "no-number", "damaged",
    "opened", "opened, no data", "garbage", "nested", "encoded", "other-stream", "duplicate",
)  # fmt: skip


def user_records(rnd: random.Random, shard: str, count: int) -> list[kpl.UserRecord]:
    """``count`` user records whose hash keys are in the range of ``shard``."""
    keys = (f"k{rnd.randrange(10**6)}" for _ in iter(int, 1))
    fitting = (key for key in keys if TWO.shard_for(kpl.effective_hash_key(key)).shard_id == shard)
    return [kpl.UserRecord(next(fitting), b"data") for _ in range(count)]


def line(
    data: bytes | None, shard: str, number: int, stream: str = "orders", key: str = "k", **more: Any
) -> str:
    record = {"SequenceNumber": str(10**55 + number), "PartitionKey": key, **more}
    if data is not None:
        record["Data"] = base64.b64encode(data).decode()
    return json.dumps({"StreamName": stream, "ShardId": shard, "Records": [record]})


def of_sort(sort: str, rnd: random.Random, number: int) -> tuple[str, dict[str, int]]:
    """A line of a file, and what is in it: user records by what a KCL consumer gets, and what cannot be read
    by its sort."""
    count = rnd.randrange(1, 5)
    home, other = rnd.sample([*TWO], 2)
    users = user_records(rnd, home, count)
    own = kpl.encode(users)
    if sort == "plain":
        return line(b"plain", home, number), {"delivered": 1}
    if sort == "explicit":
        # Put with an explicit hash key, which the capture does not have: a finding that is only a fact.
        key = user_records(rnd, other, 1)[0].partition_key
        return line(b"plain", home, number, key=key), {"delivered": 1}
    if sort == "misplaced":
        mixed = kpl.encode([*users, *user_records(rnd, other, 1)])
        return line(mixed, home, number), {"dropped": count + 1}
    if sort == "expired-shard":
        return line(own, "shardId-000000000099", number), {"unknown": count}
    if sort == "other-stream":
        return line(own, home, number, stream="payments"), {"unknown": count}
    if sort == "broken":
        return line(own[:-1] + bytes([own[-1] ^ 1]), home, number), {"raw": 1, "broken": 1}
    if sort == "no-data":
        return line(None, home, number), {"places": 1}
    if sort == "no-number":
        return line(own, home, number, SequenceNumber=None), {"places": 1}
    if sort == "opened":
        return line(b"plain", home, number, SubSequenceNumber=0), {"delivered": 1}
    if sort == "opened, no data":
        return line(None, home, number, SubSequenceNumber=0), {"places": 1}
    if sort == "damaged":  # an index behind the end of the table of partition keys
        message = b"\x0a\x01k\x1a\x05\x08\x07\x1a\x01y"
        return line(frame(message), home, number), {"dropped": 1, "damaged": 1}
    if sort == "garbage":
        return '{"Records": [{"Sequ', {"places": 1}
    if sort == "nested":
        outer = kpl.encode([kpl.UserRecord(users[0].partition_key, own)])
        return line(outer, home, number), {"delivered": 1, "hidden": 1}
    if sort == "encoded":
        return line(base64.b64encode(own), home, number), {"delivered": 1, "hidden": 1}
    return line(own, home, number), {"delivered": count}


@pytest.mark.requirement("SPK-18", "SPK-21", "ACC-1", "ACC-4", "ACC-11")
@settings(max_examples=examples(25), deadline=None)
@example(["plain", "garbage"], 0)
@given(st.lists(st.sampled_from(SORTS), min_size=1, max_size=12), st.integers(0, 2**32))
def test_the_headline_accounts_for_all_that_was_there(sorts: list[str], seed: int) -> None:
    rnd, truth = random.Random(seed), Counter[str]()
    lines: list[str] = []
    sound: list[tuple[str, dict[str, int]]] = []
    for number, sort in enumerate(sorts):
        if sort == "duplicate" and not sound:
            continue
        text, holds = rnd.choice(sound) if sort == "duplicate" else of_sort(sort, rnd, number)
        if sort == "sound":
            sound.append((text, holds))
        lines.append(text)
        truth.update(holds)
    truth["places"] += not lines  # an empty file is told, too
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "in").mkdir()
        (Path(folder) / "in/a.jsonl").write_text("\n".join(lines))
        result = validate([f"{folder}/in"], TWO, output=f"{folder}/out", engine=LocalEngine(cores=1))
        check_whole(Location(f"{folder}/out"), "findings", "user-records")
    facts = result.summary
    totals = facts["totals"]
    by_kcl = {name: truth[name] for name in ("delivered", "dropped", "raw", "unknown")}
    # The sums meet, in the data and in the table.
    assert {name: totals["kcl"].get(name, 0) for name in by_kcl} == by_kcl
    assert totals["userRecords"] == sum(totals["kcl"].values()) == sum(by_kcl.values())
    assert sum(totals["verdicts"].values()) == totals["userRecords"]
    assert sum(shard["userRecords"] for shard in facts["shards"]) == totals["userRecords"]
    assert sum(shard["dropped"] for shard in facts["shards"]) == totals["lostAtKcl"] == truth["dropped"]
    # (The KCL drops user records of damaged aggregates, too: those have no cause.)
    assert sum(cause["dropped"] for cause in facts["causes"]) == truth["dropped"] - truth["damaged"]
    assert totals["misplaced"] == sorts.count("misplaced")  # each has one that is outside
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
    if broken + truth["dropped"] + truth["places"] or not totals["kinesisRecords"]:
        assert not result.clean
    assert totals["kinesisRecords"] or "nothing is known" in text
    assert any(truth[name] for name in truth if name != "delivered") or "cannot" not in text


ALL = {*range(6)}


@pytest.mark.requirement("SPK-1", "SPK-94", "ACC-4", "ACC-11")
@every("user_records", [True, False])
@every("opened", [True, False])
@every("no_data, no_number", [({3}, {3, 5}), (ALL, set()), (set(), ALL), (ALL, ALL)])
def test_whatever_rows_of_parquet_lack_the_results_are_whole(
    no_data: set[int],
    no_number: set[int],
    opened: bool,
    user_records: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder: Path = tmp_path_factory.mktemp("run")
    data = b"plain" if opened else kpl.encode([kpl.UserRecord("k", b"data")] * 3)
    columns = {
        "shardId": [LISTED[0].shard_id] * 6,
        "sequenceNumber": pa.array([None if row in no_number else str(row) for row in range(6)], pa.string()),
        "subSequenceNumber": pa.array([0 if opened else None] * 6, pa.int64()),
        "partitionKey": ["k"] * 6,
        "data": pa.array([None if row in no_data else data for row in range(6)], pa.binary()),
    }
    pq.write_table(pa.table(columns), folder / "a.parquet")
    result = validate(
        [str(folder / "a.parquet")],
        TWO,
        output=str(folder / "out"),
        engine=LocalEngine(cores=1),
        user_records=user_records,
    )
    folders = ["findings", "user-records"] if user_records else ["findings"]
    check_whole(Location(folder / "out"), *folders)
    assert result.summary["rows"]["user-records"] == (6 - len(no_data)) * (1 if opened else 3)
    kinds = {kind["name"]: (kind["findings"], kind["userRecords"]) for kind in result.summary["kinds"]}
    totals, broken = result.summary["totals"], 0 if opened else len(no_data)
    assert kinds.get("no-data", (0, 0)) == (len(no_data), broken)
    assert totals["brokenFrames"] == totals["verdicts"].get("not-judged", 0) == broken
    assert not (no_data and result.clean)
