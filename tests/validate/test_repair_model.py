"""Repair against a model: however often validate and repair take turns, whatever is in the stream, a KCL
consumer gets every user record once."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import kpl_codec as kpl
from kpl_codec.captures import Location
from kpl_codec.producer import Producer
from kpl_codec.validate.repair import CONFIG, LOG_EVERY, plan_repair, put_rows
from kpl_codec.validate.repair_marks import TAG, RepairLog, tag_value
from kpl_codec.validate.repair_plan import plan_rows

from ..captures.test_captures import WHEN, answer
from ..producer.model_client import ModelClient
from .test_job import LOWER, MAP, validate_files

#: The columns of a plan that name a user record.
NAME = ("shardId", "sequenceNumber", "subSequenceNumber")


class RepairMachine(RuleBasedStateMachine):
    """A stream of two shards, careless writers, and an operator who follows the advice again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.client = ModelClient(2)
        self.put: Counter[bytes] = Counter()
        self.folder = Path(tempfile.mkdtemp(prefix="kpl-codec-repair-"))
        self.runs = 0
        self.applied: list[Path] = []

    @initialize(contents=st.lists(st.integers(0, 9), min_size=1, max_size=6))
    def something_is_in_the_stream(self, contents: list[int]) -> None:
        self.a_naive_writer_puts_an_aggregate(contents)

    @rule(contents=st.lists(st.integers(0, 9), min_size=1, max_size=6))
    def a_naive_writer_puts_an_aggregate(self, contents: list[int]) -> None:
        """Its keys are of any shard; it goes where the first belongs. Equal user records are common."""
        users = [kpl.UserRecord(f"key-{content}", b"%d" % content) for content in contents]
        place = kpl.effective_hash_key(users[0].partition_key)
        record = {"PartitionKey": "a", "Data": kpl.encode(users), "ExplicitHashKey": str(place)}
        self.client.stream.put_records([record])
        self.put.update(user.data for user in users)

    @rule(cut_off_after=st.none() | st.integers(0, 5))
    def the_operator_repairs(self, cut_off_after: int | None) -> None:
        missing = self.put - self.client.stream.delivered()
        output = self.validate(bool(missing))
        decisions = plan_repair(str(output))
        assert decisions.get("put", 0) == missing.total()
        assert decisions.keys() <= {"put", "copy"}
        if cut_off_after is not None:
            self.apply(output, cut_off_after)
        self.apply(output)
        self.applied.append(output)
        assert self.client.stream.delivered() == self.put, "repaired, and not every user record is there once"
        self.validate(False)

    @rule()
    def a_naive_writer_puts_the_copies(self) -> None:
        """As one aggregate: the copies of user records of other shards are lost as their originals were."""
        missing = self.put - self.client.stream.delivered()
        output = self.validate(bool(missing))
        plan_repair(str(output))
        files = (output / "repair" / "plan").glob("*.parquet")
        rows = [row for file in files for row in plan_rows(Location(file)) if row["decision"] == "put"]
        if rows:
            copies = [
                kpl.UserRecord(
                    row["partitionKey"],
                    row["data"],
                    tags=(
                        *(kpl.Tag(tag["key"], tag["value"]) for tag in row["tags"] or ()),
                        kpl.Tag(TAG, tag_value(row[name] for name in NAME)),
                    ),
                )
                for row in rows
            ]
            place = kpl.effective_hash_key(copies[0].partition_key)
            record = {"PartitionKey": "a", "Data": kpl.encode(copies), "ExplicitHashKey": str(place)}
            self.client.stream.put_records([record])

    @rule()
    def the_operator_applies_an_old_plan_again(self) -> None:
        for output in self.applied:
            before = len(self.client.stream.stored)
            self.apply(output)
            assert len(self.client.stream.stored) == before

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def validate(self, lost: bool) -> Path:
        """Check all that is in the stream; the folder of the results."""
        self.runs += 1
        run = self.folder / str(self.runs)
        (run / "in").mkdir(parents=True)
        stream = self.client.stream
        with (run / "in" / "a.jsonl").open("w") as lines:
            for record in stream.stored:
                entry = {
                    "SequenceNumber": record.sequence_number,
                    "ApproximateArrivalTimestamp": WHEN.isoformat(),
                    "Data": base64.b64encode(record.data).decode(),
                    "PartitionKey": record.partition_key,
                }
                line = {"StreamName": "orders", "ShardId": record.shard_id, "Records": [entry]}
                lines.write(json.dumps(line) + "\n")
        assert validate_files(run / "in", kpl.ShardMap(stream.shards), run / "out") == lost
        return run / "out"

    def apply(self, output: Path, rows: int | None = None) -> None:
        """Put what the plan says, or only the first rows of each of its files."""
        (output / "repair" / "log").mkdir(exist_ok=True)
        for path in sorted((output / "repair" / "plan").glob("*.parquet")):
            log = RepairLog(Location(output / "repair" / "log"))
            with Producer("orders", client=self.client, config=CONFIG) as producer:
                put_rows(islice(plan_rows(Location(path)), rows), log, producer)


def plan_of(user_records: int) -> list[dict[str, Any]]:
    return [
        {
            "decision": "put", "shardId": "shardId-000000000000", "sequenceNumber": str(number),
            "subSequenceNumber": 0, "partitionKey": f"key-{number}", "explicitHashKey": None,
            "data": b"%d" % number, "tags": None,
        }
        for number in range(user_records)
    ]  # fmt: skip


@pytest.mark.requirement("SPK-32")
@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("place", ["put", "add", "write"])
def test_what_is_on_the_stream_is_in_the_log(place: str, stops: bool, tmp_path: Path) -> None:
    """Whatever is going on when Ctrl-C is pressed: a put, a line of the log, its writing. A command stops
    then; in a library it is an exception."""
    client, log = ModelClient(2), RepairLog(Location(tmp_path))
    rows = plan_of(2 * LOG_EVERY + 10)
    pressed, calls = False, 0
    with Producer("orders", client=client, config=CONFIG) as producer:
        interrupted: Any = producer if place == "put" else log
        call = getattr(interrupted, place)

        def press(*arguments: Any) -> Any:
            nonlocal calls, pressed
            calls += 1
            if calls == 2:
                pressed = True
                if not stops:
                    raise KeyboardInterrupt
            return call(*arguments)

        with mock.patch.object(interrupted, place, press), suppress(KeyboardInterrupt):
            put_rows(rows, log, producer, lambda: stops and pressed)
    names = {tuple(row[name] for name in ("shardId", "sequenceNumber", "subSequenceNumber")) for row in rows}
    again = RepairLog(Location(tmp_path))
    logged = again.put_places()
    assert sum(name in logged for name in names) == client.stream.delivered().total()
    with Producer("orders", client=client, config=CONFIG) as producer:
        put_rows(rows, again, producer)
    assert client.stream.delivered() == Counter(row["data"] for row in rows)


def lost_copies(tmp_path: Path, original: list[kpl.UserRecord], *copies: list[kpl.UserRecord]) -> Path:
    """Results of aggregates of two shards, all dropped."""
    text = json.dumps(answer(*(kpl.encode(users) for users in (original, *copies)), shard=LOWER, first=7))
    (tmp_path / "a.jsonl").write_text(text)
    assert validate_files(tmp_path / "a.jsonl", MAP, tmp_path / "out") == 1
    return tmp_path / "out"


USERS = [kpl.UserRecord("a", b"lower", "5"), kpl.UserRecord("a", b"upper", str(2**128 - 5))]


def copy_of(user: kpl.UserRecord, *places: str) -> kpl.UserRecord:
    return user._replace(tags=tuple(kpl.Tag(TAG, f"{LOWER}/{place}") for place in places))


@pytest.mark.requirement("SPK-121")
@pytest.mark.parametrize(
    ("copies", "decisions"),
    [
        ([["7"]], {"put": 2, "copy": 2}),
        ([["7"], ["7"]], {"put": 2, "copy": 4}),
        ([["7"], ["7", "8"]], {"put": 2, "copy": 4}),
        ([["7"], ["8"]], {"put": 2, "copy": 4}),
        ([["70"]], {"put": 4}),
        ([["8"]], {"put": 4}),
        ([["9"], ["8"]], {"put": 4, "copy": 2}),
    ],
    ids=["one", "two", "of both", "of a copy", "of none here", "of itself", "circle"],
)
def test_of_a_lost_user_record_and_its_lost_copies_one_is_put(
    copies: list[list[str]], decisions: dict[str, int], tmp_path: Path
) -> None:
    frames = [
        [copy_of(user, *(f"{number}/{sub}" for number in numbers)) for sub, user in enumerate(USERS)]
        for numbers in copies
    ]
    assert plan_repair(str(lost_copies(tmp_path, USERS, *frames))) == decisions


@pytest.mark.requirement("SPK-121")
def test_a_lost_copy_of_other_contents_is_put(tmp_path: Path) -> None:
    forged = [copy_of(user._replace(data=b"other"), f"7/{sub}") for sub, user in enumerate(USERS)]
    assert plan_repair(str(lost_copies(tmp_path, USERS, forged))) == {"put": 4}


@pytest.mark.requirement("SPK-30", "SPK-31", "SPK-32", "SPK-34", "SPK-121")
def test_repair_ends_with_every_user_record_once() -> None:
    quick = settings(
        max_examples=4,
        stateful_step_count=5,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    run_state_machine_as_test(RepairMachine, settings=quick)
