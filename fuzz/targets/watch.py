"""What the watch takes from outside: answers of Kinesis, and the state that an earlier run kept.

An input of `watch` is a list of answers in JSON, as of `answers.read`; one of `kept` is the state, in JSON or
compressed as an item of a table has it.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from typing import Any

from kpl_codec.shards.live_shard_map import Failure
from kpl_codec.watch import Checkpoint, KeptStateError, LastHour, ShardCall, Watch, WatchFinding
from kpl_codec.watch.checkpoint import FindingGroup, Minute, OpenFinding
from kpl_codec.watch.stream_watcher import StateTable
from tests.watch.model import START, ModelStream, open_map, run

from .answers import READ, parsed, read_answers
from .target import Target, dumped, loaded, repeated


class _Stream(ModelStream):
    """A stream that gives the input's answers first, and then its own."""

    def __init__(self, answers: list[Any]) -> None:
        super().__init__(open_map(2))
        self._given = iter(answers)

    def answer(self, call: ShardCall, now: float) -> dict[str, Any] | Failure:
        try:
            proper = super().answer(call, now)
        except ValueError:  # an iterator, or a place, that the input gave
            proper = Failure("InvalidArgumentException", "not one of this stream")
        given = next(self._given, proper)
        if given is proper:
            return proper
        if isinstance(given, str) and given.startswith("fail:"):
            return Failure(given[5:], "as told")
        return parsed(given)


def _told(found: list[WatchFinding]) -> None:
    for finding in found:
        json.dumps(finding.to_json())
        assert finding.text


def _watched(given: bytes) -> tuple[_Stream, Watch]:
    stream = _Stream(read_answers(given))
    watched = Watch(LastHour("orders"), share=0.05)
    _told(watched.use(stream.shard_map, START))
    _told(run(watched, stream, START, START + 600))
    return stream, watched


def watch(given: bytes) -> None:
    """Whatever is answered, every shard is looked at once Kinesis answers as it should, and all findings can
    be told."""
    stream, watched = _watched(given)
    assert set(stream.shard_map) == set(watched.shards) | watched.keep(0).ended
    for shard_id, state in watched.shards.items():
        assert state.looks, shard_id
    assert json.dumps(watched.keep(START + 600).to_json())


class _Table:
    """A DynamoDB client: the table has one item, which holds ``state``."""

    def __init__(self, state: bytes) -> None:
        self.item: dict[str, Any] = {"run": {"N": "1"}, "state": {"B": state}}

    def get_item(self, **_: Any) -> dict[str, Any]:
        return {"Item": self.item}

    def put_item(self, **given: Any) -> None:
        self.item = given["Item"]


def _item(given: bytes) -> None:
    """Any item is loaded or a KeptStateError, and the next run can save and load its own."""
    table = _Table(given if given.startswith(b"\x1f\x8b") else gzip.compress(given, mtime=0))
    run = StateTable(table, "watch", "orders")
    try:
        run.load(START)
    except KeptStateError as error:
        assert len(str(error)) < 500
    state = Checkpoint(START, {}, frozenset(), {}, {})
    run.save(state)
    assert run.load(START) == state


def kept(given: bytes) -> None:
    """A state is resumed, and the watch goes on and keeps a state that can be read; or KeptStateError."""
    _item(given)
    try:
        state = Checkpoint.from_json(loaded(given))
    except KeptStateError as error:
        str(error)
        return
    assert Checkpoint.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert math.isfinite(state.at)
    stream = _Stream([])
    watched = Watch(LastHour("orders"), share=0.05)
    watched.resume(state)
    _told(watched.use(stream.shard_map, START))
    _told(run(watched, stream, START, START + 120))
    again = json.loads(json.dumps(watched.keep(START + 120).to_json()))
    assert Checkpoint.from_json(again).to_json() == again


def _watch_seeds() -> list[bytes]:
    iterator = {"ShardIterator": "0"}
    record = {"Data": "a", "PartitionKey": "k", "SequenceNumber": "5", "ApproximateArrivalTimestamp": START}
    page = {"Records": [record], "MillisBehindLatest": 5, "NextShardIterator": "1"}
    return dumped(
        [],
        [iterator, iterator, page, page],
        [iterator, iterator, {"Records": []}, {}],
        [iterator, iterator, {"Records": [{}]}, "fail:ExpiredIteratorException"],
        ["fail:ProvisionedThroughputExceededException", "fail:AccessDeniedException", {}, iterator],
    )


def _state() -> dict[str, Any]:
    stream = _Stream([])
    for second in range(60):
        stream.put("shardId-000000000000", START + second, "k", b"x")
        stream.put("shardId-000000000001", START + second, "k", b"\xf3\x89\x9a\xc2" + bytes(16))
    watched = Watch(LastHour("orders"), share=1.0)
    watched.use(stream.shard_map, START)
    run(watched, stream, START, START + 60)
    return watched.keep(START + 60).to_json()


def _kept_seeds() -> list[bytes]:
    state = _state()
    minute = Minute(1, 2, 3, 0, 5, 6, 7, losses=Counter({(FindingGroup("stray"), 9): 1}))
    finding = OpenFinding(START, START, 1, 1, None, "5", "detail")
    minutes = {"shardId-000000000000": {int(START // 60): minute}}
    other = Checkpoint(
        START, {}, frozenset(["shardId-1"]), minutes, {(None, FindingGroup("hot-key")): finding}
    )
    whole = gzip.compress(dumped(state)[0], mtime=0)
    return [
        *dumped(state, other.to_json(), {**state, "at": START + 1}),
        whole,
        whole[:-9],
        whole[:10] + b"\xff" * 20,
        gzip.compress(b"[" * 100_000, mtime=0),  # nested too deeply
        gzip.compress(b'{"version":' + b"[" * 900 + b"]" * 900 + b"}", mtime=0),
    ]


KEPT = {
    "minutes": repeated(
        b'["a",1,[1,2,3,0,5,6,7],[]],',
        head=b'{"seal":"","version":3,"at":1,"shards":{},"ended":[],"findings":[],"minutes":[',
        tail=b'["a",1,[1,2,3,0,5,6,7],[]]]}',
    ),
    "open brackets": repeated(b"["),
}
TARGETS = {
    "watch": Target(watch, _watch_seeds, READ, json=True, work=_watched),
    "kept": Target(kept, _kept_seeds, KEPT, json=True),
}
