"""What the error codes of AWS and botocore mean, for readers, writers and shard maps; which answers of
Kinesis were cut short; how long to wait before a call is repeated.

kind          | meaning                                             | does a retry help
--------------+-----------------------------------------------------+---------------------------
throttled     | too many calls or bytes                             | yes, after a wait
invalid       | the service refuses the request's content           | no
refused       | no such stream, no permission, KMS key unusable     | no
unconfigured  | the client has no credentials or no region          | no (a producer waits: roles
              |                                                     | may be attached late)
not-sent      | no connection was made                              | yes; AWS got nothing
other         | every code that is not listed, InternalFailure, 5xx | yes
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

ErrorKind = Literal["throttled", "invalid", "refused", "unconfigured", "not-sent", "other"]

_CODES: Final[dict[ErrorKind, tuple[str, ...]]] = {
    "throttled": (
        "ProvisionedThroughputExceededException", "KMSThrottlingException", "LimitExceededException",
        "ThrottlingException", "Throttling", "RequestLimitExceeded", "TooManyRequestsException", "SlowDown",
        "429",
    ),
    "invalid": (
        "ValidationException", "InvalidArgumentException", "SerializationException", "ParamValidationError",
        "RequestEntityTooLarge", "InvalidInputException",
    ),
    "refused": (
        "ResourceNotFoundException", "EntityNotFoundException", "AccessDeniedException", "AccessDenied",
        "KMSAccessDeniedException", "KMSDisabledException", "KMSInvalidStateException",
        "KMSNotFoundException", "KMSOptInRequired", "UnrecognizedClientException",
        "InvalidSignatureException", "IncompleteSignature", "IncompleteSignatureException",
        "InvalidClientTokenId", "MissingAuthenticationToken", "MissingAuthenticationTokenException",
        "OptInRequired", "UnknownOperationException",
    ),
    "unconfigured": (
        "NoCredentialsError", "PartialCredentialsError", "NoRegionError", "ProfileNotFound",
        "SSOTokenLoadError", "UnauthorizedSSOTokenError",
    ),
    "not-sent": ("ConnectTimeoutError", "EndpointConnectionError", "ProxyConnectionError"),
}  # fmt: skip
_KINDS: Final[dict[str, ErrorKind]] = {code: kind for kind, codes in _CODES.items() for code in codes}


#: What a reader of an error can check, by kind or by code.
_NETWORK: Final = "check the network, the region, and --endpoint-url or a proxy if there is one"
_CHECK: Final[dict[str, str]] = {
    "ReadTimeoutError": _NETWORK,
    "ResponseParserError": _NETWORK,  # somebody else answers
    "ConnectionClosedError": _NETWORK,
    "ResourceNotFoundException": "check the name, the region and the account",
    "UnrecognizedClientException": "check the credentials",
    "InvalidSignatureException": "check the credentials and this machine's clock",
    "NoRegionError": "give --region, or set AWS_DEFAULT_REGION",
    "not-sent": _NETWORK,
    "unconfigured": "give --profile, or set AWS_PROFILE or AWS_ACCESS_KEY_ID",
    "refused": "check what the role or user may do (spec/guides/security.md)",
    "invalid": "check the arguments",
}


def error_kind(code: str) -> ErrorKind:
    """The kind of an error code of AWS, of the name of a botocore exception, or of an HTTP status."""
    # MAP-23: "An error answer that is not AWS's JSON MUST be judged by its HTTP status, which a retry cannot
    # help from 400 to 499, but for 408 and 429."
    if code.isascii() and code.isdigit() and code not in ("408", "429"):
        return "refused" if 400 <= int(code) < 500 else "other"
    return _KINDS.get(code, "other")


def what_to_check(code: str) -> str | None:
    """What to check after an error, as part of a sentence; None where nothing is known but to try again."""
    if code.isascii() and code.isdigit():  # an HTTP status alone: somebody else answers
        return _NETWORK
    return _CHECK.get(code, _CHECK.get(error_kind(code)))


def is_permanent(code: str) -> bool:
    """Whether a retry cannot help a reader or a shard map."""
    return error_kind(code) in ("invalid", "refused", "unconfigured")


def missing_member(answer: Mapping[str, Any], needs: str) -> str | None:
    """The member that an answer of Kinesis lacks (botocore takes a cut one for one without members):
    ``needs``, or one that every record has."""
    if needs not in answer:
        return needs
    for record in answer.get("Records", ()):
        if "Data" not in record:
            return "Records[].Data"
        number = record.get("SequenceNumber")
        if not (isinstance(number, str) and number.isascii() and number.isdigit()):
            return "Records[].SequenceNumber"
    return None


class Backoff(NamedTuple):
    """Waits that grow from ``first`` to at most ``most`` seconds, times ``factor`` after each failure."""

    first: float
    most: float
    factor: float = 2.0

    def seconds(self, failures: int, chance: float = 0.0) -> float:
        """The wait after so many failures before this one. ``chance``: a random number from 0 up to 1, which
        shortens it by at most half, so that many callers do not retry at the same moment."""
        # A larger power may overflow; the wait has long reached its limit by then.
        return float(min(self.most, self.first * self.factor ** min(failures, 64)) * (1 - chance / 2))
