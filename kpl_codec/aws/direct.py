"""GetRecords and GetShardIterator in a half to a quarter of the CPU time that botocore takes.

botocore makes the first call with each StreamARN, and its request shows endpoint, headers and scope. A later
one differs in its body. It is signed by botocore's signer and sent over the client's own HTTP session (pool,
proxies, certificates, timeouts). All but a plain answer is botocore's to read, as if it had asked. Left out
for a plain one: botocore's events (but before-send), and whatever patches its `_make_api_call`.
"""

from __future__ import annotations

import json
import re
from binascii import a2b_base64
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from threading import get_ident
from typing import Any, Final, NamedTuple

from botocore import xform_name
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.utils import parse_timestamp
from botocore.validate import ParamValidator

#: The headers of botocore's request that a later one repeats.
_REPEATED: Final = ("Content-Type", "User-Agent", "X-Amz-Target")
_SCOPE: Final = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]+/\d{8}/([^/,]+)/([^/,]+)/aws4_request,")


class _Learned(NamedTuple):
    """What the requests of an operation with one StreamARN have in common."""

    url: str
    headers: dict[str, str]
    region: str
    service: str


def _learned(request: Any) -> _Learned | None:
    """None: the request is of a protocol or a signature that is not known here."""
    headers = {name: v.decode() if isinstance(v, bytes) else v for name, v in request.headers.items()}
    scope = _SCOPE.match(headers.get("Authorization", ""))
    if scope is None or headers.get("Content-Type") != "application/x-amz-json-1.1":
        return None
    return _Learned(request.url, {name: headers[name] for name in _REPEATED}, scope[1], scope[2])


class DirectCall:
    """Stands in for ``client.get_records`` or ``client.get_shard_iterator``: the same arguments, answers and
    errors. Thread-safe. ``session``: the one of boto3 that made the client."""

    def __init__(self, client: Any, session: Any, operation: str) -> None:
        self._client, self._session = client, session
        self._botocores = getattr(client, xform_name(operation))
        self._arguments = client.meta.service_model.operation_model(operation).input_shape
        self._known: dict[str | None, _Learned] = {}
        #: By thread: an answer that botocore is to read as if it had just come.
        self._answers: dict[int, Any] = {}
        self._event = f"before-send.kinesis.{operation}"
        # botocore has no public way to it. Without it nothing is learned, and every call is botocore's.
        self._http: Any = getattr(getattr(client, "_endpoint", None), "http_session", None)
        if self._http is not None:
            client.meta.events.register_first(self._event, self._before_send)

    def _before_send(self, request: Any, **_: Any) -> Any:
        learned = _learned(request)
        if learned is not None:
            self._known[json.loads(request.body).get("StreamARN")] = learned
        return self._answers.pop(get_ident(), None)

    def __call__(self, **arguments: Any) -> Any:
        # MAP-25: "A direct call, which is GetRecords or GetShardIterator without most of botocore's work,
        # MUST send what botocore would send, with the credentials of the moment, give what botocore's call
        # gives and raise what it raises."
        known = self._known.get(arguments.get("StreamARN"))
        # A time needs botocore's serializer; a wrong argument gets botocore's error.
        plain = all(type(value) in (str, int) for value in arguments.values())
        if known is None or not plain or ParamValidator().validate(arguments, self._arguments).has_errors():
            return self._botocores(**arguments)
        answer = self._send(known, arguments)
        if answer.status_code == 200:
            with suppress(ValueError, TypeError, AttributeError, OverflowError, OSError):
                if (found := _plain(answer)) is not None:
                    return found
        self._answers[get_ident()] = answer
        try:
            return self._botocores(**arguments)
        finally:
            self._answers.pop(get_ident(), None)

    def _send(self, known: _Learned, arguments: dict[str, Any]) -> Any:
        request = AWSRequest("POST", known.url, known.headers, json.dumps(arguments).encode())
        credentials = self._session.get_credentials().get_frozen_credentials()
        SigV4Auth(credentials, known.service, known.region).add_auth(request)
        request = request.prepare()
        _, answer = self._client.meta.events.emit_until_response(self._event, request=request)
        return self._http.send(request) if answer is None else answer


def make_direct(client: Any, session: Any) -> Any:
    """``client``, whose two calls for reading are direct."""
    for operation in ("GetRecords", "GetShardIterator"):
        setattr(client, xform_name(operation), DirectCall(client, session, operation))
    return client


def utc_time(value: Any) -> datetime:
    """botocore makes each time one of this machine's zone: of a call that gives 50 records, this took half of
    the CPU time, and more in a zone with daylight saving."""
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, timezone.utc)
    return parse_timestamp(value)  # type: ignore[no-any-return]


def in_utc(parsers: Any) -> Any:
    """``parsers``, botocore's factory of them, whose times are in UTC."""
    parsers.set_parser_defaults(timestamp_parser=utc_time)
    return parsers


#: What a plain answer may have, and a Kinesis record in it.
_ANSWER: Final = {"Records", "NextShardIterator", "MillisBehindLatest", "ShardIterator"}
_RECORD: Final = {"SequenceNumber", "ApproximateArrivalTimestamp", "Data", "PartitionKey", "EncryptionType"}
#: Members of a Kinesis record that are not text.
_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "Data": a2b_base64,
    "ApproximateArrivalTimestamp": utc_time,
}


def _plain(answer: Any) -> dict[str, Any] | None:
    """None, or an error, for an answer that has anything else in it."""
    found = {name: value for name, value in json.loads(answer.content).items() if value is not None}
    if not found.keys() <= _ANSWER:
        return None
    for record in found.get("Records", ()):
        if not record.keys() <= _RECORD or None in record.values():
            return None
        for name, converted in _CONVERSIONS.items():
            if name in record:
                record[name] = converted(record[name])
    headers = {name.lower(): value for name, value in answer.headers.items()}
    metadata = {"HTTPStatusCode": 200, "HTTPHeaders": headers, "RetryAttempts": 0}
    if "x-amzn-requestid" in headers:
        metadata["RequestId"] = headers["x-amzn-requestid"]
    return {**found, "ResponseMetadata": metadata}
