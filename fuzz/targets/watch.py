"""What the watch takes from outside: responses of Kinesis.

An input of `watch` is a list of responses in JSON, as of `answers.read`.
"""

from __future__ import annotations

import json
from typing import Any

from kpl_codec.shards.live_shard_map import Failure
from kpl_codec.watch import LastHour, ShardCall, Watch, WatchFinding
from tests.watch.model import START, ModelStream, open_map, run

from .answers import READ, parsed, read_answers
from .target import Target, dumped


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


def _check_texts(findings: list[WatchFinding]) -> None:
    for finding in findings:
        json.dumps(finding.to_json())
        assert finding.text


def _watched(given: bytes) -> tuple[_Stream, Watch]:
    stream = _Stream(read_answers(given))
    watched = Watch(LastHour("orders"), sampling_rate=0.05)
    _check_texts(watched.set_shard_map(stream.shard_map, START))
    _check_texts(run(watched, stream, START, START + 600))
    return stream, watched


def watch(given: bytes) -> None:
    """Whatever is answered, every shard is polled once Kinesis answers as it should, and all findings have a
    text."""
    stream, watched = _watched(given)
    assert set(stream.shard_map) == {*watched.shards, *watched._ended}
    for shard_id, state in watched.shards.items():
        assert state.polls, shard_id


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


TARGETS = {"watch": Target(watch, _watch_seeds, READ, json=True, work=_watched)}
