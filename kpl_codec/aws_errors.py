"""The error codes of AWS and botocore, and what readers, producers and shard maps do about each; the wait
before a call is repeated; the check for responses of Kinesis that were cut short.

kind            | meaning                                             | does a retry help
----------------+-----------------------------------------------------+---------------------------
throttled       | too many calls or bytes                             | yes, after a wait
invalid         | the service refuses the request's content           | no
refused         | no such stream, no permission, KMS key unusable     | no
unauthenticated | signature or token were too old, or too new         | yes, signed anew
unconfigured    | the client has no credentials or no region          | no (a producer waits: roles
                |                                                     | may be attached late)
not-sent        | no connection, or the credentials did not come      | yes; AWS got nothing
other           | InternalFailure, 5xx, no whole response, and every  | yes
                | code that is not listed                             |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal, NamedTuple

ErrorKind = Literal[
    "throttled", "invalid", "refused", "unauthenticated", "unconfigured", "not-sent", "other"
]  # fmt: skip


class ErrorRule(NamedTuple):
    """What is done about an error code. ``kind``: decides for readers, watch and shard maps. ``producer``:
    the producer's outcome of a PutRecords call that failed with it (spec/05, 5.5).

    A rule has no number of retries: as in the KPL, a user record is retried until its time to live is over.
    """

    kind: ErrorKind
    producer: Literal[
        "throttled", "invalid", "refused", "unauthenticated", "not-sent", "internal", "no-answer"
    ]  # fmt: skip


#: Each code of AWS and each exception of botocore, by its rule. To change what is done about one code,
#: move it to the line with the rule it should have, or give it a line of its own.
_TABLE: Final[tuple[tuple[ErrorRule, str], ...]] = (
    (
        ErrorRule("throttled", "throttled"),
        """ProvisionedThroughputExceededException KMSThrottlingException LimitExceededException
        ThrottlingException Throttling RequestLimitExceeded TooManyRequestsException SlowDown 429
        ThrottledException RequestThrottledException RequestThrottled EC2ThrottledException
        BandwidthLimitExceeded TransactionInProgressException PriorRequestNotComplete""",
    ),
    (
        ErrorRule("invalid", "invalid"),
        """ValidationException InvalidArgumentException SerializationException RequestEntityTooLarge
        InvalidInputException ParamValidationError""",
    ),
    (
        ErrorRule("refused", "refused"),
        """ResourceNotFoundException EntityNotFoundException AccessDeniedException AccessDenied
        KMSAccessDeniedException KMSDisabledException KMSInvalidStateException KMSNotFoundException
        KMSOptInRequired OptInRequired UnknownOperationException IncompleteSignature
        IncompleteSignatureException InvalidSignatureException SignatureDoesNotMatch InvalidIdentityToken
        MissingAuthenticationToken MissingAuthenticationTokenException DryRunOperationException""",
    ),
    # A new role or key takes a while to be known everywhere: a producer retries, a reader fails at once.
    (ErrorRule("refused", "unauthenticated"), "UnrecognizedClientException InvalidClientTokenId"),
    (
        ErrorRule("unauthenticated", "unauthenticated"),
        "ExpiredTokenException ExpiredToken RequestExpired RequestTimeTooSkewed",
    ),
    (
        ErrorRule("unconfigured", "not-sent"),
        """NoCredentialsError PartialCredentialsError NoRegionError ProfileNotFound SSOTokenLoadError
        UnauthorizedSSOTokenError LoginTokenLoadError LoginRefreshRequired LoginInsufficientPermissions
        LoginAuthorizationCodeError NoAuthTokenError RefreshWithMFAUnsupportedError UnknownCredentialError
        UnknownTokenProviderError ConfigNotFound ConfigParseError InfiniteLoopConfigError InvalidConfigError
        InvalidRegionError UnknownRegionError UnknownEndpointError UnknownFIPSEndpointError
        EndpointVariantError BaseEndpointResolverError ServiceNotInRegionError
        InvalidEndpointConfigurationError InvalidIMDSEndpointError InvalidIMDSEndpointModeError
        InvalidProxiesConfigError InvalidRetryConfigurationError InvalidMaxRetryAttemptsError
        InvalidRetryModeError InvalidDefaultsMode InvalidChecksumConfigError InvalidDNSNameError
        InvalidEndpointDiscoveryConfigurationError InvalidSTSRegionalEndpointsConfigError
        InvalidS3AddressingStyleError InvalidS3UsEast1RegionalEndpointConfigError
        UnknownSignatureVersionError UnsupportedSignatureVersionError UnsupportedServiceProtocolsError
        MissingDependencyException MD5UnavailableError DataNotFoundError ApiVersionNotFoundError
        UnknownServiceError UnknownServiceStyle UnknownClientMethodError""",
    ),
    (
        ErrorRule("not-sent", "not-sent"),
        """ConnectTimeoutError EndpointConnectionError ProxyConnectionError SSLCertVerificationError
        CapacityNotAvailableError
        CredentialRetrievalError MetadataRetrievalError TokenRetrievalError SSOError LoginError
        EndpointProviderError EndpointResolutionError UnknownEndpointResolutionBuiltInName
        EndpointDiscoveryException EndpointDiscoveryRefreshFailed EndpointDiscoveryRequired
        InvalidHostLabelError InvalidExpressionError MissingParametersError ValidationError RangeError
        UnknownKeyError UnknownParameterError AliasConflictParameterError OperationNotPageableError
        StubResponseError StubAssertionError UnStubbedResponseError UnsupportedOutpostResourceError
        UnsupportedS3AccesspointConfigurationError UnsupportedS3ArnError UnsupportedS3ConfigurationError
        UnsupportedS3ControlArnError UnsupportedS3ControlConfigurationError WaiterConfigError""",
    ),
    (
        ErrorRule("other", "internal"),
        """InternalFailure InternalFailureException InternalServerError ServiceUnavailable
        ExpiredIteratorException ExpiredNextTokenException ResourceInUseException
        EventStreamError""",
    ),
    # AWS may have got the request.
    (
        ErrorRule("other", "no-answer"),
        """HTTPClientError ReadTimeoutError ConnectionClosedError ConnectionError ResponseStreamingError
        IncompleteReadError SSLError ChecksumError FlexibleChecksumError AwsChunkedWrapperError
        UnseekableStreamError PaginationError WaiterError ResponseParserError""",
    ),
)
_RULES: Final = {code: rule for rule, codes in _TABLE for code in codes.split()}
_NOT_LISTED: Final = ErrorRule("other", "internal")
#: The texts by which the service says that a request was signed too long ago, or in its future.
_CLOCK: Final = re.compile("signature (expired|not yet current)", re.IGNORECASE)


_NETWORK: Final = "check the network, the region, and the endpoint URL or a proxy if there is one"
#: What to check, by codes and kinds of errors.
_ADVICE_TABLE: Final = (
    # botocore raises ResponseParserError if a server other than AWS has answered.
    (_NETWORK, "ReadTimeoutError ResponseParserError ConnectionClosedError not-sent"),
    ("check the name, the region and the account", "ResourceNotFoundException"),
    ("check the credentials", "UnrecognizedClientException"),
    ("check the credentials and this machine's clock", "InvalidSignatureException"),
    (
        "give a region, or set AWS_DEFAULT_REGION",
        "NoRegionError InvalidRegionError UnknownRegionError UnknownEndpointError ServiceNotInRegionError",
    ),
    (
        "check the file that AWS_CONFIG_FILE names (~/.aws/config)",
        "ConfigNotFound ConfigParseError InvalidConfigError InfiniteLoopConfigError",
    ),
    ("`aws configure list-profiles` shows which there are", "ProfileNotFound"),
    ("check this machine's clock, and where the credentials come from", "unauthenticated"),
    ("set AWS_PROFILE or AWS_ACCESS_KEY_ID", "unconfigured"),
    ("check what the role or user may do (spec/guides/security.md)", "refused"),
    ("check the arguments", "invalid"),
)
_ADVICE: Final = {code: advice for advice, codes in _ADVICE_TABLE for code in codes.split()}


def rule_of(code: str, reason: str = "") -> ErrorRule:
    """The rule for an error code of AWS, the name of a botocore exception, or an HTTP status. ``reason``: the
    error's text. "AssumeRole.ExpiredToken" is the code of a call for credentials."""
    # MAP-23: "An error answer that is not AWS's JSON MUST be judged by its HTTP status, which a retry cannot
    # help from 400 to 499, but for 408 and 429."
    if code.isascii() and code.isdigit() and code not in ("408", "429"):
        return ErrorRule("refused", "refused") if 400 <= int(code) < 500 else _NOT_LISTED
    call, _, name = code.rpartition(".")
    rule = _RULES.get(name, _NOT_LISTED)
    if rule.kind == "refused" and _CLOCK.match(reason):
        rule = _RULES["RequestExpired"]
    if call:
        return ErrorRule("unconfigured" if rule.kind in _PERMANENT else "not-sent", "not-sent")
    return rule


def error_kind(code: str, reason: str = "") -> ErrorKind:
    """The kind of an error. Arguments as of `rule_of`."""
    return rule_of(code, reason).kind


def what_to_check(code: str) -> str | None:
    """What to check after an error, as part of a sentence; None where there is no better advice than a
    retry."""
    if code.isascii() and code.isdigit():  # an HTTP status alone: another server than AWS has answered
        return _NETWORK
    return _ADVICE.get(code, _ADVICE.get(error_kind(code)))


#: Clearer texts for two of botocore's exceptions.
_PLAIN: Final = {"NoCredentialsError": "no credentials", "NoRegionError": "no region"}


def failure_text(code: str, reason: str) -> str:
    """What failed and what to check, as a sentence without its full stop. It names AWS's codes, and of
    botocore's exceptions only what they say, not their classes."""
    check = what_to_check(code)
    if code in _PLAIN:
        return f"{_PLAIN[code]}: {check}"
    never_answered = "." not in code and rule_of(code).producer in ("not-sent", "no-answer")
    of_botocore = never_answered or code == "ParamValidationError"
    what = reason.rstrip(".") or code
    if reason and not of_botocore:
        what = f"{code}: {what}"
    return f"{what}; {check}" if check else what


@contextmanager
def region_named() -> Iterator[None]:
    """A context in which botocore makes a client: its NoRegionError says what to do."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "NoRegionError":
            raise
        error.args = ("no region: give region, or set AWS_DEFAULT_REGION",)
        raise error.with_traceback(None) from None


_PERMANENT: Final = ("invalid", "refused", "unconfigured")


def is_permanent(code: str, reason: str = "") -> bool:
    """Whether a retry cannot help a reader or a shard map. Arguments as of `rule_of`."""
    return error_kind(code, reason) in _PERMANENT


def missing_member(response: Mapping[str, Any], needs: str) -> str | None:
    """The member that a response of Kinesis lacks: ``needs``, or one that every record has. botocore reads a
    response that was cut short as one without members."""
    if needs not in response:
        return needs
    for record in response.get("Records", ()):
        if "Data" not in record:
            return "Records[].Data"
        number = record.get("SequenceNumber")
        if not (isinstance(number, str) and number.isascii() and number.isdigit()):
            return "Records[].SequenceNumber"
    return None


class Backoff(NamedTuple):
    """Waits that grow from ``first`` to ``most`` seconds, by ``factor`` with each failure."""

    first: float
    most: float
    factor: float = 2.0

    def seconds(self, failures: int, chance: float = 0.0) -> float:
        """The wait in seconds, after ``failures`` earlier ones. ``chance``: a random number from 0 to 1,
        which shortens it by at most half, so that many callers do not retry at the same moment."""
        # 64: larger powers may overflow, and the wait has reached its limit long before.
        return float(min(self.most, self.first * self.factor ** min(failures, 64)) * (1 - chance / 2))
