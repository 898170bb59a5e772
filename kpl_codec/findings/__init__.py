"""What can be found on a stream: one vocabulary for `validate`, `watch` and the Lambda functions.

`kind`     what a kind of finding is, and how bad it can be
`kinds_placement`, `kinds_bytes`, `kinds_input`, `kinds_watch`, `kinds_audit`  every kind
`finding`  one finding and its evidence
"""

from .finding import KINDS, Finding, kind_of, order_of, worst
from .kind import SEVERITIES, Kind, Severity, at_least_as_bad

__all__ = [
    "KINDS",
    "SEVERITIES",
    "Finding",
    "Kind",
    "Severity",
    "at_least_as_bad",
    "kind_of",
    "order_of",
    "worst",
]
