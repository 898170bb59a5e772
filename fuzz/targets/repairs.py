"""What `kpl-codec repair` finds in a folder of results: a plan, logs of what was put, and a record."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from kpl_codec.captures import InputError, Location
from kpl_codec.format.records import Tag
from kpl_codec.producer import Delivery, ProducerConfig, ProducerCore
from kpl_codec.shards.live_shard_map import LiveShardMap
from kpl_codec.validate.repair import LOG_EVERY, put_rows
from kpl_codec.validate.repair_marks import RepairLog, read_copies
from kpl_codec.validate.repair_plan import plan_rows

from .answers import proper
from .captures import columns_of, parquet
from .target import Target, dumped, loaded, repeated

_FOLDER = tempfile.TemporaryDirectory(prefix="kpl-codec-fuzz-")


def _read(given: bytes) -> set[tuple[str, str, int]]:
    Path(_FOLDER.name, "attempt.000000.jsonl").write_bytes(given)
    return {old for old, _ in read_copies(Location(_FOLDER.name))}


def repairs(given: bytes) -> None:
    """Every line that says that a user record was put counts; or InputError with the line."""
    try:
        found = _read(given)
    except InputError as error:
        assert "line " in error.reason
        return
    entries = [json.loads(line) for line in given.splitlines()]
    for entry in entries:
        if entry["outcome"] == "put":
            assert tuple(entry["old"]) in found


def work(given: bytes) -> None:
    try:
        _read(given)
    except InputError as error:
        str(error)


class _Producer:
    """A producer whose stream of one shard stores everything at once."""

    def __init__(self) -> None:
        self._core = ProducerCore(ProducerConfig(), LiveShardMap("orders"), random.Random(0).randrange)
        self._core.live.refresh(0.0)
        self._delivered: dict[int, Delivery] = {}
        self.data: Counter[bytes] = Counter()

    def put(self, key: str, data: bytes, hash_key: str | None, tags: tuple[Tag, ...]) -> Any:
        pending = self._core.prepare(key, data, hash_key, tags)
        pending.token = future = _Future(self)
        self._core.accept(pending, 0.0)
        self.data[data] += 1
        return future

    def flush(self) -> None:
        self._core.flush()
        while self._core.outstanding:
            for request in self._core.requests(0.0):
                self._core.receive(request, proper(request), 0.0)
            for pending in self._core.results():
                pending.token.delivery = pending.result


class _Future:
    delivery: Any = None

    def __init__(self, producer: _Producer) -> None:
        self._producer = producer

    def result(self) -> Any:
        self._producer.flush()
        return self.delivery


def plans(given: bytes) -> None:
    """Every row of a plan is put, or counted under its decision, and the log has it, so that a second run
    puts nothing again; or InputError, and still everything put is in the log."""
    with tempfile.TemporaryDirectory(prefix="kpl-codec-fuzz-") as folder:
        plan = Path(folder, "plan.parquet")
        columns = isinstance(loaded(given), dict)
        plan.write_bytes(parquet(given) if columns else given)
        first, second = _applied(folder, plan), _applied(folder, plan)
        assert not second[0]["put"], "put twice"
        assert second[0]["put-before"] == first[0]["put"] or first[1]
        assert first[1] == second[1]
        if not first[1]:
            count = len(next(iter(columns_of(given).values()), [])) if columns else None
            assert count is None or sum(first[0].values()) == count


def _applied(folder: str, plan: Path) -> tuple[Counter[str], bool]:
    """What a run does with a plan, and whether the plan cannot be read; and that the log has all of it."""
    producer, log = _Producer(), RepairLog(Location(folder))
    before = _count(log)
    counts: Counter[str] = Counter()
    unreadable = False
    try:
        counts = put_rows(plan_rows(Location(plan)), log, producer)  # type: ignore[arg-type]
    except InputError as error:
        assert str(error)
        unreadable = True
    put = sum(producer.data.values())
    assert unreadable or put == counts["put"]
    assert _count(log) - before <= put
    assert put == 0 or _count(log) > before
    return counts, unreadable


def _count(log: RepairLog) -> int:
    return sum(map(int.bit_count, log.put_places()._bits.values()))


_PUT = b'{"old": ["shardId-000000000000", "49", %d], "outcome": "put", "new": ["shardId-1", "50", 0]}\n'
_FAILED = b'{"old": [null, null, 0], "outcome": "failed", "error": "expired", "stored": false}\n'


def seeds() -> list[bytes]:
    return [
        _PUT % 0,
        _FAILED,
        _PUT % 3 + _FAILED + _PUT % 4,
        _PUT % (10**12),
        _PUT[:40],
        b"\n\n",
        b"{}",
        b"[1]",
    ]


_ROW: dict[str, Any] = {
    "shardId": ["shardId-000000000000"],
    "sequenceNumber": ["49"],
    "subSequenceNumber": [0],
    "partitionKey": ["a"],
    "explicitHashKey": [None],
    "data": ["x"],
    "tags": [None],
    "decision": ["put"],
}


def _plan_seeds() -> list[bytes]:
    several = {**_ROW, "subSequenceNumber": list(range(LOG_EVERY + 7)), "decision": ["put", "put", "cannot"]}
    return dumped(
        _ROW,
        several,
        {**_ROW, "explicitHashKey": ["007"], "tags": [[{"key": "k", "value": "v"}]]},
        {**_ROW, "subSequenceNumber": [0, -1, 2], "decision": ["put", "already-delivered", "put"]},
        {**_ROW, "partitionKey": ["a", None], "subSequenceNumber": [0, 1]},
        {"decision": ["put"]},
        {"stream": "orders", "user_records": {"put": 7}},
    )


def _plan(size: int) -> bytes:
    return json.dumps({**_ROW, "subSequenceNumber": list(range(size // 8))}).encode()


def _plan_work(given: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="kpl-codec-fuzz-") as folder:
        plan = Path(folder, "plan.parquet")
        plan.write_bytes(parquet(given))
        _applied(folder, plan)


GROWN = {
    "lines": repeated(_PUT % 5),
    "other numbers": lambda size: b"".join(_PUT % i for i in range(size // 100)),
    "broken line": repeated(b"x", head=_PUT % 0),
    "largest numbers": repeated(_PUT % 999_999),
}
TARGETS = {
    "repairs": Target(repairs, seeds, GROWN, work=work),
    "plans": Target(plans, _plan_seeds, {"rows": _plan}, json=True, work=_plan_work),
}
