"""Checks the answers of PutRecords; the rest of the producer sees only checked ones. And what the stream's
summary says of record sizes.

Specification: spec/05-producer.md, PRD-23 and PRD-62.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ..limits import DEFAULT_MAX_RECORD_SIZE, LARGEST_MAX_RECORD_SIZE
from .outcomes import ACTIONS, Outcome, outcome_of


class Entry(NamedTuple):
    """What an answer says of a Kinesis record. ``code`` and ``message`` as the service wrote them."""

    outcome: Outcome
    shard_id: str | None = None
    sequence_number: str | None = None
    code: str | None = None
    message: str | None = None


MALFORMED: Final = Entry("count-mismatch", code="MalformedAnswer")


def parse_put_records(answer: object, sent: int) -> list[Entry]:
    """One entry for each of ``sent`` Kinesis records."""
    entries = answer.get("Records") if isinstance(answer, Mapping) else None
    # PRD-23: "An answer that does not have one entry for each record sent tells nothing about any of
    # them; all MUST be sent again."
    if not isinstance(entries, list) or len(entries) != sent:
        return [Entry("count-mismatch", code="CountMismatch")] * sent
    return [_parse_entry(entry) for entry in entries]


def _parse_entry(entry: object) -> Entry:
    if not isinstance(entry, Mapping):
        return MALFORMED
    code, message = entry.get("ErrorCode"), entry.get("ErrorMessage")
    if isinstance(code, str) and code:
        outcome = outcome_of(code)
        if ACTIONS[outcome] == "isolate":  # it was refused by itself; the message may repeat the record
            return Entry("refused", code=code)
        return Entry(outcome, code=code, message=message if isinstance(message, str) else None)
    shard_id, number = entry.get("ShardId"), entry.get("SequenceNumber")
    if not code and isinstance(shard_id, str) and isinstance(number, str) and shard_id and number:
        return Entry("delivered", shard_id, number)
    return MALFORMED


def parse_max_record_size(answer: object) -> int | None:
    """Bytes of the largest Kinesis record that the stream of a DescribeStreamSummary answer takes; None if it
    does not say."""
    summary = answer.get("StreamDescriptionSummary") if isinstance(answer, Mapping) else None
    kib = summary.get("MaxRecordSizeInKiB") if isinstance(summary, Mapping) else None
    if type(kib) is not int:
        return None
    return min(max(kib * 1024, DEFAULT_MAX_RECORD_SIZE), LARGEST_MAX_RECORD_SIZE)
