"""Documents of any size in parts: the same records as in one, in bounded memory, in linear time."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.adapters import json_parts as module
from kpl_codec.adapters import json_stream
from kpl_codec.adapters.json_parts import json_parts
from kpl_codec.adapters.json_stream import Defect, Document, json_documents

from .test_json_stream import blocks, containers, counted_work, cuts

pytestmark = pytest.mark.requirement("CAP-11")

elements = st.lists(containers, max_size=6)
envelopes = st.fixed_dictionaries({"Records": elements}, optional={"ShardId": st.text(max_size=3)})
answers = st.one_of(
    envelopes.map(lambda answer: dict(sorted(answer.items(), reverse=True))),  # ShardId stands first
    st.lists(envelopes.map(lambda answer: dict(sorted(answer.items(), reverse=True))), max_size=3),
    elements,
    containers,
)
indents = st.sampled_from([None, 0, 2])


def flat(value: Any) -> list[Any]:
    """The records of a value in order, each with the members that stand before them."""
    if isinstance(value, list):
        return [record for part in value for record in flat(part)]
    records = value.get("Records") if isinstance(value, dict) else None
    if not isinstance(records, list):
        return [value]
    rest = {name: other for name, other in value.items() if name != "Records"}
    return [(rest, record) for record in records]


def in_parts(data: bytes, sizes: list[int], whole_size: int = 10) -> list[Any]:
    return list(json_parts(blocks(data, sizes), whole_size=whole_size))


@given(st.lists(answers, min_size=1, max_size=4), indents, cuts)
def test_parts_are_the_whole(documents: list[Any], indent: int | None, sizes: list[int]) -> None:
    data = "\n".join(json.dumps(document, indent=indent) for document in documents).encode()
    found = in_parts(data, sizes)
    assert [item for item in found if isinstance(item, Defect)] == []
    assert [r for item in found for r in flat(item.value)] == [r for d in documents for r in flat(d)]
    places = {(item.offset, item.line) for item in found}
    expected = [(d.offset, d.line) for d in json_documents(data.decode())]
    assert places <= set(expected)  # a document without records may have no part at all


@given(st.lists(answers, min_size=1, max_size=4), indents, cuts, st.data())
def test_damage_hides_nothing_before_it(
    documents: list[Any], indent: int | None, sizes: list[int], data: st.DataObject
) -> None:
    text = "\n".join(json.dumps(document, indent=indent) for document in documents).encode()
    cut = data.draw(st.integers(0, len(text)))
    found = in_parts(text[:cut], sizes)
    whole = [r for d in documents for r in flat(d)]
    got = [r for item in found if not isinstance(item, Defect) for r in flat(item.value)]
    sound = [item for item in json_documents(text[:cut].decode("utf-8", "ignore"))]
    if any(isinstance(item, Defect) for item in sound) and indent is None:
        assert any(isinstance(item, Defect) for item in found)
        # All that a reader of whole documents gives, and what it cannot give of the one that is cut.
        least = [r for item in sound if not isinstance(item, Defect) for r in flat(item.value)]
        assert whole[: len(got)] == got
        assert len(got) >= len(least)


@given(st.binary(max_size=200), cuts)
def test_nothing_but_answers_comes_of_noise(noise: bytes, sizes: list[int]) -> None:
    for start in (b'{"Records": [', b"[", b'{"a": ', b'[{"Records": [{}], "ShardId": '):
        in_parts(start + noise, sizes)


def test_what_cannot_be_in_a_part_is_told() -> None:
    late = json.dumps({"Records": [{"n": number} for number in range(9)], "ShardId": "shardId-0"}).encode()
    *parts, defect = in_parts(late, [7])
    assert [r for part in parts for r in flat(part.value)] == [({}, {"n": number}) for number in range(9)]
    assert "ShardId stands behind the records" in defect.reason
    twice = b'{"Records": [{"n": 1}], "Records": [{"n": 2}]}'
    assert [item.code for item in in_parts(twice, [9]) if isinstance(item, Defect)] == ["duplicate-member"]
    (defect,) = json_parts([b'{"Records": [{"Data": "' + b"x" * 500], whole_size=10, max_size=100)
    assert (defect.code, defect.offset) == ("too-large", 0)
    for broken in (
        b'{"Records": [{} {}]}',
        b'{"Records": [{},]}',
        b'{"Records" [{}]}',
        b'{"Records": [{}], }',
    ):
        assert isinstance(in_parts(broken, [5], whole_size=5)[-1], Defect), broken


def one(number: int) -> str:
    return f'{{"n": {number}}}'


SHARD = '{"ShardId": "s", "Records": ['
PLACES: dict[str, tuple[str, list[Document | Defect]]] = {
    "every part has its document's place": (
        f"\n {SHARD}{one(1)},\n{one(2)}, {one(3)}]}}\n[{one(4)}, {one(5)}]",
        [
            Document({"ShardId": "s", "Records": [{"n": 1}, {"n": 2}]}, 2, 2),
            Document({"ShardId": "s", "Records": [{"n": 3}]}, 2, 2),
            Document([{"n": 4}, {"n": 5}], 62, 4),
        ],
    ),
    "a list of answers": (
        f'\n [ {SHARD}{one(1)},\n {one(2)}], "ShardId": 5}}, {one(3)}]',
        [
            Document({"ShardId": "s", "Records": [{"n": 1}, {"n": 2}]}, 2, 2),
            Defect("duplicate-member", 2, 2, "a member twice in one object", 65),
            Defect("json", 2, 2, "ShardId stands behind the records", 65),
            Document([{"n": 3}], 2, 2),
        ],
    ),
    "no records": (
        '\n {"a": [1, 2, 3], "bbbbbbbbbbb": 2,\n "c": 3}\n[{"c": 1}]',
        [Document({"a": [1, 2, 3], "bbbbbbbbbbb": 2, "c": 3}, 2, 2), Document([{"c": 1}], 46, 4)],
    ),
    "a name behind the records": (
        f'\n\n {{"Records": [{one(1)}], "x": 1, "shardId": {{"a": 1}}, "y": 2 }}\n{one(2)}',
        [
            Document({"Records": [{"n": 1}]}, 3, 3),
            Defect("json", 3, 3, "shardId stands behind the records", 45),
            Document({"n": 2}, 65, 4),
        ],
    ),
    "a member twice, in a record": (
        f'\n [{one(1)}, {{"a": 1, "a": 2}}, {one(3)}]',
        [
            Defect("duplicate-member", 13, 2, "a member twice in one object", 13),
            Document([{"n": 1}], 2, 2),
            Document([{"n": 3}], 2, 2),
        ],
    ),
    "a member twice, before the records": (
        f'\n {{"a": {{"b": 1, "b": 2}}, "Records": [{one(1)}]}}\n{one(2)}',
        [Defect("duplicate-member", 2, 2, "a member twice in one object", 24), Document({"n": 2}, 49, 3)],
    ),
    "a broken record": (
        f'\n [{one(1)}, {{"nnn": tru}}, {one(2)}]\n{one(3)}',
        [Document([{"n": 1}], 2, 2), Defect("json", 2, 2, "Expecting value", 21), Document({"n": 3}, 37, 3)],
    ),
    "a record too large": (
        f'\n [{one(1)}, {{"n": "{"x" * 80}"}}]\n{one(2)}',
        [
            Document([{"n": 1}], 2, 2),
            Defect("too-large", 2, 2, "more than 60 characters", 80),
            Document({"n": 2}, 104, 3),
        ],
    ),
}
for name, (text, at, reason) in {
    "no comma": (f"[{one(1)} {one(2)}]", 12, "a comma is missing"),
    "a comma and no value": (f"[{one(1)},   ]", 15, "a comma without a value behind it"),
    "no colon": ('{"xxxxxxxxxxx" 5}', 17, "a member without a name"),
    "no name": ('{5: 5, "xxxxxxxxxxxxxx": 5}', 4, "a member without a name"),
    "no end": (f"[{one(1)},  ", 14, "the document has no end"),
}.items():
    after = [] if name == "no end" else [Document({"c": 1}, len(text) + 3, 3)]
    PLACES[name] = (
        f"\n {text}" + ('\n{"c": 1}' if after else ""),
        [Defect("json", 2, 2, reason, at), *after],
    )


@pytest.mark.parametrize("name", PLACES)
def test_each_part_and_each_defect_says_where(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PART_SIZE", 16)
    monkeypatch.setattr(json_stream, "_WINDOW", 8)
    text, expected = PLACES[name]
    assert all(text[item.offset] in "{[" for item in expected)
    assert list(json_parts(blocks(text.encode(), [5]), whole_size=10, max_size=60)) == expected


def large(records: int, indent: bool) -> Iterator[bytes]:
    """A document of that many records of about a kilobyte, block by block."""
    record = json.dumps({"Data": "A" * 1000, "SequenceNumber": "1"}, indent=4 if indent else None)
    yield b'{"ShardId": "shardId-0", "Records": ['
    for number in range(records):
        yield (("," if number else "") + ("\n" if indent else "") + record).encode()
    yield b"]}"


@pytest.mark.requirement("SPK-13")
@pytest.mark.parametrize("indent", [False, True])
def test_memory_does_not_grow_with_the_document(indent: bool) -> None:
    peaks = []
    for records in (5_000, 20_000):
        tracemalloc.start()
        try:
            found = sum(
                len(part.value["Records"]) for part in json_parts(large(records, indent), whole_size=1 << 20)
            )
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert found == records
    assert peaks[1] < 1.2 * peaks[0] + (1 << 20)


@pytest.mark.requirement("CAP-12")
def test_work_grows_with_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    work = counted_work(monkeypatch)
    growth = []
    for records in (500, 1000, 4000):
        work.clear()
        for _ in json_parts(large(records, indent=False), whole_size=100_000):
            pass
        growth.append(sum(work) / records)
    assert growth[2] < 1.3 * growth[0]
    assert module.WHOLE_SIZE <= 16 << 20
