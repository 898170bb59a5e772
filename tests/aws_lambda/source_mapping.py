"""What Lambda's event source mapping does with a batch and an response, as its guide describes it.

A batch goes to the function; with batchItemFailures in the response everything from the lowest sequence
number reported is sent again; an empty list, or no response at all, moves on; an exception sends the
whole batch again; an identifier that is not in the batch counts as a failure of the whole batch.
https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-batchfailurereporting.html
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def deliver(event: dict[str, Any], function: Callable[[dict[str, Any]], Any], attempts: int = 20) -> int:
    """Send ``event`` until its records are through; how many invocations that took."""
    records = event["Records"]
    for attempt in range(1, attempts + 1):
        sent = json.loads(json.dumps({**event, "Records": records}))
        try:
            response = function(sent)
        except Exception:  # noqa: BLE001 - what the service sees of any of them is a failed invocation
            continue
        response = json.loads(json.dumps(response))
        failed = [item["itemIdentifier"] for item in (response or {}).get("batchItemFailures", [])]
        numbers = [record["kinesis"]["sequenceNumber"] for record in records]
        if not failed:
            return attempt
        if not set(failed) <= set(numbers):
            continue
        records = records[min(map(numbers.index, failed)) :]
    raise AssertionError(f"{len(records)} records not through after {attempts} invocations")
