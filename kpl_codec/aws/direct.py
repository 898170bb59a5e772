"""GetRecords and GetShardIterator in a half to a quarter of the CPU time that botocore takes.

botocore makes the first call with each StreamARN, and its request shows endpoint, headers and scope. Later
ones repeat these, with another body, date and signature, over the client's own HTTP session (pool, proxies,
certificates, timeouts). An answer that is not plain is given to botocore, which prepares the call once more,
but gets this answer instead of sending it. Of botocore's events a direct call emits before-send only.
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
#: Arguments that need botocore: a time has many forms, and this name of a stream leads to a host of its own.
_BOTOCORES: Final = {"Timestamp", "StreamId"}


class _Learned(NamedTuple):
    """What the requests of an operation on one stream have in common."""

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
    repeated = {name: headers[name] for name in _REPEATED if name in headers}
    return _Learned(request.url, repeated, scope[1], scope[2])


class DirectCall:
    """Stands in for ``client.get_records`` or ``client.get_shard_iterator``: the same arguments, answers and
    errors. Thread-safe. ``session``: the one of boto3 that made the client."""

    def __init__(self, client: Any, session: Any, operation: str) -> None:
        self._client, self._session = client, session
        self._botocores = getattr(client, xform_name(operation))
        self._arguments = client.meta.service_model.operation_model(operation).input_shape
        self._members = _MEMBERS[operation]
        #: By StreamARN, and the account of the credentials: both may be in the name of the host.
        self._known: dict[tuple[str | None, str | None], _Learned] = {}
        #: By thread: the body of a request, and its answer, which botocore is to get instead of sending.
        self._answers: dict[int, tuple[bytes, Any]] = {}
        self._event = f"before-send.kinesis.{operation}"
        # botocore has no public way to it. Without it every call is botocore's.
        self._http: Any = getattr(getattr(client, "_endpoint", None), "http_session", None)
        self._learns = self._http is not None
        client.meta.events.register_first(self._event, self._before_send)

    def _before_send(self, request: Any, **_: Any) -> Any:
        body, answer = self._answers.get(get_ident(), (None, None))
        if body == request.body:
            del self._answers[get_ident()]  # should botocore try again, it sends
            return answer
        if self._learns and (learned := _learned(request)) is not None:
            arn, credentials = json.loads(request.body).get("StreamARN"), self._session.get_credentials()
            self._known[arn, getattr(credentials, "account_id", None)] = learned
        return None

    def __call__(self, **arguments: Any) -> Any:
        # MAP-25: "A direct call MUST send what botocore would send, signed with the credentials of the
        # moment, and MUST give or raise what botocore would."
        known = None
        plain = all(type(value) in (str, int) for value in arguments.values())
        if plain and not arguments.keys() & _BOTOCORES:
            credentials = self._session.get_credentials()
            known = self._known.get((arguments.get("StreamARN"), getattr(credentials, "account_id", None)))
        if known is None or ParamValidator().validate(arguments, self._arguments).has_errors():
            return self._botocores(**arguments)
        body = json.dumps(arguments).encode()
        answer = self._send(known, body, credentials)
        if answer.status_code == 200:
            with suppress(ValueError, TypeError, AttributeError, OverflowError, OSError):
                if (found := self._plain(answer)) is not None:
                    return found
        self._answers[get_ident()] = body, answer
        try:
            return self._botocores(**arguments)
        finally:
            self._answers.pop(get_ident(), None)

    def _send(self, known: _Learned, body: bytes, credentials: Any) -> Any:
        request = AWSRequest("POST", known.url, known.headers, body)
        SigV4Auth(credentials.get_frozen_credentials(), known.service, known.region).add_auth(request)
        request = request.prepare()
        _, answer = self._client.meta.events.emit_until_response(self._event, request=request)
        if answer is None:
            return self._http.send(request)
        # A handler answers instead of the service, as moto's does: from now on it gets botocore's calls.
        self._learns = False
        self._known.clear()
        return answer

    def _plain(self, answer: Any) -> dict[str, Any] | None:
        """None, or an error, for an answer that has anything else in it."""
        given = json.loads(answer.content.decode())
        found = {name: value for name, value in given.items() if value is not None}
        if not found.keys() <= self._members or type(found.get("Records", [])) is not list:
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


def make_direct(client: Any, session: Any) -> Any:
    """``client``, whose two calls for reading are direct. It should try each call once: a direct call whose
    connection breaks is not repeated."""
    # In this mode botocore learns from its own calls how fast it may go.
    if client.meta.config.retries.get("mode") != "adaptive":
        for operation in _MEMBERS:
            setattr(client, xform_name(operation), DirectCall(client, session, operation))
    return client


def utc_time(value: Any) -> datetime:
    """botocore makes each time one of this machine's zone: of a call that gives 50 records, this took half of
    the CPU time, and more in a zone with daylight saving."""
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, timezone.utc)
    return parse_timestamp(value)  # type: ignore[no-any-return]


#: What a plain answer may have, by operation, and a Kinesis record in it.
_MEMBERS: Final = {
    "GetRecords": {"Records", "NextShardIterator", "MillisBehindLatest"},
    "GetShardIterator": {"ShardIterator"},
}
_RECORD: Final = {"SequenceNumber", "ApproximateArrivalTimestamp", "Data", "PartitionKey", "EncryptionType"}
#: Members of a Kinesis record that are not text.
_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "Data": a2b_base64,
    "ApproximateArrivalTimestamp": utc_time,
}
