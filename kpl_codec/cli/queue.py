"""The records of a queue, for `kpl-codec cat`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ..adapters.shapes import queue_record
from ..format.records import KinesisRecord
from ..pictures.terminal import note
from .options import add
from .source import UsageError


def add_queue(parser: argparse.ArgumentParser) -> None:
    """--queue and what goes with it."""
    text = "look into this queue, a name or ARN: everything counts as delivered once more"
    add(parser, "--queue NAME", text)
    add(parser, "--dead-letters", "with --queue: its dead letters")
    add(parser, "--restore", "with --dead-letters: give them to the queue's consumers again")


def check_queue(args: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go with --queue, or not without."""
    if (args.dead_letters and not args.queue) or (args.restore and not args.dead_letters):
        raise UsageError(reason="--dead-letters goes with --queue, and --restore with --dead-letters")
    # QUE-1, as everywhere
    if args.queue and args.shard_id:
        raise UsageError(reason="--shard-id: a record from a queue does not say its shard")


def of_queue(args: argparse.Namespace) -> Iterator[tuple[str | None, KinesisRecord]]:
    """What is in --queue now; with --restore given to its consumers again, as it is shown. Raises
    QueueUnavailable, QueuesUnsupported, UsageError."""
    from ..aws.calls import call_errors, failure_of
    from ..aws.client import kinesis_client
    from ..aws.queues import DEAD_LETTERS, RECORDS, QueueUnavailable, find_queue, look_into, restore

    parts = args.queue.split(":")
    region = args.region or (parts[3] if len(parts) > 3 else None)
    try:
        client = kinesis_client(
            region=region, endpoint_url=args.endpoint_url, profile=args.profile, role_arn=args.role_arn
        )
    except call_errors() as error:
        raise QueueUnavailable(
            queue=args.queue, operation="connect", **failure_of(error)._asdict(), permanent=True
        ) from None
    queue = find_queue(client, args.queue)
    for records in look_into(client, queue, DEAD_LETTERS if args.dead_letters else RECORDS):
        for raw in records:
            yield None, queue_record(raw)
        if args.restore:
            refused = restore(client, queue, [raw["ReceiptHandle"] for raw in records])
            note(f"{len(records) - len(refused)} dead letters restored")
            for code in sorted(set(refused.values())):
                note(f"{list(refused.values()).count(code)} not restored: {code}")
