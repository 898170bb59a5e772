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
    _ADVICE,
    _PERMANENT,
    _RULES,
    _TABLE,
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


def test_each_code_has_one_rule() -> None:
    assert max(Counter(code for _, _, codes in _TABLE for code in codes.split()).values()) == 1


def test_every_exception_of_botocore_has_a_rule() -> None:
    """Whoever updates botocore decides about a new one: was anything sent, and does a retry help?"""
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
    assert len(names) > 90
    assert names - _RULES.keys() == set()


def test_what_botocore_takes_for_throttling_is_throttling() -> None:
    retries = pytest.importorskip("botocore.retries.standard")
    codes = retries.ThrottledRetryableChecker._THROTTLED_ERROR_CODES
    assert {code for code in codes if error_kind(code) != "throttled"} == set()


def test_every_error_of_the_kinesis_service_has_a_rule() -> None:
    session = pytest.importorskip("botocore.session").get_session()
    names = {shape.name for shape in session.get_service_model("kinesis").error_shapes}
    assert "ProvisionedThroughputExceededException" in names
    assert names - _RULES.keys() == set()


@pytest.mark.parametrize("code", ["InvalidSignatureException", "SignatureDoesNotMatch"])
@pytest.mark.parametrize("text", ["Signature expired: 2026", "Signature not yet current: 2026"])
def test_a_signature_of_another_time_is_signed_anew_and_a_wrong_one_is_not(code: str, text: str) -> None:
    assert rule_of(code, text).producer == "unauthenticated"
    assert not is_permanent(code, text)
    assert rule_of(code, "The signature does not match").producer == "refused"
    assert is_permanent(code)


@pytest.mark.parametrize("code", sorted(_RULES))
def test_an_error_of_another_call_is_never_the_answer_of_ours(code: str) -> None:
    rule = rule_of(f"AssumeRole.{code}")
    assert rule.producer == "not-sent"
    assert is_permanent(f"AssumeRole.{code}") == is_permanent(code)


@pytest.mark.parametrize(
    "operation", ["PutRecords", "ListShards", "DescribeStreamSummary", "GetShardIterator", "GetRecords"]
)
def test_every_error_of_the_calls_we_make_is_listed_or_passes(operation: str) -> None:
    session = pytest.importorskip("botocore.session").get_session()
    errors = session.get_service_model("kinesis").operation_model(operation).error_shapes
    assert {shape.name for shape in errors if error_kind(shape.name) == "other"} <= {
        "DryRunOperationException",  # we never ask for a dry run
        "ExpiredIteratorException",
        "ExpiredNextTokenException",
        "InternalFailureException",
        "ResourceInUseException",
    }


@pytest.mark.parametrize("service", ["kinesis", "sts", "kms"])
def test_every_error_of_the_services_that_a_put_meets_has_a_row(service: str) -> None:
    model = pytest.importorskip("botocore.session").get_session().get_service_model(service)
    errors = [shape for shape in map(model.shape_for, model.shape_names) if shape.metadata.get("exception")]
    codes = {shape.metadata.get("error", {}).get("code", shape.name) for shape in errors}
    assert len(codes) > 10
    assert codes - _ADVICE.keys() == set()


def test_each_row_says_what_it_means_who_can_mend_it_and_what_to_do() -> None:
    for code, advice in _ADVICE.items():
        assert min(len(advice.means), len(advice.todo)) > 5, code
        assert advice.who in get_args(get_type_hints(Advice)["who"]), code
        assert (what_to_check(code) is None) == (advice.who == "nobody"), code
        assert not is_permanent(code) or advice.who != "nobody", f"{code}: nobody mends what no retry mends"


@pytest.mark.parametrize(
    ("code", "says", "never"),
    [
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
        ("EndpointResolutionError", "ARN", "network"),
        ("ProvisionedThroughputExceededException", "shards", "network"),
        ("CountMismatch", "proxy", "role"),
    ],
)
def test_advice_is_of_the_cause(code: str, says: str, never: str) -> None:
    advice = advice_of(code).text
    assert says in advice
    assert never not in advice


@pytest.mark.requirement("MAP-23")
def test_no_advice_about_a_call_for_credentials_is_of_the_stream() -> None:
    model = pytest.importorskip("botocore.session").get_session().get_service_model("sts")
    shapes = [shape for shape in map(model.shape_for, model.shape_names) if shape.metadata.get("exception")]
    codes = {shape.metadata.get("error", {}).get("code", shape.name) for shape in shapes}
    common = (
        "AccessDenied AccessDeniedException ValidationError ValidationException ResourceNotFoundException"
    )
    texts = {code: advice_of(f"AssumeRole.{code}").text for code in {*codes, *common.split()}}
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
    for name in _RULES:
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
    assert error_kind("ProvisionedThroughputExceededException") == "throttled"
    assert error_kind("ConnectTimeoutError") == "not-sent"
    assert error_kind("InternalFailure") == error_kind("never seen") == "other"
    assert [is_permanent(code) for code in ("AccessDenied", "ValidationException", "NoCredentialsError")] == [
        True
    ] * 3
    assert not is_permanent("ThrottlingException")
