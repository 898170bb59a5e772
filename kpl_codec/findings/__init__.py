"""What can be found on a stream: one vocabulary for `validate`, `watch` and the Lambda functions.

    `kind`     what a kind of finding is, and how bad it can be
    `kinds`    every kind: `kinds_placement`, `kinds_bytes`, `kinds_input`, `kinds_watch`
    `finding`  one finding and its evidence
"""

from .finding import Finding, order_of
from .kind import SEVERITIES, Kind, Severity, at_least_as_bad
from .kinds import KINDS, kind_of, worst

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
