"""The published packages of others, really run: what they encode we decode, what we encode they decode.

aws_kinesis_agg and aiokpl come from PyPI, aws-kinesis-agg from npm (installed into a cache by the test).
Their known bugs are pinned here as observations: when one of these tests fails, the package has changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.testing import strategies as kst
from tests.examples import examples
from tests.spec.vectors import REPOSITORY, load, user_record

from .conformance import Answer, run, table
from .packages import Package, packages


@pytest.fixture(scope="module")
def peers() -> Iterator[dict[str, Package]]:
    with packages() as every:
        yield every


# Keys that every one of them handles: the npm module swaps those that look like integers and refuses
# empty data; aws_kinesis_agg gives everyone entry 0 unless all or none have an explicit hash key.
KEYS = st.sampled_from(["a", "b", "key-1", "schlüssel", "\U0001f600"])
PLAIN = st.builds(kpl.UserRecord, KEYS, st.binary(min_size=1, max_size=60), st.none(), st.just(()))
BIG = st.integers(2**64, 2**128 - 1).map(str)  # too large to look like an index to JavaScript
KEYED = st.builds(kpl.UserRecord, KEYS, st.binary(min_size=1, max_size=60), BIG, st.just(()))
LISTS = st.lists(PLAIN, min_size=2, max_size=8) | st.lists(KEYED, min_size=2, max_size=8)
QUICK = settings(max_examples=examples(60))


@pytest.mark.requirement("FRM-3", "MSG-12", "ENC-3", "ENC-4")
@QUICK
@given(LISTS)
def test_they_encode_the_same_bytes_and_decode_them(
    peers: dict[str, Package], records: list[kpl.UserRecord]
) -> None:
    data = kpl.encode(records)
    assert list(kpl.decode(data)) == records
    for name, peer in peers.items():
        assert peer.encode(*records) == data, name
        assert list(map(user_record, peer.decode(data)["user_records"])) == records, name


@QUICK
@given(kst.plain_data().filter(lambda data: data[:4] != b"\xf3\x89\x9a\xc2"))
def test_plain_data_is_plain_to_all(peers: dict[str, Package], data: bytes) -> None:
    assert {name for name, peer in peers.items() if peer.decode(data) != {"plain": True}} == set()


# --- what each was seen to do (12.3; behaviour of the versions named there) ---------------------------


def without_tags(answer: Answer) -> list[Any]:
    names = ("partition_key", "data", "explicit_hash_key", "partition_key_bytes", "explicit_hash_key_bytes")
    return [[record.get(name) for name in names] for record in answer["user_records"]]


def test_the_observations_in_the_vectors_hold_today(peers: dict[str, Package]) -> None:
    labels = ("aws_kinesis_agg 1.2.3 (PyPI)", "aiokpl 0.2.0 (PyPI)", "aws-kinesis-agg 4.2.7 (npm)")
    checked = 0
    for vector in load():
        for label in vector.get("observed", {}).keys() & labels:
            seen, name = vector["observed"][label], label.split()[0]
            answer = peers[name].decode(bytes.fromhex(vector["input"]["data"]))
            difference = f"{vector['id']} by {name}: {seen} then, {answer} now"
            if seen.get("raw"):
                assert answer.get("plain"), difference
            elif "error" in seen:
                assert "error" in answer, difference
            else:
                assert without_tags(answer) == without_tags(seen), difference
            checked += 1
    assert checked > 250


def test_the_table_in_the_specification_is_today_s(peers: dict[str, Package]) -> None:
    results = {f"{peer.name} {peer.version}": run(peer.ask, load()) for peer in peers.values()}
    page = (REPOSITORY / "spec" / "12-implementations.md").read_text()
    assert table(results) in page, f"put the table of these results there:\n{table(results)}"
