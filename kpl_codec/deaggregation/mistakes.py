"""What callers give by mistake instead of KinesisRecords, and which function reads that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..format.records import KinesisRecord

_SHAPES = (
    ("kinesis", "records of a Lambda event: use kpl_codec.aws_lambda.user_records(event)"),
    ("Data", "records as GetRecords gives them: use kpl_codec.adapters.from_get_records(answer)"),
)
_ANY = "use kpl_codec.adapters.kinesis_records(...), which reads events, answers and captures"


def wrong_source(source: object) -> TypeError:
    """The TypeError for a ``source`` that is not an iterable of KinesisRecords."""
    if isinstance(source, KinesisRecord):
        return TypeError("one KinesisRecord where a list of them belongs: put it into a list")
    records: Any = source.get("Records") if isinstance(source, Mapping) else None
    if isinstance(records, (list, tuple)) and records:
        return wrong_record(records[0])
    return TypeError(f"{type(source).__name__} where an iterable of KinesisRecords belongs: {_ANY}")


def wrong_record(record: object) -> TypeError:
    """The TypeError for a ``record`` that is not a KinesisRecord with bytes."""
    if isinstance(record, KinesisRecord):
        return wrong_data(record.data, "KinesisRecord.data")
    if isinstance(record, Mapping):
        for name, sentence in _SHAPES:
            if name in record:
                return TypeError(f"{sentence}, or kpl_codec.adapters.kinesis_records for any shape")
    return TypeError(f"{type(record).__name__} where a KinesisRecord belongs: {_ANY}")


def wrong_data(data: object, what: str) -> TypeError:
    """The TypeError for ``data`` that is not bytes."""
    hint = ": base64 text is decoded with base64.b64decode" if isinstance(data, str) else ""
    return TypeError(f"{what} is {type(data).__name__}, not bytes{hint}")
