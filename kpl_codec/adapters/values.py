"""The values in captured records: base64, timestamps, texts. All raise only CaptureError."""

from __future__ import annotations

import binascii
import math
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from ..errors import CaptureError

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Units of timestamps given as numbers.
SECONDS, MILLISECONDS = 1, 1000


def decode_base64(text: object, field: str) -> bytes:
    """The bytes of the base64 ``text``, which must be exactly what an encoder writes."""
    # CAP-2: "Base64 MUST be decoded strictly: a text that is not exactly the standard encoding of the
    # bytes it decodes to, padding included, is refused."
    if type(text) is not str:
        raise CaptureError(code="wrong-type", field=field, requirement="CAP-2")
    try:
        data = binascii.a2b_base64(text)
    except ValueError:  # binascii.Error, or a character beyond ASCII
        raise CaptureError(code="base64", field=field, requirement="CAP-2") from None
    if encode_base64(data) != text:
        raise CaptureError(code="base64", field=field, requirement="CAP-2")
    return data


def encode_base64(data: bytes) -> str:
    """Standard base64 with padding, no line breaks."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def read_timestamp(value: object, unit: int, field: str) -> datetime | None:
    """An aware datetime in UTC from a number in ``unit``, an ISO 8601 text or an aware datetime.

    None stays None. Numbers are exact to the microsecond.
    """
    # CAP-3: "A timestamp MUST be read to the microsecond: a number in the unit of its shape, an ISO
    # 8601 text with an offset, or an aware datetime; anything else is refused."
    try:
        if value is None:
            return None
        if isinstance(value, bool):
            raise TypeError
        if isinstance(value, int):
            return _EPOCH + timedelta(microseconds=value * (1_000_000 // unit))
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError
            return _EPOCH + timedelta(microseconds=round(value * (1_000_000 // unit)))
        if isinstance(value, str):
            # fromisoformat reads a final Z from Python 3.11 on.
            value = datetime.fromisoformat(value[:-1] + "+00:00" if value[-1:] in ("Z", "z") else value)
        if not isinstance(value, datetime) or value.utcoffset() is None:
            raise TypeError
        return value.astimezone(timezone.utc)
    except (ValueError, TypeError, OverflowError):
        raise CaptureError(code="timestamp", field=field, requirement="CAP-3") from None


def write_timestamp(value: datetime, unit: int, field: str) -> float | int:
    """``value`` as a number in ``unit``: a float of seconds, an int of milliseconds.

    Raises CaptureError if reading the number would not give ``value``.
    """
    if value.utcoffset() is None:
        raise CaptureError(code="timestamp", field=field, requirement="CAP-3")
    written: float | int = (value - _EPOCH) / timedelta(seconds=1)
    if unit == MILLISECONDS:
        written = (value - _EPOCH) // timedelta(milliseconds=1)
    # CAP-8: "What a shape has no place for MUST be refused on the way back, never left out."
    # CAP-9: "Reading back what was written MUST give the same records."
    if read_timestamp(written, unit, field) != value:
        raise CaptureError(code="not-representable", field=field, requirement="CAP-8")
    return written


def mapping(source: Mapping[str, Any], key: str, prefix: str = "") -> Mapping[str, Any]:
    """The mapping under ``key``."""
    value = source.get(key)
    if not isinstance(value, Mapping):
        code = "missing-field" if value is None else "wrong-type"
        raise CaptureError(code=code, field=prefix + key, requirement="CAP-4")
    return value


def text(source: Mapping[str, Any], key: str, prefix: str = "") -> str:
    """The text under ``key``, which must be there."""
    value = optional_text(source, key, prefix)
    if value is None:
        raise CaptureError(code="missing-field", field=prefix + key, requirement="CAP-4")
    return value


def optional_text(source: Mapping[str, Any], key: str, prefix: str = "") -> str | None:
    """The text under ``key``, or None."""
    value = source.get(key)
    if value is None:
        return None
    # CAP-4: "A field of the wrong type, a required field that is absent, and a text without UTF-8
    # form are refused."
    if not isinstance(value, str):
        raise CaptureError(code="wrong-type", field=prefix + key, requirement="CAP-4")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise CaptureError(code="utf-8", field=prefix + key, requirement="CAP-4") from None
    return value


def sub_sequence_number(source: Mapping[str, Any], key: str, prefix: str = "") -> int | None:
    """The count under ``key``: a number or its decimal text; None where absent or empty."""
    value = source.get(key)
    if value is None or value == "":
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CaptureError(code="wrong-type", field=prefix + key, requirement="CAP-4")
    return value
