"""The protocol without JSON: what is asked and answered in lines is what JSON would say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.conformance.program import answer_of, question_lines, record_lines

HEX = st.binary(max_size=9).map(bytes.hex)
RECORD = st.fixed_dictionaries(
    {"data": HEX, "partition_key": st.text(max_size=5)}, optional={"explicit_hash_key": st.text("0123456789")}
)


@given(st.lists(RECORD, max_size=4))
def test_user_records_come_back(records: list[dict[str, Any]]) -> None:
    assert answer_of(record_lines(records), "decode") == {"user_records": records}


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        ({"op": "hello", "protocol": 1}, "hello 1\n"),
        ({"op": "decode", "id": "x", "data": "00ff"}, "decode 00ff\n"),
        ({"op": "decode", "id": "x", "data": ""}, "decode \n"),
        (
            {
                "op": "encode",
                "user_records": [{"partition_key": "é", "data": "78", "explicit_hash_key": "5"}],
            },
            "partition_key c3a9\nexplicit_hash_key 35\ndata 78\nencode\n",
        ),
        ({"op": "encode", "user_records": [], "max_size": 40}, "encode 40\n"),
        (
            {"op": "encode", "user_records": [{"partition_key": "k", "data": "", "tags": [{"key": "t"}]}]},
            None,
        ),
        ({"op": "hash-key", "partition_key": "k"}, None),
    ],
)
def test_questions(asked: dict[str, Any], lines: str | None) -> None:
    assert question_lines(asked) == lines


@pytest.mark.parametrize(
    ("op", "lines", "answer"),
    [
        ("hello", ["name my codec", "version 1.0", "ops decode encode", "fields data"],
         {"name": "my codec", "version": "1.0", "ops": ["decode", "encode"], "fields": ["data"]}),
        ("decode", ["plain"], {"plain": True, "user_records": []}),
        ("decode", ["error no such key"], {"error": "no such key", "user_records": []}),
        ("decode", ["data 78", "data"], {"user_records": [
            {"partition_key": None, "data": "78"}, {"partition_key": None, "data": ""}]}),
        ("decode", ["partition_key ff", "data 78"], {"user_records": [
            {"partition_key": None, "partition_key_bytes": "ff", "data": "78"}]}),
        ("encode", ["data 78"], {"data": "78"}),
        ("encode", ["unsupported"], {"unsupported": True}),
    ],
)  # fmt: skip
def test_answers(op: str, lines: list[str], answer: dict[str, Any]) -> None:
    assert answer_of(lines, op) == answer


@pytest.mark.parametrize("line", ["", "thread 'main' panicked", "data 7", "partition_key xy"])
def test_other_lines_are_no_answer(line: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        answer_of([line], "decode")
