"""Coverage-guided fuzzing with atheris.

    python -m fuzz.harness decode --seconds 600 --directory DIR
    python -m fuzz.harness explain | roundtrip | lambda | shards | differential ...
    python -m fuzz.harness decode DIR/decode-crash-...         these inputs again, nothing else

``--directory`` keeps the growing corpus and what was found (crash-*, timeout-*, oom-*) between runs; seeds
are cut from spec/vectors. Every input is run under a time limit of 60 s and a memory limit of 1 GB.

Inputs of decode, explain and differential start with a byte: even, the rest is a message, and the frame
around it is made here (random bytes never have the right digest); odd, the rest is the data itself.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["kpl_codec"]):
    import kpl_codec as kpl
    from kpl_codec import adapters, aws_lambda
    from kpl_codec.format.codec import AggregatedRecordBuilder

from . import corpus, invariants


def _data(given: bytes) -> bytes:
    return given[1:] if given[:1] and given[0] % 2 else invariants.frame(given[1:])


def decode(given: bytes) -> None:
    """User records, or exactly one typed error; every quick decoder agrees or passes."""
    data = _data(given)
    found = invariants.decode(data)
    invariants.check_quick_decoders(data, found)
    invariants.check_policies(data, found)


def explain(given: bytes) -> None:
    """An account of every byte, never an exception."""
    data = _data(given)
    invariants.check_explanation(data, invariants.decode(data))


def differential(given: bytes) -> None:
    """Every decoder there is, the executable spec and protobuf's own runtime agree."""
    invariants.check_frame(_data(given))
    invariants.check_columns(_data(given))


def roundtrip(given: bytes) -> None:
    """User records out of the input, good and bad: written and read back the same, or refused."""
    provider = atheris.FuzzedDataProvider(given)
    records = []
    for _ in range(provider.ConsumeIntInRange(0, 8)):
        key = provider.PickValueInList(["a", "b", provider.ConsumeUnicode(300)])
        ehk = provider.PickValueInList(
            [None, str(provider.ConsumeIntInRange(0, 2**128 + 1)), provider.ConsumeUnicode(6)]
        )
        tags = tuple(
            kpl.Tag(provider.ConsumeUnicode(4), provider.ConsumeUnicode(4))
            for _ in range(provider.ConsumeIntInRange(0, 2))
        )
        records.append(
            kpl.UserRecord(key, provider.ConsumeBytes(provider.ConsumeIntInRange(0, 200)), ehk, tags)
        )
    builder = AggregatedRecordBuilder(provider.ConsumeIntInRange(20, 2000))
    sound = []
    for record in records:
        before = builder.size, len(builder)
        try:
            builder.add(record)
        except kpl.AggregateFull as full:
            assert builder.max_size is not None
            assert full.fields["size"] == builder.size_with(record) > builder.max_size
            assert (builder.size, len(builder)) == before
        except kpl.EncodeError:
            assert (builder.size, len(builder)) == before
        else:
            sound.append(record)
    assert len(builder) == len(sound)
    invariants.check_user_records(sound)
    if sound:
        assert builder.build() == kpl.encode(sound)


def events(given: bytes) -> None:
    """Lambda events and other captures: Kinesis records or CaptureError; each answered for."""
    try:
        event: Any = json.loads(given)
    except (ValueError, RecursionError):
        event = {
            "Records": [
                {
                    "kinesis": {
                        "data": base64.b64encode(given).decode(),
                        "partitionKey": "a",
                        "sequenceNumber": "1",
                        "approximateArrivalTimestamp": 1.5,
                    },
                    "eventID": "shardId-000000000000:1",
                }
            ]
        }
    records = []
    for source in (event, given.decode("utf-8", "replace")):
        for item in adapters.captured(source):
            if isinstance(item, kpl.CaptureError):
                str(item)
            else:
                records.append(item)
    report = kpl.deaggregate(records, "report")
    assert len(list(report)) == report.counts.user_records >= len(records)
    try:
        list(kpl.deaggregate(adapters.kinesis_records(event)))
    except (kpl.CaptureError, kpl.DecodeError) as error:
        str(error)
    handled: list[Any] = []
    try:
        answer = aws_lambda.process_user_records(event, handled.append, on_poison=lambda poison: None)
    except kpl.CaptureError:
        return
    assert set(answer) == {"batchItemFailures"}
    known = {record.sequence_number for record in records}
    for failure in answer["batchItemFailures"]:
        assert failure["itemIdentifier"] in known


def shards(given: bytes) -> None:
    """ListShards answers: a map that finds what linear search finds, or ShardMapError."""
    invariants.check_json_listing(given)
    try:
        pages = json.loads(given)
    except (ValueError, RecursionError):
        return
    if isinstance(pages, list | dict):
        invariants.check_listing(pages, [])


HARNESSES = {
    "decode": (decode, "frames"),
    "explain": (explain, "frames"),
    "differential": (differential, "frames"),
    "roundtrip": (roundtrip, "frames"),
    "lambda": (events, "lambda"),
    "shards": (shards, "shards"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("harness", choices=sorted(HARNESSES))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("inputs", nargs="*", type=Path)
    args = parser.parse_args()
    test, seeds = HARNESSES[args.harness]
    for path in args.inputs:
        test(path.read_bytes())
        print(f"{path}: nothing wrong")
    if args.inputs:
        return
    if args.directory is None:
        parser.error("--directory is missing")
    corpus.write(args.directory / "seeds")
    grown = args.directory / args.harness
    grown.mkdir(parents=True, exist_ok=True)
    test(b"")  # what is imported at the first use is not part of an input's time
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={args.seconds}",
            "-timeout=60",
            "-rss_limit_mb=1024",
            "-max_len=6000",
            "-print_final_stats=1",
            f"-artifact_prefix={args.directory}/{args.harness}-",
            str(grown),
            str(args.directory / "seeds" / seeds),
        ],
        test,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
