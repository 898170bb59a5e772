"""What the Spark source is given as text: offsets out of a checkpoint, options, positions."""

from __future__ import annotations

import json

from kpl_codec.spark.source.offsets import OffsetError, StreamOffset, batch_pieces
from kpl_codec.spark.source.positions import InvalidPosition, OptionError, start_position
from kpl_codec.spark.source.source_options import parse_options

from .target import Target, dumped, loaded, repeated

_SECRET = "a secret that nobody may see"


def offsets(given: bytes) -> None:
    """Offsets are read, or OffsetError; what was read is written as it was; batches between are planned."""
    value = loaded(given)
    read = []
    for found in value if isinstance(value, list) else [value]:
        try:
            offset = StreamOffset.from_json(found, "orders")
        except OffsetError as error:
            str(error)
            continue
        text = json.dumps(offset.to_json())
        again = StreamOffset.from_json(json.loads(text), "orders")
        assert again == offset
        assert json.dumps(again.to_json()) == text
        read.append(offset)
    for start in read:
        for end in read:
            for piece in batch_pieces(start, end):
                assert piece.shard_id in end.shards


def options(given: bytes) -> None:
    """Options, or OptionError; no secret in any text of either."""
    value = loaded(given)
    if not isinstance(value, dict):
        value = {"startingPosition": given.decode("utf-8", "replace")}
    named = {"streamName": "orders", **{str(name): str(text) for name, text in value.items()}}
    named["awsSecretAccessKey"] = _SECRET
    try:
        found = repr(parse_options(named))
    except OptionError as error:
        found = str(error)
    assert _SECRET not in found
    try:
        start_position(given.decode("utf-8", "replace"))
    except InvalidPosition as error:
        str(error)


def _offset_seeds() -> list[bytes]:
    a, b = "shardId-000000000000", "shardId-000000000001"
    new = {"stream": "orders", "version": 1, "shards": {a: {"at": "TRIM_HORIZON"}}}
    later = {
        "stream": "orders",
        "version": 1,
        "shards": {
            a: {
                "after": "49",
                "end": True,
                "first": "48",
                "behind": 7,
                "lost": True,
                "initial": "",
            },
            b: {"before": "50", "first": "49"},
        },
    }
    return dumped(
        {}, new, [new, later], [later, {**later, "shards": {a: {"time": 5}}}], {**new, "version": 2}
    )


def _option_seeds() -> list[bytes]:
    return dumped(
        {"kinesis.stream": "s", "policy": "kcl"},
        {"startingPosition": "2026-01-01T00:00:00Z", "maxFetchRecordsPerShard": "1e3", "tags": "yes"},
        {"startingPosition": '{"shardId-0": {"iteratorType": "AT_TIMESTAMP", "iteratorPosition": "1"}}'},
        {"endingPosition": '{"shardId-0": "49545115243490985018280067714973144582180062593244200961"}'},
        {"sink.ordering": "partition-key", "sink.recordTtl": "100", "fetchCallsPerSecondPerShard": "0"},
    )


_SHARDS = b'{"stream":"orders","version":1,"shards":{'
OFFSETS = {
    "shards": lambda size: (
        _SHARDS + b",".join(b'"shardId-%012d":{"after":"%d"}' % (i, i) for i in range(size // 35)) + b"}}"
    ),
    "open brackets": repeated(b"["),
}
OPTIONS = {
    "position": lambda size: json.dumps({"startingPosition": "{" * size}).encode(),
    "digits": lambda size: json.dumps({"startingPosition": "9" * size}).encode(),
    "spaces": lambda size: json.dumps({"startingPosition": " " * size}).encode(),
    "options": lambda size: json.dumps({f"o{i}": "x" for i in range(size // 10)}).encode(),
}
TARGETS = {
    "offsets": Target(offsets, _offset_seeds, OFFSETS, json=True),
    "options": Target(options, _option_seeds, OPTIONS, json=True),
}
