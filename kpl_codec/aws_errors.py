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


class Advice(NamedTuple):
    """What an error code means, who can mend it, and what they have to do. ``who`` "you": whoever runs the
    program; "nobody": it passes, or AWS mends it."""

    means: str
    who: Literal["you", "whoever manages the role", "whoever manages the KMS key",
                 "whoever manages the stream", "nobody"]  # fmt: skip
    todo: str

    @property
    def text(self) -> str:
        """What to do, as part of a sentence."""
        if self.who == "nobody":
            return f"{self.means}; {self.todo}"
        return self.todo if self.who == "you" else f"{self.means}: {self.who} has to {self.todo}"


_THROTTLED: Final = ErrorRule("throttled", "throttled")
_INVALID: Final = ErrorRule("invalid", "invalid")
_REFUSED: Final = ErrorRule("refused", "refused")
# A new role or key takes a while to be known everywhere: a producer retries, a reader fails at once.
_UNKNOWN_ROLE: Final = ErrorRule("refused", "unauthenticated")
_TOO_OLD: Final = ErrorRule("unauthenticated", "unauthenticated")
_UNCONFIGURED: Final = ErrorRule("unconfigured", "not-sent")
_NOT_SENT: Final = ErrorRule("not-sent", "not-sent")
_OTHER: Final = ErrorRule("other", "internal")
# AWS may have got the request.
_NO_ANSWER: Final = ErrorRule("other", "no-answer")

_YOU: Final = "you"
_ROLE: Final = "whoever manages the role"
_KEY: Final = "whoever manages the KMS key"
_STREAM: Final = "whoever manages the stream"
_NOBODY: Final = "nobody"
_WAIT: Final = "it passes, or AWS mends it: try again"
_NETWORK: Final = Advice(
    "Kinesis was not reached, or something else has answered: a proxy, a login page",
    _YOU,
    "check the network, the region, and the endpoint URL or a proxy if there is one",
)
_CALLS: Final = Advice("the account makes more calls than the service takes", _NOBODY, _WAIT)
_KEY_UNUSABLE: Final = Advice(
    "the stream's KMS key cannot be used",
    _KEY,
    "check that it is a symmetric key that encrypts, and its grants, key store and key material",
)
_ARGUMENTS: Final = Advice("the service refuses what was given", _YOU, "check the arguments")
_PROFILE: Final = Advice(
    "the call for credentials was refused",
    _YOU,
    "check where the credentials come from: role_arn, source_profile and the sso settings of the profile",
)
_CREDENTIALS: Final = Advice("the credentials are not known to AWS", _YOU, "check the credentials")
_OR_ELSEWHERE: Final = "it may be past the retention period, or of another stream"
#: For a sequence number, and for a shard, that the service does not have.
NO_RECORD: Final = f"no record has this sequence number: {_OR_ELSEWHERE} or shard"
NO_SHARD: Final = (
    f"the stream has no such shard: {_OR_ELSEWHERE}; "
    "`kpl-codec shards list --stream NAME --closed` has all ids"
)
_CONFIG: Final = Advice(
    "a setting of the client is wrong", _YOU, "check the file that AWS_CONFIG_FILE names (~/.aws/config)"
)

#: The rule, the advice, and the codes of AWS and exceptions of botocore that have both. A code of a call for
#: credentials has the call before it. To change what is done about one code, move it to the row that it
#: should have, or give it a row of its own. A code without a row is judged by `_GENERAL`; but each exception
#: of botocore has one, as no pattern of names tells whether anything was sent (PRD-36).
_TABLE: Final[tuple[tuple[ErrorRule, Advice, str], ...]] = (
    # -- the stream
    (
        _THROTTLED,
        Advice(
            "more is put on a shard, or read from it, than it takes",
            _STREAM,
            "add shards, or what is put has to become less",
        ),
        "ProvisionedThroughputExceededException",
    ),
    (_THROTTLED, _CALLS, "SlowDown 429 TransactionInProgressException PriorRequestNotComplete"),
    (
        _REFUSED,
        Advice("there is no such stream", _YOU, "check the name, the region and the account"),
        "ResourceNotFoundException EntityNotFoundException",
    ),
    (
        _REFUSED,
        Advice(
            "the role or user may not do this",
            _YOU,
            "check what the role or user may do, and the stream's resource policy (spec/guides/security.md)",
        ),
        "AccessDeniedException AccessDenied",
    ),
    (
        _OTHER,
        Advice("the stream is being made, changed or deleted", _NOBODY, _WAIT),
        "ResourceInUseException",
    ),
    (
        _OTHER,
        Advice(
            "a listing of shards contradicts itself or an earlier one", _NOBODY, "a newer one is asked for"
        ),
        "gap overlap contradiction duplicate cycle",
    ),
    # -- the KMS key of the stream
    (
        _REFUSED,
        Advice(
            "the role or user may not use the stream's KMS key",
            _KEY,
            "allow kms:GenerateDataKey (to put) or kms:Decrypt (to read), in the key's policy, too",
        ),
        "KMSAccessDeniedException",
    ),
    (
        _REFUSED,
        Advice("the stream's KMS key is disabled", _KEY, "enable it"),
        "KMSDisabledException DisabledException",
    ),
    (
        _REFUSED,
        Advice(
            "the stream's KMS key is in a state that forbids its use, as before its deletion",
            _KEY,
            "cancel its deletion, or give it its key material",
        ),
        "KMSInvalidStateException",
    ),
    (
        _REFUSED,
        Advice(
            "the stream's KMS key does not exist (any more), or not in this region",
            _STREAM,
            "choose another key for the stream",
        ),
        "KMSNotFoundException NotFoundException InvalidArnException InvalidAliasNameException",
    ),
    (
        _REFUSED,
        Advice("the account has not subscribed to a service", _YOU, "sign up for it in the AWS console"),
        "KMSOptInRequired OptInRequired",
    ),
    # (codes of KMS that do not look like it: `_KEY_UNUSABLE` is for all others of its codes)
    (
        _REFUSED,
        _KEY_UNUSABLE,
        """InvalidKeyUsageException IncorrectKeyException InvalidCiphertextException
        UnsupportedOperationException InvalidGrantTokenException InvalidGrantIdException
        AlreadyExistsException ConflictException ExpiredImportTokenException IncorrectKeyMaterialException
        IncorrectTrustAnchorException InvalidImportTokenException InvalidMarkerException TagException""",
    ),
    # -- what was sent
    (
        _INVALID,
        _ARGUMENTS,
        """ValidationException InvalidArgumentException SerializationException RequestEntityTooLarge
        InvalidInputException ParamValidationError""",
    ),
    (_REFUSED, _NETWORK, "UnknownOperationException DryRunOperationException"),
    # -- credentials
    (_UNKNOWN_ROLE, _CREDENTIALS, "UnrecognizedClientException InvalidClientTokenId"),
    (
        _REFUSED,
        Advice(
            "the signature is wrong: the secret key, or a proxy that changes requests",
            _YOU,
            "check the credentials and this machine's clock",
        ),
        """InvalidSignatureException SignatureDoesNotMatch IncompleteSignature IncompleteSignatureException
        MissingAuthenticationToken MissingAuthenticationTokenException""",
    ),
    (
        _TOO_OLD,
        Advice(
            "the credentials, or the signature, have expired",
            _YOU,
            "check this machine's clock, and where the credentials come from",
        ),
        "ExpiredTokenException ExpiredToken RequestExpired RequestTimeTooSkewed ExpiredTradeInTokenException",
    ),
    (
        _REFUSED,
        Advice(
            "the role may not be assumed with these credentials",
            _ROLE,
            "trust this user, role or identity in its trust policy; and sts:AssumeRole must be allowed",
        ),
        """AssumeRole.AccessDenied AssumeRole.AccessDeniedException AssumeRoleWithWebIdentity.AccessDenied
        AssumeRoleWithWebIdentity.AccessDeniedException AssumeRoleWithSAML.AccessDenied""",
    ),
    (
        _REFUSED,
        Advice(
            "the identity's token is refused",
            _ROLE,
            "check the identity provider and the audience in the role's trust policy",
        ),
        "InvalidIdentityToken IDPRejectedClaim JWTPayloadSizeExceededException",
    ),
    (_OTHER, Advice("the identity provider was not reached", _NOBODY, _WAIT), "IDPCommunicationError"),
    (
        _REFUSED,
        Advice(
            "the session asks for more than the role gives, or its policy cannot be used",
            _YOU,
            "check the session's policy and duration_seconds of the profile",
        ),
        """MalformedPolicyDocument MalformedPolicyDocumentException PackedPolicyTooLarge
        SessionDurationEscalationException InvalidAuthorizationMessageException""",
    ),
    (
        _REFUSED,
        Advice(
            "STS is switched off for this account, in this region or for this use",
            _ROLE,
            "switch it on in IAM's account settings",
        ),
        "RegionDisabledException OutboundWebIdentityFederationDisabledException",
    ),
    (
        _UNCONFIGURED,
        Advice("no credentials were found", _YOU, "set AWS_PROFILE or AWS_ACCESS_KEY_ID"),
        "NoCredentialsError PartialCredentialsError UnknownCredentialError",
    ),
    (
        _UNCONFIGURED,
        Advice("there is no such profile", _YOU, "`aws configure list-profiles` shows which there are"),
        "ProfileNotFound",
    ),
    (
        _UNCONFIGURED,
        Advice("the login of the profile has ended", _YOU, "log in again: aws sso login, or aws login"),
        """SSOTokenLoadError UnauthorizedSSOTokenError LoginTokenLoadError LoginRefreshRequired
        LoginInsufficientPermissions LoginAuthorizationCodeError NoAuthTokenError
        RefreshWithMFAUnsupportedError UnknownTokenProviderError""",
    ),
    # -- the client's settings
    (
        _UNCONFIGURED,
        Advice("there is no region, or none of that name", _YOU, "give a region, or set AWS_DEFAULT_REGION"),
        "NoRegionError InvalidRegionError UnknownRegionError UnknownEndpointError ServiceNotInRegionError",
    ),
    (
        _UNCONFIGURED,
        _CONFIG,
        """ConfigNotFound ConfigParseError InfiniteLoopConfigError InvalidConfigError
        UnknownFIPSEndpointError EndpointVariantError BaseEndpointResolverError
        InvalidEndpointConfigurationError InvalidIMDSEndpointError InvalidIMDSEndpointModeError
        InvalidProxiesConfigError InvalidRetryConfigurationError InvalidMaxRetryAttemptsError
        InvalidRetryModeError InvalidDefaultsMode InvalidChecksumConfigError InvalidDNSNameError
        InvalidEndpointDiscoveryConfigurationError InvalidSTSRegionalEndpointsConfigError
        InvalidS3AddressingStyleError InvalidS3UsEast1RegionalEndpointConfigError
        UnknownSignatureVersionError UnsupportedSignatureVersionError""",
    ),
    (
        _UNCONFIGURED,
        Advice("botocore is not whole, or too old", _YOU, "install boto3 anew"),
        """UnsupportedServiceProtocolsError MissingDependencyException MD5UnavailableError DataNotFoundError
        ApiVersionNotFoundError UnknownServiceError UnknownServiceStyle UnknownClientMethodError""",
    ),
    # -- the connection
    (
        _NOT_SENT,
        _NETWORK,
        """ConnectTimeoutError EndpointConnectionError ProxyConnectionError SSLCertVerificationError
        CapacityNotAvailableError EndpointDiscoveryException EndpointDiscoveryRefreshFailed
        EndpointDiscoveryRequired StubResponseError StubAssertionError UnStubbedResponseError
        WaiterConfigError OperationNotPageableError""",
    ),
    (
        _NOT_SENT,
        Advice(
            "what gives out the credentials has failed",
            _YOU,
            "check where the credentials come from: the metadata service, credential_process or the login",
        ),
        "CredentialRetrievalError MetadataRetrievalError TokenRetrievalError SSOError LoginError",
    ),
    (
        _NOT_SENT,
        Advice(
            "no endpoint can be made of the stream's name or ARN and the region",
            _YOU,
            "check the stream's name or ARN, and the region",
        ),
        """EndpointProviderError EndpointResolutionError UnknownEndpointResolutionBuiltInName
        InvalidHostLabelError InvalidExpressionError MissingParametersError ValidationError RangeError
        UnknownKeyError UnknownParameterError AliasConflictParameterError UnsupportedOutpostResourceError
        UnsupportedS3AccesspointConfigurationError UnsupportedS3ArnError UnsupportedS3ConfigurationError
        UnsupportedS3ControlArnError UnsupportedS3ControlConfigurationError""",
    ),
    (
        _OTHER,
        Advice("the service has an error of its own", _NOBODY, _WAIT),
        """InternalFailure InternalFailureException InternalServerError ServiceUnavailable EventStreamError
        ExpiredIteratorException ExpiredNextTokenException KMSInternalException KeyUnavailableException
        DependencyTimeoutException""",
    ),
    # (botocore raises ResponseParserError if a server other than AWS has answered; from NoAnswer on the codes
    # are of a producer and of a listing.)
    (
        _NO_ANSWER,
        _NETWORK,
        """ReadTimeoutError ResponseParserError ConnectionClosedError NoAnswer CountMismatch MalformedAnswer
        RepeatedAnswer malformed""",
    ),
    (_OTHER, Advice("an answer of the service was not whole", _NOBODY, _WAIT), "IncompleteAnswer"),
    (
        _OTHER,
        Advice(
            "the stream has no consumer of this name that is active",
            _NOBODY,
            "register it: `aws kinesis register-stream-consumer`; a new one takes some seconds",
        ),
        "ConsumerNotFound",
    ),
    (
        _OTHER,
        Advice(
            f"no record has the number at which reading begins or goes on: {_OR_ELSEWHERE} or shard",
            _NOBODY,
            "begin at TRIM_HORIZON; what was between is gone",
        ),
        "RecordTrimmed",
    ),
    (
        _NO_ANSWER,
        Advice("the connection has broken", _NOBODY, _WAIT),
        """HTTPClientError ConnectionError ResponseStreamingError IncompleteReadError SSLError ChecksumError
        FlexibleChecksumError AwsChunkedWrapperError UnseekableStreamError PaginationError WaiterError""",
    ),
)
#: Codes that this library gives to an answer of a service, or to none.
OWN_CODES: Final = frozenset({
    "NoAnswer", "CountMismatch", "MalformedAnswer", "RepeatedAnswer",
    "IncompleteAnswer", "ConsumerNotFound", "RecordTrimmed",
})  # fmt: skip
_ROWS: Final = {code: (rule, advice) for rule, advice, codes in _TABLE for code in codes.split()}
#: The codes of AWS and of boto3 that have a row. (A code in small letters is that of a `ShardMapError`.)
AWS_CODES: Final = frozenset(code for code in _ROWS if not code.islower()) - OWN_CODES
#: The rule and the advice of codes that have no row in `_TABLE`: the first pattern that fits the whole code.
_GENERAL: Final = (
    (re.compile(r"\w*(Throttl|TooManyRequests|LimitExceeded)\w*"), _THROTTLED, _CALLS),
    (re.compile(r"(KMS|CloudHsm|CustomKeyStore|Xks)\w+"), _REFUSED, _KEY_UNUSABLE),
)
_UNKNOWN: Final = Advice("the code is not known here", "nobody", "AWS's documentation may say what it means")
#: Advice that holds for calls to the stream only, not for those that get credentials.
_OF_STREAM: Final = tuple(
    _ROWS[code][1]
    # (STS has a ValidationError, too, and botocore an exception of that name.)
    for code in ("ResourceNotFoundException", "AccessDenied", "ValidationException", "ValidationError")
)
#: What a call asked for that the service, or a server like it, does not have, by the error's text: its code
#: is also that of a stream that is not there, or of a wrong argument. (No name of a stream has a space.)
_MISSING: Final[tuple[tuple[re.Pattern[str], Literal["record", "shard"], Advice], ...]] = (
    (
        re.compile(r"Invalid StartingSequenceNumber|SequenceNumber[ (]+(SequenceNumber[ (]+)?\d"),
        "record",
        Advice("no record has this sequence number", _YOU, NO_RECORD),
    ),
    (
        # The service takes a shard for its id and for a part of it, and names what it was given.
        re.compile(r"\bshard(Id)? (shardId-|\S+ in stream )", re.IGNORECASE),
        "shard",
        Advice("the stream has no such shard", _YOU, NO_SHARD),
    ),
)
_MISSING_CODES: Final = ("ResourceNotFoundException", "InvalidArgumentException")
#: The texts by which the service says that a request was signed too long ago, or in its future.
_CLOCK: Final = re.compile("signature (expired|not yet current)", re.IGNORECASE)


def _row_of(code: str) -> tuple[ErrorRule, Advice]:
    """The rule and the advice of a code or, if it has none with the call before it, of the code alone."""
    name = code.rpartition(".")[2]
    if found := _ROWS.get(code) or _ROWS.get(name):
        return found
    for pattern, rule, advice in _GENERAL:
        if pattern.fullmatch(name):
            return rule, advice
    return _OTHER, _UNKNOWN


def rule_of(code: str, reason: str = "") -> ErrorRule:
    """The rule for an error code of AWS, the name of a botocore exception, or an HTTP status. ``reason``: the
    error's text. "AssumeRole.ExpiredToken" is the code of a call for credentials."""
    # MAP-23: "An error answer that is not AWS's JSON MUST be judged by its HTTP status, which a retry cannot
    # help from 400 to 499, but for 408 and 429."
    if code.isascii() and code.isdigit() and code not in ("408", "429"):
        return _REFUSED if 400 <= int(code) < 500 else _OTHER
    rule, _ = _row_of(code)
    if rule.kind == "refused" and _CLOCK.match(reason):
        rule = _TOO_OLD
    if code.rpartition(".")[0]:
        return ErrorRule("unconfigured" if rule.kind in _PERMANENT else "not-sent", "not-sent")
    return rule


def error_kind(code: str, reason: str = "") -> ErrorKind:
    """The kind of an error. Arguments as of `rule_of`."""
    return rule_of(code, reason).kind


def missing_part(code: str, reason: str) -> Literal["record", "shard"] | None:
    """What a call named that its stream does not have; None for another error, as for a stream that is not
    there. Arguments as of `rule_of`."""
    found = (part for pattern, part, _ in _MISSING if code in _MISSING_CODES and pattern.search(reason))
    return next(found, None)


def advice_of(code: str, reason: str = "") -> Advice:
    """What an error means, who can mend it, and how. Arguments as of `rule_of`."""
    part = missing_part(code, reason)
    if part is not None:
        return next(advice for _, name, advice in _MISSING if name == part)
    if code.isascii() and code.isdigit() and code not in _ROWS:  # another server than AWS has answered
        return _NETWORK
    _, advice = _row_of(code)
    return _PROFILE if code.rpartition(".")[0] and advice in _OF_STREAM else advice


def what_to_check(code: str, reason: str = "") -> str | None:
    """What to do after an error, as part of a sentence; None where there is nothing to do but to retry."""
    advice = advice_of(code, reason)
    return None if advice.who == "nobody" else advice.text


#: Clearer texts for two of botocore's exceptions.
_PLAIN: Final = {"NoCredentialsError": "no credentials", "NoRegionError": "no region"}


def failure_text(code: str, reason: str) -> str:
    """What failed and what to check, as a sentence without its full stop. It names AWS's codes, and of
    botocore's exceptions only what they say, not their classes."""
    check = what_to_check(code, reason)
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
    # MAP-30: "An answer of GetRecords that does not say how far the reader is behind MUST be taken for a call
    # that failed, unless it ends the shard: it may be at the tip, or not."
    goes_on = needs == "Records" and response.get("NextShardIterator") is not None
    if goes_on and response.get("MillisBehindLatest") is None:
        return "MillisBehindLatest"
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
