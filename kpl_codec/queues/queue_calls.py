"""Makes calls about a Kinesis queue with boto3 or aiobotocore. botocore has these calls since 1.44.

queue = find_queue(client, "orders-queue")             # its ARN
for records in browse_queue(client, queue): ...        # its records now; then all are given back
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import botocore

from ..arguments import check_arguments
from ..aws.calls import CallFailed, call_service, call_with_retries, check_first, run_sync
from ..aws_errors import failure_text
from ..errors import KplError
from ..shards.live_shard_map import Failure

__all__ = ["QueueUnavailable", "QueuesUnsupported", "browse_queue", "find_queue", "restore_dead_letters"]

#: The most records of one call.
MOST_RECORDS: Final = 10
#: Seconds for which consumers do not get the records that `browse_queue` reads, if this process dies.
_BROWSE_SECONDS: Final = 120


class QueueUnavailable(KplError):
    """A call to a queue failed. ``code``: AWS's name of the error; ``permanent``: a retry cannot solve it."""

    code: str
    requirement = "QUE-4"
    queue: str
    operation: str
    reason: str
    permanent: bool = False
    concerns = "The consumer of this queue. What it received and did not acknowledge is delivered again."
    todo = (
        "The code is AWS's own. ResourceNotFoundException: give the queue's ARN (aws kinesis list-queues). "
        "AccessDeniedException: allow the action of that name on the queue."
    )
    codes = ("no-such-queue", "UnknownQueueState")

    def describe(self) -> str:
        return f"{self.operation} failed for queue {self.queue}: {failure_text(self.code, self.reason)}"


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
    todo = "Install boto3 1.44 or newer, without the extra aio (which all has, too): it takes an older one."


#: What operations are about, in boto3's names: ``receive_queue_records``.
RECORDS: Final = "queue_records"
DEAD_LETTERS: Final = "dead_letter_queue_records"


def check_client(client: Any) -> None:
    # QUE-10: "A client whose botocore is older than queues MUST be refused with an error that names the
    # version it needs."
    check_first(client)
    if not hasattr(client, "receive_queue_records"):
        raise QueuesUnsupported(version=botocore.__version__)


def missing_member(operation: str, response: Mapping[str, Any]) -> str | None:
    # QUE-11: "An answer that was cut short MUST be taken for a call that failed."
    for name in ["QueueRecords"] if operation.startswith("receive") else ["Successful", "Failed"]:
        if name not in response:
            return name
    for record in response.get("QueueRecords", ()):
        for name in ("ReceiptHandle", "RecordId", "Data"):
            if name not in record:
                return f"QueueRecords[].{name}"
    return None


async def call(
    client: Any,
    operation: str,
    arguments: Mapping[str, Any],
    *,
    patience: float = 60.0,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Mapping[str, Any]:
    """The response of a call about the records of a queue, after retries; empty if ``sleep`` returns
    something true. Raises QueueUnavailable."""
    attempt = partial(call_service, client, operation, arguments, partial(missing_member, operation))
    unavailable = partial(QueueUnavailable, queue=arguments["QueueARN"])
    return await call_with_retries(attempt, unavailable, patience, sleep, clock)


def failed_entries(handles: Iterable[str], response: Mapping[str, Any]) -> dict[str, str]:
    """The error codes of the entries of a call that the service did not carry out, by receipt handle."""
    # QUE-3: "Each entry of an answer MUST be read by itself, whatever the HTTP status: what is not listed as
    # successful has failed."
    successful = {entry.get("ReceiptHandle") for entry in response["Successful"]}
    codes = {entry.get("ReceiptHandle"): str(entry.get("ErrorCode")) for entry in response["Failed"]}
    failed = [handle for handle in handles if handle in codes or handle not in successful]
    return {handle: codes.get(handle, "IncompleteAnswer") for handle in failed}


async def call_entries(
    client: Any, queue: str, operation: str, entries: list[dict[str, Any]], **how: Any
) -> dict[str, str]:
    """Make calls with these entries. Returns `failed_entries` of them. Arguments and errors as of `call`."""
    failed: dict[str, str] = {}
    for at in range(0, len(entries), MOST_RECORDS):
        chunk = entries[at : at + MOST_RECORDS]
        response = await call(client, operation, {"QueueARN": queue, "Entries": chunk}, **how)
        failed |= failed_entries([entry["ReceiptHandle"] for entry in chunk], response)
    return failed


def find_queue(client: Any, queue: str) -> str:
    """The ARN of the queue with this name or ARN. Raises QueuesUnsupported, and QueueUnavailable if there is
    no such queue."""
    check_arguments("find_queue", {"client": client, "queue": queue})
    check_client(client)
    if queue.startswith("arn:"):
        return queue
    arguments: dict[str, str] = {}
    try:
        while True:
            response = run_sync(call_service(client, "list_queues", arguments))
            for summary in response["QueueSummaries"]:
                if summary["QueueName"] == queue:
                    return str(summary["QueueARN"])
            if not response.get("NextToken"):
                reason = "no queue of this account and region has that name"
                raise CallFailed("list_queues", Failure("no-such-queue", reason))
            arguments = {"NextToken": response["NextToken"]}
    except CallFailed as error:
        error.permanent = True
        raise QueueUnavailable(queue=queue, **vars(error)) from None


def browse_queue(client: Any, queue: str, *, dead_letters: bool = False) -> Iterator[list[dict[str, Any]]]:
    """The records in a queue now, or in its ``dead_letters``, up to 10 at a time, each once; then all are
    given back. Reading is a delivery (it raises ReceiveCount), and no consumer gets them meanwhile. Raises
    QueueUnavailable."""
    check_arguments("browse_queue", locals())
    return _browse(client, queue, dead_letters)


def _browse(client: Any, queue: str, dead_letters: bool) -> Iterator[list[dict[str, Any]]]:
    subject = DEAD_LETTERS if dead_letters else RECORDS
    arguments = {"QueueARN": queue, "WaitTimeSeconds": 1, "VisibilityTimeoutSeconds": _BROWSE_SECONDS}
    record_ids: set[str] = set()
    handles: list[str] = []
    try:
        while True:
            records = run_sync(call(client, f"receive_{subject}", arguments))["QueueRecords"]
            handles += [record["ReceiptHandle"] for record in records]
            new_records = [record for record in records if record["RecordId"] not in record_ids]
            if not new_records:
                return
            record_ids |= {record["RecordId"] for record in new_records}
            yield new_records
    finally:
        # QUE-12: "Browsing a queue MUST give back at once all that it received."
        entries = [{"ReceiptHandle": handle, "VisibilityTimeoutSeconds": 0} for handle in handles]
        run_sync(call_entries(client, queue, f"update_{subject}_visibility", entries))


def restore_dead_letters(client: Any, queue: str, handles: list[str]) -> dict[str, str]:
    """Give dead letters back to the queue's consumers. Returns the error codes of those that the service
    did not restore, by receipt handle. Raises QueueUnavailable."""
    check_arguments("restore_dead_letters", locals())
    entries = [{"ReceiptHandle": handle} for handle in handles]
    return run_sync(call_entries(client, queue, "restore_dead_letter_queue_records", entries))
