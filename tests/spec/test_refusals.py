"""What JSON vectors cannot say: user records with values of other types, and every field of the error.

Written for the mutants that the vectors and laws left alive (fuzz/README.md).
"""

from __future__ import annotations

from functools import partial

import pytest

import kpl_codec as kpl
from kpl_codec.format.codec import PythonBuilder, encode_in_python
from kpl_codec.format.records import check


@pytest.mark.requirement("ENC-1")
@pytest.mark.parametrize(
    ("record", "code", "field"),
    [
        (kpl.UserRecord(b"a", b""), "partition-key-type", "partition_key"),  # type: ignore[arg-type]
        (kpl.UserRecord(None, b""), "partition-key-type", "partition_key"),  # type: ignore[arg-type]
        (kpl.UserRecord("", b""), "partition-key-empty", "partition_key"),
        (kpl.UserRecord("k" * 257, b""), "partition-key-too-long", "partition_key"),
        (kpl.UserRecord("\ud800", b""), "partition-key-utf-8", "partition_key"),
        (kpl.UserRecord("a", "text"), "data-type", "data"),  # type: ignore[arg-type]
        (kpl.UserRecord("a", bytearray(b"x")), "data-type", "data"),  # type: ignore[arg-type]
        (kpl.UserRecord("a", None), "data-type", "data"),  # type: ignore[arg-type]
        (kpl.UserRecord("a", b"", True), "explicit-hash-key", "explicit_hash_key"),
        (kpl.UserRecord("a", b"", "+5"), "explicit-hash-key", "explicit_hash_key"),
        (kpl.UserRecord("a", b"", "007"), "explicit-hash-key", "explicit_hash_key"),
        (kpl.UserRecord("a", b"", str(2**128)), "explicit-hash-key", "explicit_hash_key"),
        (kpl.UserRecord("a", b"", None, (("a", "b"),)), "tag", "tags"),  # type: ignore[arg-type]
        (kpl.UserRecord("a", b"", None, (kpl.Tag("\ud800"),)), "tag", "tags"),
        (kpl.UserRecord("a", b"", None, (kpl.Tag("k", "\ud800"),)), "tag", "tags"),
        (kpl.UserRecord("a", b"", None, (kpl.Tag(b"k"),)), "tag", "tags"),  # type: ignore[arg-type]
    ],
)
def test_user_records_that_must_not_be_written(record: kpl.UserRecord, code: str, field: str) -> None:
    sound = kpl.UserRecord("a", b"x")

    builders = [kpl.AggregatedRecordBuilder(), PythonBuilder()]
    for builder in builders:
        builder.add(sound)
    for refuse in (
        lambda: check(record, 1),
        lambda: kpl.encode([sound, record]),
        lambda: encode_in_python([sound, record]),
        *(partial(ask, record) for builder in builders for ask in (builder.add, builder.size_with)),
    ):
        with pytest.raises(kpl.EncodeError) as caught:
            refuse()
        assert caught.value.code == code
        fields = {name: value for name, value in caught.value.fields.items() if name != "got"}
        assert fields == {"code": code, "field": field, "record_index": 1}
        assert caught.value.requirement == "ENC-1"
