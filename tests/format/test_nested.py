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
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.arrow.nested_candidates import may_nest
from kpl_codec.format.nested import describe_nested, layers_around
from kpl_codec.schema_registry import frame as schema_frame
from tests.examples import examples

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
    "gzip, an empty part first": lambda data: gzip.compress(b"") + gzip.compress(data),
    "gzip, a byte in each of the first parts": lambda data: (
        b"".join(gzip.compress(data[at : at + 1]) for at in range(5)) + gzip.compress(data[5:])
    ),
    "gzip with a long name": lambda data: (
        b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 500 + b"\0" + gzip.compress(data)[10:]
    ),
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


@pytest.mark.parametrize("outer", WRAPPINGS)
def test_every_two_layers_are_seen_through(outer: str) -> None:
    inners = [inner for first, inner in PAIRS if first == outer]
    for inner, frame in product(inners, FRAMES.values()):
        data = WRAPPINGS[outer](WRAPPINGS[inner](frame))
        assert layers_around(data) is not None, inner
        assert columns_say([b"bare", data, data[:9]]) == [1], inner
        # The digest decides: a frame that was changed is none.
        changed = WRAPPINGS[outer](WRAPPINGS[inner](frame[:-1] + bytes([frame[-1] ^ 1])))
        assert layers_around(changed) is None or "aggregate" in (outer, inner), inner


def test_a_header_has_less_than_32_bytes() -> None:
    for frame in (FRAMES["small"], gzip.compress(FRAMES["small"]), base64.b64encode(FRAMES["small"])):
        assert layers_around(b"." * 31 + frame) is not None
        assert columns_say([b"." * 31 + frame]) == [0]
        assert layers_around(b"." * 32 + frame) is None


def test_what_is_around_is_named_from_the_inside_out() -> None:
    data = b"12345" + gzip.compress(base64.b64encode(FRAMES["text"]))
    layers = layers_around(data)
    assert layers == ("behind 5 bytes", "in gzip", "in base64")
    assert describe_nested(layers, 3) == (
        "user record 3: an aggregated record, in base64, in gzip, behind 5 bytes: no consumer opens it"
    )
    assert describe_nested((), None) == "an aggregated record: no consumer opens it"


ORDINARY = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=100).map(str.encode),
    st.dictionaries(st.text(max_size=9), st.text(max_size=60) | st.integers(), max_size=5).map(
        lambda value: json.dumps(value).encode()
    ),
    st.builds(schema_frame, st.binary(max_size=200), st.uuids(version=4), compress=st.booleans()),
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


@st.composite
def deflated(draw: st.DrawFn, data: bytes) -> bytes:
    """``data`` in gzip or zlib as any writer may make it: levels, codes, windows, blocks, flushes."""
    wbits = draw(st.sampled_from([15, 31]))
    packer = zlib.compressobj(
        draw(st.integers(0, 9)), zlib.DEFLATED, wbits, draw(st.integers(1, 9)), draw(st.integers(0, 4))
    )
    made = b""
    for part in draw(st.lists(st.integers(0, 60), max_size=4)):
        made += packer.compress(data[:part])
        data = data[part:]
        made += packer.flush(draw(st.sampled_from([zlib.Z_NO_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH])))
    return made + packer.compress(data) + packer.flush()


@settings(deadline=None, max_examples=examples(300))
@given(st.data(), st.sampled_from(list(FRAMES.values())), st.sampled_from(list(WRAPPINGS.values())))
def test_no_way_to_compress_hides_one(made: st.DataObject, frame: bytes, wrap: Wrap) -> None:
    header = made.draw(st.binary(max_size=31) | st.sampled_from([b"", b"orders/v1 " * 3, bytes(31)]))
    data = made.draw(
        deflated(made.draw(st.sampled_from([header + wrap(frame), wrap(frame), header + frame])))
    )
    # Python's zlib says what is within.
    if layers_around(data) is not None:
        assert columns_say([data]) == [0]


def test_ordinary_compressed_data_is_passed_over_by_its_beginning() -> None:
    rng = random.Random(3)
    rows = [
        {"id": n, "name": f"customer-{rng.randrange(9999)}", "uuid": f"{rng.getrandbits(128):032x}"}
        for n in range(300)
    ]
    items = [json.dumps(rows[n : n + 1 + n % 40]).encode() for n in range(250)]
    for pack in (
        gzip.compress,
        zlib.compress,
        lambda data: zlib.compress(data, 1),
        lambda data: zlib.compress(data, 0),
    ):
        assert columns_say(list(map(pack, items))) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: b"x\x9c" * 500_000,
        lambda: b"\xf3\x89\x9a\xc2" * 250_000,
        lambda: b'\n "' * 300_000,
        lambda: b"84maw" * 200_000,
        lambda: zlib.compress(FRAMES["text"][:40] + bytes(100_000_000), 1),
        lambda: zlib.compress(zlib.compress(zlib.compress(bytes(50_000_000)))),
    ],
    ids=["signs", "magics", "space", "text", "bomb", "bomb in bombs"],
)
def test_hostile_data_takes_little_time(make: Callable[[], bytes]) -> None:
    data = make()
    begun = time.process_time()
    assert layers_around(data) is None
    columns_say([data])
    assert time.process_time() - begun < 5
