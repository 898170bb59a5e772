"""The table of AWS's error codes, against botocore's description of the service; waits after failures."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterator
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec import aws_errors
from kpl_codec.aws_errors import (
    _PERMANENT,
    _TABLE,
    _UNKNOWN,
    NO_RECORD,
    NO_SHARD,
    Advice,
    Backoff,
    ErrorKind,
    advice_of,
    error_kind,
    failure_text,
    is_permanent,
    rule_of,
    what_to_check,
)

NAMES = [code for _, _, codes in _TABLE for code in codes.split()]
#: The exceptions of botocore after which the service may have taken the call, by the producer's outcome.
#: After all others nothing was sent: a user record that is sent again is no second one.
MAY_BE_SENT = {
    "no-answer": """
        ReadTimeoutError ConnectionClosedError HTTPClientError ConnectionError
        ResponseStreamingError IncompleteReadError SSLError ChecksumError FlexibleChecksumError
        AwsChunkedWrapperError UnseekableStreamError PaginationError WaiterError""",
    "internal": "EventStreamError",
    "invalid": "ParamValidationError",
}


def test_each_code_has_one_row() -> None:
    assert max(Counter(NAMES).values()) == 1


def errors_of(service: str) -> set[str]:
    """The error codes of a service, by botocore's description of it."""
    model = pytest.importorskip("botocore.session").get_session().get_service_model(service)
    errors = [shape for shape in map(model.shape_for, model.shape_names) if shape.metadata.get("exception")]
    return {shape.metadata.get("error", {}).get("code", shape.name) for shape in errors}


@pytest.mark.requirement("PRD-36")
def test_every_exception_of_botocore_and_each_code_of_a_put_is_decided() -> None:
    """Whoever updates botocore decides about a new one: was anything sent, and does a retry help? A row of
    the table, and no pattern, says so of botocore's own."""
    botocore = pytest.importorskip("botocore")
    for module in pkgutil.iter_modules(botocore.__path__):
        if module.name not in ("crt", "compat") and not module.ispkg:
            importlib.import_module(f"botocore.{module.name}")
    from botocore.exceptions import BotoCoreError, ClientError

    def below(kind: type[Exception]) -> Iterator[type[Exception]]:
        for one in kind.__subclasses__():
            yield one
            yield from below(one)

    classes = {*below(BotoCoreError), *below(ClientError)}
    # (Those of `errorfactory` are made of a service's model when its client is made.)
    modules = {one: one.__module__ for one in classes if one.__module__ != "botocore.errorfactory"}
    names = {one.__name__ for one, module in modules.items() if module.partition(".")[0] == "botocore"}
    codes = {service: errors_of(service) for service in ("kinesis", "sts", "kms")}
    assert len(names) > 90
    assert min(map(len, codes.values())) > 8
    assert names - {*NAMES} == set()
    of_no_row = {code for code in set().union(*codes.values()) if advice_of(code) == _UNKNOWN}
    assert of_no_row == set()
    may_be_sent = {name: outcome for outcome, row in MAY_BE_SENT.items() for name in row.split()}
    outcomes = {name: rule_of(name).producer for name in names}
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "not-sent"} == may_be_sent


def test_a_code_without_a_row_is_judged_by_its_name_and_else_retried() -> None:
    never_seen = {
        "SomethingThrottledException": "throttled", "SomeLimitExceeded": "throttled", "KMSNew": "refused",
        "XksNewException": "refused", "KMS": "other", "NewError": "other", "InvalidNewError": "other",
        "NewConfigError": "other", "a line: Throttled": "other", "": "other",
    }  # fmt: skip
    assert {code: kind for code in never_seen if (kind := error_kind(code)) != never_seen[code]} == {}
    # PRD-36: of no name that is not listed it is known that nothing was sent.
    assert "not-sent" not in {rule_of(code).producer for code in never_seen}


def test_what_botocore_takes_for_throttling_is_throttling() -> None:
    retries = pytest.importorskip("botocore.retries.standard")
    codes = retries.ThrottledRetryableChecker._THROTTLED_ERROR_CODES
    assert {code for code in codes if error_kind(code) != "throttled"} == set()


def test_a_signature_of_another_time_is_signed_anew_and_a_wrong_one_is_not() -> None:
    for code in ("InvalidSignatureException", "SignatureDoesNotMatch"):
        for text in ("Signature expired: 2026", "Signature not yet current: 2026"):
            assert rule_of(code, text).producer == "unauthenticated", (code, text)
            assert not is_permanent(code, text), (code, text)
        assert rule_of(code, "The signature does not match").producer == "refused", code
        assert is_permanent(code), code


def test_an_error_of_another_call_is_never_the_answer_of_ours() -> None:
    of_a_role = {name: rule_of(f"AssumeRole.{name}").producer for name in NAMES}
    assert {name for name, outcome in of_a_role.items() if outcome != "not-sent"} == set()
    assert {name for name in NAMES if is_permanent(f"AssumeRole.{name}") != is_permanent(name)} == set()


def test_every_error_of_the_calls_we_make_is_listed_or_passes() -> None:
    model = pytest.importorskip("botocore.session").get_session().get_service_model("kinesis")
    passes = {
        "DryRunOperationException",  # we never ask for a dry run
        "ExpiredIteratorException",
        "ExpiredNextTokenException",
        "InternalFailureException",
        "ResourceInUseException",
    }
    for call in ("PutRecords", "ListShards", "DescribeStreamSummary", "GetShardIterator", "GetRecords"):
        errors = {shape.name for shape in model.operation_model(call).error_shapes}
        assert {name for name in errors if error_kind(name) == "other"} <= passes, call


def test_each_row_says_what_it_means_who_can_mend_it_and_what_to_do() -> None:
    for code in NAMES:
        advice = advice_of(code)
        assert min(len(advice.means), len(advice.todo)) > 5, code
        assert advice.who in get_args(get_type_hints(Advice)["who"]), code
        assert (what_to_check(code) is None) == (advice.who == "nobody"), code
        assert not is_permanent(code) or advice.who != "nobody", f"{code}: nobody mends what no retry mends"


NUMBER = "49545115243490985018280067714973144582180062593244200961"
#: What AWS and servers like it say of a sequence number, a shard and a stream that they do not have.
MISSING = {
    f"StartingSequenceNumber {NUMBER} used in GetShardIterator on shard shardId-000000000000 in stream s "
    "under account 1 is invalid because it did not come from this stream.": NO_RECORD,
    "Invalid StartingSequenceNumber. It encodes shardId-000000000000, while it was used in a call to a shard "
    "with shardId-000000000001": NO_RECORD,
    f"Unable to find record with provided SequenceNumber SequenceNumber({NUMBER}) in stream s": NO_RECORD,
    "Shard shardId-000000000077 in stream s under account 1 does not exist": NO_SHARD,
    "Could not find shardId shardId-000000000077 in stream s": NO_SHARD,
    "Could not find shardId 0 in stream s": NO_SHARD,
    "Shard 0 in stream s under account 1 does not exist": NO_SHARD,
    "Stream shardId-SequenceNumber-1 under account 1 not found.": "check the name, the region and the "
    "account",
}


def test_what_a_stream_does_not_have_is_no_wrong_name_of_the_stream() -> None:
    for reason, advice in MISSING.items():
        assert failure_text("ResourceNotFoundException", reason).endswith(f"; {advice}"), reason
        if advice in (NO_RECORD, NO_SHARD):
            assert failure_text("InvalidArgumentException", reason).endswith(f"; {advice}"), reason
        assert "no record" not in failure_text("AccessDeniedException", reason), reason


def test_advice_is_of_the_cause() -> None:
    cases = [
        ("AssumeRole.AccessDenied", "trust policy", "AWS_PROFILE"),
        ("AssumeRoleWithWebIdentity.InvalidIdentityToken", "identity provider", "AWS_PROFILE"),
        ("AssumeRole.RegionDisabledException", "IAM's account settings", "profile"),
        ("AssumeRole.InvalidClientTokenId", "check the credentials", "role may do"),
        ("GetRoleCredentials.ResourceNotFoundException", "sso settings", "check the name"),
        ("AssumeRole.ValidationError", "role_arn", "name or ARN"),
        ("InvalidClientTokenId", "check the credentials", "role may do"),
        ("KMSAccessDeniedException", "kms:GenerateDataKey", "network"),
        ("KMSDisabledException", "enable it", "role"),
        ("KMSInvalidStateException", "deletion", "role"),
        ("KMSNotFoundException", "another key", "role"),
        ("KMSInvalidMacException", "symmetric", "role"),
        ("KMSThrottlingException", "more calls", "KMS key"),
        ("XksKeyNotFoundException", "key store", "role"),
        ("EndpointResolutionError", "ARN", "network"),
        ("ProvisionedThroughputExceededException", "shards", "network"),
        ("CountMismatch", "proxy", "role"),
    ]
    texts = {code: advice_of(code).text for code, _, _ in cases}
    wrong = [code for code, says, never in cases if says not in texts[code] or never in texts[code]]
    assert {code: texts[code] for code in wrong} == {}


@pytest.mark.requirement("MAP-23")
def test_no_advice_about_a_call_for_credentials_is_of_the_stream() -> None:
    common = (
        "AccessDenied AccessDeniedException ValidationError ValidationException ResourceNotFoundException"
    )
    texts = {code: advice_of(f"AssumeRole.{code}").text for code in {*errors_of("sts"), *common.split()}}
    assert not {code: text for code, text in texts.items() if "stream" in text}


def test_the_table_of_kinds_says_what_a_retry_does() -> None:
    table = [line.split("|") for line in str(aws_errors.__doc__).splitlines() if line.count("|") == 2]
    helps = {kind.strip(): answer.strip() for kind, _, answer in table[1:] if kind.strip()}
    assert tuple(helps) == get_args(ErrorKind)
    assert [kind for kind, answer in helps.items() if answer.startswith("no")] == [*_PERMANENT]


def test_what_to_check_is_of_the_setting_that_is_wrong() -> None:
    """A region that is none is no matter of credentials, nor is a file that cannot be read."""
    exceptions = pytest.importorskip("botocore.exceptions")
    of_region = [name for name in vars(exceptions) if name.endswith("RegionError")]
    assert len(of_region) > 3
    for name in of_region:
        assert "a region" in str(what_to_check(name)), name
    assert "AWS_CONFIG_FILE" in str(what_to_check("ConfigParseError"))
    assert "AWS_PROFILE" in str(what_to_check("NoCredentialsError"))


def test_a_text_names_codes_of_aws_and_no_class_of_botocore() -> None:
    for name in NAMES:
        if name.endswith("Error") and name not in (
            "InternalServerError",
            "EventStreamError",
            "IDPCommunicationError",
        ):
            assert name not in failure_text(name, "it was refused.")
    for name in ("AccessDeniedException", "InternalServerError", "429", "NeverHeardOf"):
        assert failure_text(name, "it was refused.").startswith(f"{name}: it was refused")
    assert failure_text("NoRegionError", "x") == "no region: give a region, or set AWS_DEFAULT_REGION"
    assert failure_text("AssumeRole.AccessDenied", "no.").startswith(
        "AssumeRole.AccessDenied: no; the role may not be assumed"
    )


@given(st.floats(0.001, 10), st.floats(10, 1000), st.floats(1, 3), st.integers(0, 10**6), st.floats(0, 0.999))
def test_a_wait_grows_to_its_limit_and_chance_takes_at_most_half(
    first: float, most: float, factor: float, failures: int, chance: float
) -> None:
    backoff = Backoff(first, most, factor)
    whole = backoff.seconds(failures)
    assert first <= whole <= most
    assert whole <= backoff.seconds(failures + 1)
    assert whole / 2 <= backoff.seconds(failures, chance) <= whole


def test_waits_by_hand() -> None:
    assert [Backoff(0.5, 3).seconds(failures) for failures in range(5)] == [0.5, 1, 2, 3, 3]
    assert Backoff(1, 30, 1.5).seconds(2, 0.5) == 1.6875


def test_kinds_of_codes() -> None:
    kinds = {
        "throttled": "ProvisionedThroughputExceededException ThrottlingException KMSThrottlingException",
        "refused": """ResourceNotFoundException AccessDeniedException AccessDenied KMSAccessDeniedException
            KMSDisabledException KMSInvalidStateException KMSNotFoundException KMSOptInRequired
            UnrecognizedClientException InvalidClientTokenId InvalidSignatureException""",
        "unauthenticated": "ExpiredTokenException ExpiredToken RequestExpired",
        "invalid": "ValidationException InvalidArgumentException SerializationException",
        "unconfigured": "NoCredentialsError NoRegionError ProfileNotFound",
        "not-sent": "ConnectTimeoutError EndpointConnectionError ProxyConnectionError",
        "other": "InternalFailure ServiceUnavailable ReadTimeoutError ResponseParserError NoAnswer",
    }
    wrong = {
        code: kind for kind, codes in kinds.items() for code in codes.split() if error_kind(code) != kind
    }
    assert wrong == {}
    assert [kind for kind, codes in kinds.items() if is_permanent(codes.split()[0])] == [
        "refused", "invalid", "unconfigured"
    ]  # fmt: skip
