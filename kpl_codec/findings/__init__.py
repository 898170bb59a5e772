"""What can be found on a stream: one vocabulary for `validate`, `watch` and the Lambda functions."""

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
