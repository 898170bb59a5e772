"""The calls of a queue (ReceiveQueueRecords and the others), for boto3's clients and aiobotocore's.

    queue = find_queue(client, "orders-queue")             # its ARN
    for answer in browse_queue(client, queue): ...            # what is in it now; all of it is given back

Queues came with botocore 1.44. A queue hangs on one stream; it gives each Kinesis record until that is
acknowledged.
Specification: spec/14-queues-and-channels.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import botocore

from ..aws.calls import CallFailed, call_service, call_with_retries, run_sync
from ..aws_errors import what_to_check
from ..errors import KplError
from ..shards.live_shard_map import Failure

__all__ = [
    "QueueUnavailable",
    "QueuesUnsupported",
    "browse_queue",
    "find_queue",
    "restore_dead_letters",
]  # fmt: skip

#: Records of one call, at most.
MOST_RECORDS: Final = 10
#: Seconds for which records are not given to others while somebody looks at them.
_LOOK: Final = 120


class QueueUnavailable(KplError):
    """A call to a queue failed. ``queue``, ``operation``, ``code`` (AWS's name of the error), ``reason``;
    ``permanent``: a retry cannot solve it."""

    code: str
    requirement = "QUE-4"
    queue: str
    operation: str
    reason: str
    permanent: bool = False
    text = "{operation} failed for queue {queue}: {code}: {reason}"
    concerns = "The consumer of this queue. What it received and did not acknowledge comes again."
    todo = (
        "The code is AWS's own. ResourceNotFoundException: give the queue's ARN (aws kinesis list-queues). "
        "AccessDeniedException: allow the action of that name on the queue."
    )
    codes = ("no-such-queue", "UnknownQueueState")

    def describe(self) -> str:
        check = what_to_check(self.code)
        return f"{super().describe().rstrip('.')}; {check}" if check else super().describe()


class QueuesUnsupported(KplError, RuntimeError):
    """The client's botocore is older than queues. ``version``: its version."""

    code = "no-queues"
    requirement = "QUE-10"
    version: str
    text = (
        "this client has no queues: they came with botocore 1.44, and this is {version}; install boto3 1.44 "
        "or newer, or an aiobotocore that is built on it"
    )
    concerns = "Whoever reads a queue. Streams are read with older versions, too."
    todo = "Install boto3 1.44 or newer."


class QueueOperations(NamedTuple):
    """The names of the client's methods for the records of a queue, or for its dead letters."""

    receive: str
    acknowledge: str
    update_visibility: str


RECORDS: Final = QueueOperations(
    "receive_queue_records", "acknowledge_queue_records", "update_queue_records_visibility"
)
DEAD_LETTERS: Final = QueueOperations(*(name.replace("queue", "dead_letter_queue") for name in RECORDS))
RESTORE: Final = "restore_dead_letter_queue_records"


def check_client(client: Any) -> None:
    """Raises QueuesUnsupported for a client without the operations of queues."""
    # QUE-10: "A client whose botocore is older than queues MUST be refused with an error that names the
    # version it needs."
    if not hasattr(client, RECORDS.receive):
        raise QueuesUnsupported(version=botocore.__version__)


def missing(operation: str, answer: Mapping[str, Any]) -> str | None:
    # QUE-11: "An answer that was cut short MUST be taken for a call that failed."
    needed = ["QueueRecords"] if operation.startswith("receive") else ["Successful", "Failed"]
    lacks = [name for name in needed if name not in answer]
    for record in answer.get("QueueRecords", ()):
        if not {"ReceiptHandle", "RecordId", "Data"} <= record.keys():
            lacks.append("QueueRecords[].RecordId")
    return lacks[0] if lacks else None


async def call(
    client: Any,
    operation: str,
    arguments: Mapping[str, Any],
    *,
    patience: float = 60.0,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Mapping[str, Any]:
    """The answer of a call about the records of a queue, after retries. Raises QueueUnavailable.

    ``sleep``: if it gives something true, no more attempt is made, and the answer is empty."""
    attempt = partial(call_service, client, operation, arguments, partial(missing, operation))
    unavailable = partial(QueueUnavailable, queue=arguments["QueueARN"])
    return await call_with_retries(attempt, unavailable, patience, sleep, clock)


def refusals(handles: Iterable[str], answer: Mapping[str, Any]) -> dict[str, str]:
    """By receipt handle of a call with entries, the code of each that the service did not do."""
    # QUE-3: "Each entry of an answer MUST be read by itself, whatever the HTTP status: what is not listed as
    # successful has failed."
    successful = {entry.get("ReceiptHandle") for entry in answer["Successful"]}
    codes = {entry.get("ReceiptHandle"): str(entry.get("ErrorCode")) for entry in answer["Failed"]}
    failed = [handle for handle in handles if handle in codes or handle not in successful]
    return {handle: codes.get(handle, "IncompleteAnswer") for handle in failed}


def find_queue(client: Any, queue: str) -> str:
    """The ARN of the queue with this name or ARN. Raises QueuesUnsupported, and QueueUnavailable where there
    is none."""
    check_client(client)
    if queue.startswith("arn:"):
        return queue
    token: dict[str, str] | None = {}
    failed = CallFailed(
        "list_queues", Failure("no-such-queue", "no queue of this account and region has that name")
    )
    try:
        while token is not None:
            answer = run_sync(call_service(client, "list_queues", token))
            for summary in answer["QueueSummaries"]:
                if summary["QueueName"] == queue:
                    return str(summary["QueueARN"])
            token = {"NextToken": answer["NextToken"]} if answer.get("NextToken") else None
    except CallFailed as error:
        failed = error
    failed.permanent = True
    raise QueueUnavailable(queue=queue, **vars(failed))


def browse_queue(client: Any, queue: str, *, dead_letters: bool = False) -> Iterator[list[dict[str, Any]]]:
    """What is in the queue now, some records at a time, each once; at the end all of it is given back.

    Every look counts as a delivery (ReceiveCount), and meanwhile no consumer gets the records. With
    ``dead_letters`` it reads those. Raises QueueUnavailable.
    """
    calls = DEAD_LETTERS if dead_letters else RECORDS
    record_ids: set[str] = set()
    handles: list[str] = []
    try:
        while True:
            arguments = {"QueueARN": queue, "WaitTimeSeconds": 1, "VisibilityTimeoutSeconds": _LOOK}
            records = run_sync(call(client, calls.receive, arguments))["QueueRecords"]
            handles += [record["ReceiptHandle"] for record in records]
            fresh = [record for record in records if record["RecordId"] not in record_ids]
            if not fresh:
                return
            record_ids |= {record["RecordId"] for record in fresh}
            yield fresh
    finally:
        # QUE-12: "Browsing a queue MUST give back at once all that it received."
        for some in _calls_of(handles):
            entries = [{"ReceiptHandle": handle, "VisibilityTimeoutSeconds": 0} for handle in some]
            run_sync(call(client, calls.update_visibility, {"QueueARN": queue, "Entries": entries}))


def _calls_of(handles: list[str]) -> Iterator[list[str]]:
    for at in range(0, len(handles), MOST_RECORDS):
        yield handles[at : at + MOST_RECORDS]


def restore_dead_letters(client: Any, queue: str, handles: list[str]) -> dict[str, str]:
    """Give dead letters back to the queue's consumers. By receipt handle the code of each that the service
    did not restore. Raises QueueUnavailable."""
    refused: dict[str, str] = {}
    for some in _calls_of(handles):
        entries = [{"ReceiptHandle": handle} for handle in some]
        refused |= refusals(some, run_sync(call(client, RESTORE, {"QueueARN": queue, "Entries": entries})))
    return refused
