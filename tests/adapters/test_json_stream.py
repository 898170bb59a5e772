"""Reading a run of JSON documents: places are exact, nothing is hidden, and the work grows with the input."""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections import deque
from collections.abc import Iterator
from itertools import product, takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.adapters import json_stream
from kpl_codec.adapters.json_stream import Defect, Document, json_documents

pytestmark = pytest.mark.requirement("CAP-11")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=3)
containers = st.lists(values, max_size=3) | objects
separators = st.sampled_from(["\n", "\r\n", " ", ",", "\n\n", "\n\x1e", "\x1e", "\n\ufeff", ",\n", ""])
#: Where the input is cut into blocks.
cuts = st.lists(st.integers(1, 40), min_size=1, max_size=5)


def blocks(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at = number = 0
    while at < len(data):
        size = sizes[number % len(sizes)]
        yield data[at : at + size]
        at, number = at + size, number + 1


@given(
    st.lists(st.tuples(separators, containers, st.sampled_from([None, 1, 4]), st.booleans()), max_size=6),
    cuts,
)
def test_sound_documents_come_back_with_their_places(
    parts: list[tuple[str, Any, int | None, bool]], sizes: list[int]
) -> None:
    text, expected = "", []
    for separator, value, indent, ascii_only in parts:
        text += separator
        items = list(enumerate(value)) if isinstance(value, list) and value else [(None, value)]
        expected += items
        if items[0][0] is None:  # else the places are those of the items
            expected[-1] = (None, value, len(text.encode()), text.count("\n") + 1)  # type: ignore[assignment]
        text += json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    found = list(json_documents(blocks(text.encode(), sizes)))
    assert found == list(json_documents(text))
    assert len(found) == len(expected)
    for item, (index, value, *place) in zip(found, expected, strict=True):
        assert isinstance(item, Document)
        assert (item.in_list, item.value) == (index, value)
        assert json.loads(text.encode()[item.offset : item.end]) == value
        assert place in ([], [item.offset, item.line])
        assert item.line == text.encode()[: item.offset].count(b"\n") + 1


@given(
    st.lists(
        st.tuples(objects, st.booleans(), st.integers(1, 1000), st.sampled_from([None, 1, 4])), max_size=8
    ),
    cuts,
)
@pytest.mark.requirement("CAP-1")
def test_what_is_cut_off_hides_no_document_but_the_next(
    parts: list[tuple[Any, bool, int, int | None]], sizes: list[int]
) -> None:
    """Sound documents, in one line or over several, and the beginnings of some."""
    text, sound, broken, behind = "", [], [], []
    was_cut = False
    for value, cut, length, indent in parts:
        document = json.dumps(value, indent=indent, ensure_ascii=False)
        at, line = len(text.encode()), text.count("\n") + 1
        if cut:
            document = document[: 1 + length % (len(document) - 1)]
            broken.append((at, line))
        else:
            whole = Document(value, at, at + len(document.encode()), line)
            (behind if was_cut else sound).append(whole)
        was_cut = cut
        text += document + "\n"
    found = list(json_documents(blocks(text.encode(), sizes)))
    documents = [item for item in found if isinstance(item, Document)]
    assert [item for item in documents if item not in behind] == sound
    # A document that may be the rest of the broken one before it is named with it.
    defects = [item for item in found if isinstance(item, Defect)]
    assert {(item.offset, item.line) for item in defects} <= {*broken}
    lost = broken + [(item.offset, item.line) for item in behind if item not in documents]
    assert all(any(item.offset <= at < item.end for item in defects) for at, _ in lost)
    assert [item.offset for item in found] == sorted(item.offset for item in found)


broken = st.sampled_from(['{"broken": [tru]}', '{"no": "\udcff"}'])


@given(st.lists(broken | st.integers(0, 99), max_size=12), cuts)
def test_a_broken_object_hides_none_before_or_behind_it_in_its_line(
    line: list[str | int], sizes: list[int]
) -> None:
    text = "".join(n if isinstance(n, str) else json.dumps({"n": {"n": n}}) for n in line)
    found = list(json_documents(blocks(text.encode("utf-8", "surrogateescape"), sizes)))
    numbers = [item.value["n"]["n"] if isinstance(item, Document) else None for item in found]
    assert numbers == [None if isinstance(n, str) else n for n in line]


any_bytes = st.binary(max_size=200) | st.text('[]{}",:1 \n\x1e\\', max_size=60).map(str.encode)


@pytest.mark.requirement("ACC-1")
@given(any_bytes, cuts, st.integers(20, 99))
def test_each_of_any_bytes_is_in_a_document_in_a_defect_or_between_whatever_the_blocks(
    data: bytes, sizes: list[int], max_size: int
) -> None:
    """Between stand white space, commas, separators and the brackets of lists, and nothing else."""
    assert list(json_documents([data])) == list(json_documents(blocks(data, sizes)))
    at = 0
    for item in json_documents([data], max_size=max_size):
        if isinstance(item, Document) and item.value == [] and item.in_list is None:
            continue  # its place is the list's, whose first bracket was passed
        assert data[at : item.offset].decode().strip("\ufeff \t\r\n,\x1e[]") == ""
        assert item.end > item.offset or item.offset == len(data) or item.reason == "the list has no end"  # type: ignore[union-attr]
        assert isinstance(item, Document) or item.offset <= item.at <= len(data)
        at = max(at, item.end)
    assert data[at:].decode().strip("\ufeff \t\r\n,\x1e[]") == ""


@given(st.lists(objects, min_size=1, max_size=6), st.sampled_from([None, 0, 2]), st.integers(1, 500), cuts)
def test_of_a_list_that_is_cut_the_items_before_come(
    items: list[Any], indent: int | None, cut: int, sizes: list[int]
) -> None:
    text = json.dumps(items, indent=indent)
    data = text[: 1 + cut % (len(text) - 1)].encode()
    all_found = list(json_documents(blocks(data, sizes)))
    # Behind the damage reading goes on at the next line that begins a value, which may be within the item.
    found = [*takewhile(lambda item: isinstance(item, Document), all_found)]
    damage = all_found[len(found)]
    assert isinstance(damage, Defect)
    assert [item.value for item in found if isinstance(item, Document)] == items[: len(found)]
    if damage.reason != "the list has no end":
        assert json.loads(text[: damage.offset].rstrip(" \n,") + "]") == items[: len(found)]


@pytest.mark.requirement("SPK-13")
def test_memory_does_not_grow_with_a_list_or_a_document_too_large() -> None:
    """Each is larger than all that may be held."""
    record = json.dumps({"Data": "A" * 2000, "SequenceNumber": "1"}, indent=4).encode()

    def large() -> Iterator[bytes]:
        yield b"["
        for _ in range(6000):
            yield record + b","
        yield b'"'
        for _ in range(12):
            yield b"x" * (1 << 20)
        yield b'"]\n{"after": 1}'

    tracemalloc.start()
    try:
        last = deque(enumerate(json_documents(large(), max_size=1 << 20)), maxlen=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (number, defect), (_, after) = last
    assert number == 6000
    assert isinstance(defect, Defect)
    assert defect.code == "too-large"
    assert isinstance(after, Document)
    assert (after.value, after.offset) == ({"after": 1}, defect.end)
    assert peak < 8 << 20
    assert json_stream.MAX_SIZE == 32 << 20


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ('{"n": 1}, {"a": 1, "a": 2} , 3', [{"n": 1}, ("duplicate-member", '{"a"'), 3]),
        ('{"n": 1}, {"nnn": tru}, 3', [{"n": 1}, ("json", "tru}")]),
        ('{"n": 1} {"n": 2},', [{"n": 1}, ("json", '{"n"'), {"n": 2}]),
        ('1, "' + "x" * 90 + '"', [1, ("too-large", "xxxx")]),
    ],
    ids=["twice", "broken", "commas", "too-large"],
)
def test_a_defect_in_a_list_says_where(items: str, told: list[Any]) -> None:
    """And hides no later line."""
    zeros = "0," * 40
    text = f"\n[{zeros}{items}]\n[4]"
    *found, last = json_documents(blocks(text.encode(), [5]), max_size=40)
    assert last == Document(4, len(text) - 2, len(text) - 1, 3, 0)
    assert {item.line for item in found} == {2}
    assert [0] * 40 + told == [
        item.value if isinstance(item, Document) else (item.code, text[item.at :][:4]) for item in found
    ]


@pytest.mark.requirement("CAP-11")
def test_a_large_item_of_a_list_hides_no_line_behind_its_largest_size() -> None:
    lines = [json.dumps({"n": number}) for number in range(9)]
    found = list(json_documents('["small",\n{"Records":[\n' + ",\n".join(lines) + "\n]}\n]", max_size=40))
    numbers = [item.value["n"] for item in found if isinstance(item, Document) and item.value != "small"]
    assert isinstance(found[1], Defect)
    assert found[1].code == "too-large"
    assert numbers == list(range(3, 9))


#: What is repeated, by its name.
DAMAGE = {
    "open objects": '{"Records": [\n',
    "open lists": "[\n",
    "open lists, not ASCII": '["é",\n',
    "cut objects": '{"a": 1,\n',
    "cut texts": '{"a": "xxx\n',
    "open text": '{"a": "xxx',
    "words": "garbage\n",
    "not UTF-8": "\udcff\udcfe\n",
    "not UTF-8 in documents": '{"a": "\udcff"}\n',
    "no comma": "[1 2]\n",
    "deep": "[" * 600 + "\n",
    "one line of openings": "[" * 30,
    "one line of objects that open": "{ ",
    "broken objects in a line": '{"a": tru}',
    "objects in a line, in a text": '"{}{}',
    "digits": '{"n": ' + "9" * 5000 + "}\n",
    "open lists of documents": '[{"a": 1},\n',
    "twice": '{"a": 1, "a": 1}\n',
    "spread and cut": '{\n  "a": [\n    1\n',
    "separators": "\x1e\n, ",
    "sound": '{"a": [1, 2, "x"]}\n',
    "items of a list": '{"a": [1, 2, "x"]},\n',
    "large, then broken": '["' + "x" * 10_000 + '"]\n' + '{"a": 1,\n' * 50,
}


def counted_work(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which all reading from now on adds its work: characters that are given to the decoder, that
    are copied, and in which lines are counted."""
    work: list[int] = []
    kind = json_stream._Reading
    decode, fill, size = kind._decode, kind._fill, kind._size

    def counted_decode(self: Any, text: str) -> Any:
        work.append(len(text))
        return decode(self, text)

    def counted_fill(self: Any, wanted: int) -> None:
        before = self.text
        fill(self, wanted)
        work.append(len(self.text) if self.text is not before else 0)

    def counted_size(self: Any, end: int) -> int:
        work.append(end - self.pos)
        return size(self, end)

    for function in (counted_decode, counted_fill, counted_size):
        monkeypatch.setattr(kind, function.__name__.removeprefix("counted"), function)
    return work


@pytest.mark.slow
@pytest.mark.requirement("CAP-12")
def test_each_byte_takes_as_much_work_in_any_input_and_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """How deep Python reads depends on its limit of recursion, which any library may change."""
    work = counted_work(monkeypatch)
    before, wrong = sys.getrecursionlimit(), []
    for damage, unit in DAMAGE.items():
        head, per_byte = "[" if damage == "items of a list" else "", {}
        for limit, total in product((500, 20_000), (50_000, 200_000)):
            text = head + unit * max(total // len(unit), 1)
            data = text.encode("utf-8", "surrogateescape")
            work.clear()
            sys.setrecursionlimit(limit)
            try:
                for _ in json_documents(blocks(data, [2_000])):
                    pass
            finally:
                sys.setrecursionlimit(before)
            per_byte[limit, total] = sum(work) / len(data)
        if max(per_byte.values()) >= 2 * min(per_byte.values()) + 1:
            wrong.append((damage, per_byte))
    assert wrong == []
