"""The answers of `kinesis_client` are those of botocore, with times in UTC."""

from __future__ import annotations

import io
import json
import os
import re
from datetime import timezone
from typing import Any
from unittest import mock

import pytest
from botocore.awsrequest import AWSResponse
from hypothesis import example, given
from hypothesis import strategies as st

from kpl_codec.aws.client import kinesis_client, parse_records
from kpl_codec.aws.s3 import S3Error, s3_file_system

from ..every import every


@every("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", ""])
def test_an_error_of_s3_names_the_variable_that_is_set(variable: str) -> None:
    others = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "a"}
    address = {variable or "HTTPS_PROXY": "http://127.0.0.1:9"}
    here = mock.patch.dict(os.environ, {**others, **keys, **address}, clear=True)
    with here, pytest.raises(S3Error) as caught:
        s3_file_system("captures")
    assert {*re.findall(r"AWS_ENDPOINT\w*", str(caught.value))} == {variable} - {""}
    assert "check the network" in str(caught.value)


RECORD: dict[str, Any] = {
    "SequenceNumber": "1",
    "Data": "AAAA",
    "PartitionKey": "k",
    "ApproximateArrivalTimestamp": 1.5,
}
ANSWER: dict[str, Any] = {"Records": [RECORD], "NextShardIterator": "n", "MillisBehindLatest": 0}
PLAIN = b'{"Records": [], "NextShardIterator": "n", "MillisBehindLatest": 0}'
EVENT = "before-parse.kinesis.GetRecords"


def pair() -> tuple[Any, Any]:
    """A client whose answers botocore reads alone, and one of ours."""
    keys = {"region": "us-east-1", "access_key_id": "a", "secret_access_key": "a"}
    theirs, ours = kinesis_client(**keys), kinesis_client(**keys)
    theirs.meta.events.unregister(EVENT, parse_records)
    return theirs, ours


def answering(client: Any, status: int, body: bytes) -> Any:
    """A handler by which ``client`` gets this answer to each call."""

    def answer(request: Any, **_: Any) -> AWSResponse:
        raw = type("Raw", (io.BytesIO,), {"stream": lambda self: [self.getvalue()]})
        return AWSResponse(request.url, status, {"X-Amzn-RequestId": "r", "Server": "s"}, raw(body))

    client.meta.events.register("before-send.kinesis.GetRecords", answer)
    return answer


def outcome(client: Any, status: int, body: bytes) -> tuple[str, str, str]:
    """What a call with this answer gives or raises."""
    handler = answering(client, status, body)
    try:
        return "", "", in_order(client.get_records(ShardIterator="i"))
    except Exception as failed:  # noqa: BLE001 - botocore raises anything for an odd answer
        return type(failed).__name__, str(failed), in_order(getattr(failed, "response", {}))
    finally:
        client.meta.events.unregister("before-send.kinesis.GetRecords", handler)


def in_order(value: Any) -> str:
    """In which order members come does not count; that a number is none (NaN) is no difference."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k}: {in_order(v)}' for k, v in sorted(value.items()))}}}"
    return f"[{', '.join(map(in_order, value))}]" if isinstance(value, list) else repr(value)


def answers() -> st.SearchStrategy[Any]:
    """Answers that are odd in one or two places."""
    any_json = st.recursive(
        st.none() | st.booleans() | st.integers(-1, 10**20) | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=4,
    )
    members = [*RECORD, "EncryptionType", "FirstReceiveTimestamp", "data"]
    times = st.sampled_from([1.5, 1, "1.5", "2026-11-25T00:00:00Z", "soon", -1, 1e300, "2026-11-25"])
    odd_records = st.builds(
        lambda name, value, dropped: {k: v for k, v in {**RECORD, name: value}.items() if k != dropped},
        st.sampled_from(members),
        any_json | times | st.sampled_from(["AAA", "A", "AA==", "====", "\u00e9"]),
        st.sampled_from([None, *members]),
    )
    tops = [*ANSWER, "ChildShards", "Message", "__type"]
    return any_json | st.builds(
        lambda records, name, value: {**ANSWER, "Records": records, name: value},
        st.lists(odd_records | any_json, max_size=3),
        st.sampled_from(tops),
        any_json,
    )


PAIR = pair()


@pytest.mark.requirement("MAP-25")
@given(
    answers().map(lambda answer: json.dumps(answer).encode()),
    st.sampled_from([200, 200, 200, 201, 204, 301, 400, 403, 404, 413, 500, 503]),
)
@example(b"", 200)
@example(b"", 500)
@example(b"null", 200)
@example(b"<html>", 403)
@example(json.dumps(ANSWER).encode(), 200)
@example(json.dumps(ANSWER).encode()[:50], 200)
@example(b'{"message": "m", "__type": "a#ExpiredIteratorException"}', 400)
@example(json.dumps({**ANSWER, "Records": [{**RECORD, "PartitionKey": None}]}).encode(), 200)
@example(json.dumps({**ANSWER, "Records": [{**RECORD, "Data": "!!"}]}).encode(), 200)
@example(json.dumps({**ANSWER, "Records": {}}).encode(), 200)
@example(b"\xef\xbb\xbf" + PLAIN, 200)
@example(PLAIN.decode().encode("utf-16"), 200)
@example(PLAIN.replace(b"n", b"\xff"), 200)
@example(b'{"ShardIterator": "s", ' + PLAIN[1:], 200)
def test_answers_of_any_shape_are_taken_as_botocore_takes_them(body: bytes, status: int) -> None:
    theirs, ours = (outcome(client, status, body) for client in PAIR)
    assert ours == theirs


@pytest.mark.requirement("MAP-25")
def test_botocores_parser_gets_no_plain_record() -> None:
    """Otherwise the handler would be of no use, with nobody to notice."""
    left: list[bytes] = []
    ours = pair()[1]
    answering(ours, 200, json.dumps(ANSWER).encode())
    ours.meta.events.register_last(EVENT, lambda response_dict, **_: left.append(response_dict["body"]))
    (record,) = ours.get_records(ShardIterator="i")["Records"]
    assert record["Data"] == b"\0\0\0"
    assert record["ApproximateArrivalTimestamp"].tzinfo is timezone.utc
    assert b"Data" not in left[0]
