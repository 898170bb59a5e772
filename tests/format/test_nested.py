"""Aggregated records within other data: found through every layer and every two of them, and nowhere else."""

from __future__ import annotations

import base64
import gzip
import json
import random
import time
import zlib
from collections.abc import Callable
from itertools import product

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.arrow.compiled_columns import may_nest
from kpl_codec.format.nested import described, layers_around
from kpl_codec.schema_registry import frame as schema_frame
from kpl_codec.testing import strategies as kst

pytestmark = pytest.mark.requirement("NST-1")

VERSION = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"
Wrap = Callable[[bytes], bytes]
#: What writers and relays do to what the KPL has aggregated.
WRAPPINGS: dict[str, Wrap] = {
    "none": bytes,
    "base64": base64.b64encode,
    "base64 in lines": base64.encodebytes,
    "base64 for URLs": base64.urlsafe_b64encode,
    "base64 as JSON": lambda data: json.dumps(base64.b64encode(data).decode()).encode(),
    "hex": lambda data: data.hex().encode(),
    "HEX": lambda data: data.hex().upper().encode(),
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "zlib 1": lambda data: zlib.compress(data, 1),
    "five bytes": lambda data: b"\x00\x00\x00\x00\x2a" + data,
    "12 bytes": lambda data: bytes(range(200, 188, -1)) + data,
    "text": lambda data: b"orders/v1\n" + data,
    "schema": lambda data: schema_frame(data, VERSION),
    "schema, zlib": lambda data: schema_frame(data, VERSION, compress=True),
    "aggregate": lambda data: kpl.encode([kpl.UserRecord("a", b"beside"), kpl.UserRecord("b", data)]),
}
#: Two frames of the Schema Registry are longer than a header may be.
PAIRS = [(a, b) for a, b in product(WRAPPINGS, WRAPPINGS) if not (a == "schema" and b.startswith("schema"))]
FRAMES = {
    "small": kpl.encode([kpl.UserRecord("k", b"")]),
    "text": kpl.encode([kpl.UserRecord(f"customer-{n}", b'{"order": %d}' % n) for n in range(40)]),
    "random": kpl.encode([kpl.UserRecord("k", random.Random(7).randbytes(90))]),
}


def columns_say(items: list[bytes]) -> list[int]:
    return list(may_nest(pa.array(items, pa.binary())))


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_every_two_layers_are_seen_through(outer: str, inner: str, frame: bytes) -> None:
    data = WRAPPINGS[outer](WRAPPINGS[inner](frame))
    assert layers_around(data) is not None
    assert columns_say([b"bare", data, data[:9]]) == [1]
    # The digest decides: a frame that was changed is none.
    assert layers_around(WRAPPINGS[outer](WRAPPINGS[inner](frame[:-1] + bytes([frame[-1] ^ 1])))) is None or (
        "aggregate" in (outer, inner)
    )


def test_a_header_has_less_than_32_bytes() -> None:
    for frame in (FRAMES["small"], gzip.compress(FRAMES["small"]), base64.b64encode(FRAMES["small"])):
        assert layers_around(b"." * 31 + frame) is not None
        assert columns_say([b"." * 31 + frame]) == [0]
        assert layers_around(b"." * 32 + frame) is None


def test_what_is_around_is_named_from_the_inside_out() -> None:
    data = b"12345" + gzip.compress(base64.b64encode(FRAMES["text"]))
    layers = layers_around(data)
    assert layers == ("behind 5 bytes", "in gzip", "in base64")
    assert described(layers, 3) == (
        "user record 3: an aggregated record, in base64, in gzip, behind 5 bytes: no consumer opens it"
    )
    assert described((), None) == "an aggregated record: no consumer opens it"


ORDINARY = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=100).map(str.encode),
    st.dictionaries(st.text(max_size=9), st.text(max_size=60) | st.integers(), max_size=5).map(
        lambda value: json.dumps(value).encode()
    ),
    kst.schema_frames().map(lambda item: item.data),
    st.sampled_from([b"\xf3\x89\x9a\xc2", b"84maw", b"f3899ac2", b"x\x9c", b"\x1f\x8b\x08", b"H4sI"]).flatmap(
        lambda sign: st.binary(min_size=20, max_size=80).map(lambda rest: sign + rest)
    ),
)


@given(ORDINARY, st.sampled_from(list(WRAPPINGS)), st.sampled_from(list(WRAPPINGS)))
def test_other_data_is_never_taken_for_one(data: bytes, outer: str, inner: str) -> None:
    if "aggregate" not in (outer, inner):
        assert layers_around(WRAPPINGS[outer](WRAPPINGS[inner](data))) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*FRAMES.values()]) | ORDINARY,
            st.lists(st.sampled_from(list(WRAPPINGS.values())), max_size=4),
        ),
        max_size=5,
    )
)
def test_columns_pass_over_nothing_that_objects_find(made: list[tuple[bytes, list[Wrap]]]) -> None:
    items = []
    for data, wraps in made:
        for wrap in wraps:
            data = wrap(data)
        items.append(data)
    found = [n for n, item in enumerate(items) if layers_around(item) is not None]
    assert set(found) <= set(columns_say(items))


@pytest.mark.parametrize(
    "data",
    [
        b"x\x9c" * 500_000,
        b"\xf3\x89\x9a\xc2" * 250_000,
        b'\n "' * 300_000,
        b"84maw" * 200_000,
        zlib.compress(FRAMES["text"][:40] + bytes(300_000_000)),
        zlib.compress(zlib.compress(zlib.compress(bytes(50_000_000)))),
    ],
    ids=["signs", "magics", "space", "text", "bomb", "bomb in bombs"],
)
def test_hostile_data_takes_little_time(data: bytes) -> None:
    begun = time.process_time()
    assert layers_around(data) is None
    columns_say([data])
    assert time.process_time() - begun < 5
