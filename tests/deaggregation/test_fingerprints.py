"""The writers of the held frames are named as they are, and nobody else is named for certain."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.deaggregation.fingerprints import OTHERS, SIGNS, fingerprint
from kpl_codec.format.frame import join_frame
from kpl_codec.format.hash_keys import partition_key_hash
from kpl_codec.testing import strategies as kpl_st

from ..spec.vectors import REPOSITORY, VECTORS, Written, wild

#: The names that `SIGNS` has for the encoders of the vectors.
NAMES = {
    "a8m": "a8m/kinesis-producer",
    "a8m-1mib": "a8m/kinesis-producer",
    "erlmld": "erlmld",
    "ex_kpl": "ex_kpl",
    "fluent-bit-go": "fluent-bit's Go plugin",
    "fluent-bit-go-nokey": "fluent-bit's Go plugin",
    "fluentd-aggregated": "a Ruby plugin of Fluentd",
    "fluentd-aggregated-fixed": "a Ruby plugin of Fluentd",
    "fluentd-atlassian": "a Ruby plugin of Fluentd",
    "java-aggregator-v2": "awslabs' Java RecordAggregator",
    "kinesis-tailf": "kinesis-tailf",
    "kinesis4cats": "kinesis4cats",
    "kpg": "kinesis-producer-go",
    "kpg-1mib": "kinesis-producer-go",
    "kplnet": "KPLNET",
    "ruby-hawknewton": "hawknewton/kinesis-aggregation",
    "substation": "substation",
    "vector-lht": "Vector's fork",
    "vector-lht-1000": "Vector's fork",
    "zio": "zio-kinesis",
}
CERTAIN = {name for sign in SIGNS if sign.certainty == "certain" for name in sign.writers}


def told(cases: list[Written]) -> Counter[str]:
    """How sure the fingerprints of these cases are. Each names its writer."""
    found: Counter[str] = Counter()
    for case in cases:
        for output in case.outputs:
            seen = fingerprint(output.data, output.partition_key)
            assert seen is not None
            assert NAMES[case.encoder] in seen.writers, (case.case, seen)
            assert seen.certainty != "certain" or len(seen.writers) == 1
            found[seen.certainty] += 1
    return found


@pytest.mark.requirement("FPR-1", "FPR-2")
def test_the_writer_is_among_those_named_and_the_chapter_has_today_s_counts():
    """And alone where that is certain."""
    page = (REPOSITORY / "spec" / "12-implementations.md").read_text()
    shown = re.findall(r"^\| `([\w-]+)` \|.*\| (\d+) / (\d+) / (\d+) \|$", page, re.MULTILINE)
    counts = {name: told(cases) for name, cases in wild().items()}
    order = ("certain", "likely", "unknown")
    assert {name: tuple(map(int, row)) for name, *row in shown} == {
        name: tuple(found[how] for how in order) for name, found in counts.items()
    }
    assert {NAMES[name] for name, found in counts.items() if found["certain"]} <= CERTAIN


@pytest.mark.requirement("FPR-1")
@given(kpl_st.aggregated_records(), st.sampled_from(["a", "first", None]))
def test_what_the_kpl_may_have_written_is_never_certain(aggregate, outer):
    records = list(aggregate.user_records)
    outer_key = records[0].partition_key if outer == "first" else outer
    seen = fingerprint(kpl.encode(records), outer_key)
    assert seen is None or seen.certainty != "certain"


@pytest.mark.requirement("FPR-1", "WCH-12")
@pytest.mark.parametrize("writer", ["kpl", "aiokpl", "aws-kinesis-agg-python", "aws-kinesis-agg-npm"])
def test_the_usual_writers_are_not_taken_for_others(writer):
    story = json.loads((VECTORS / f"story-{writer}.json").read_text())["vectors"]
    frames = [bytes.fromhex(vector.get("data") or vector["input"]["data"]) for vector in story]
    aggregates = [frame for frame in frames if kpl.is_aggregated(frame)]
    assert aggregates
    for data in aggregates:
        outer = "a" if writer == "kpl" else kpl.decode(data)[0].partition_key
        seen = fingerprint(data, outer)
        assert seen is not None
        assert seen.certainty != "certain"
        assert not {fingerprint(data, key) for key in ("a", "8f3a")} & {*OTHERS}
        if writer == "kpl" and kpl.decode(data)[0].partition_key != "a":
            assert seen.writers == ("the KPL", "kpl_codec")


def logs(keys: list[str], names: list[str]) -> bytes:
    """Two user records for each key, with data that names another thing, too."""
    data = [json.dumps({"id": name, "n": n}).encode() for n, name in enumerate(names * 2)]
    return kpl.encode([kpl.UserRecord(key, text) for key, text in zip(keys * 2, data, strict=True)])


@pytest.mark.requirement("FPR-3")
@given(st.lists(st.text("abcdef", min_size=6, max_size=6), min_size=3, max_size=8, unique=True), st.randoms())
def test_keys_in_the_data_of_others(keys, random):
    """A permuted table, as fluent-bit's Go plugin writes it, shows where data names its own key."""
    names = random.sample(keys, len(keys))
    seen = fingerprint(logs(names, keys), names[0])
    stayed = sum(key == name for key, name in zip(keys, names, strict=True))
    moved = len(keys) - stayed
    if moved >= 3 and moved > stayed:
        assert seen is not None
        assert (seen.name, seen.swaps) == ("keys-of-others", "partition_key")
    sound = fingerprint(logs(keys, keys), keys[0])
    assert sound is not None
    assert sound.swaps is None


def test_a_swap_is_the_same_for_a_key_s_records():
    """One key whose records name several others: no table was swapped, these are letters between them."""
    keys = ["anna", "bert", "carl", "dora"] * 2
    names = ["bert", "carl", "dora", "anna", "carl", "dora", "anna", "bert"]
    data = kpl.encode([kpl.UserRecord(key, name.encode()) for key, name in zip(keys, names, strict=True)])
    assert fingerprint(data, "anna").name == "first-key"


ONE_KEY = kpl.encode(
    [kpl.UserRecord("k", b"1", str(partition_key_hash("k"))), kpl.UserRecord("k", b"2", "5")]
)


@pytest.mark.parametrize(
    ("data", "outer_key", "said"),
    [
        (b"plain", "k", "None"),
        (kpl.encode([kpl.UserRecord("k", b"x")])[:-1] + b"?", "k", "None"),
        (ONE_KEY, "k", "likely: kinesis4cats or awslabs' Java RecordAggregator (one partition key, "),
        (kpl.encode([kpl.UserRecord("k", b"x"), kpl.UserRecord("l", b"x")]), None, "None"),
        (kpl.encode([kpl.UserRecord("k", b"x"), kpl.UserRecord("l", b"x")]), "a", "likely: the KPL or kpl_"),
        (kpl.encode([kpl.UserRecord("k", b"x")] * 2), "k", "unknown: a8m/kinesis-producer or "),
    ],
)
def test_in_words(data, outer_key, said):
    assert str(fingerprint(data, outer_key)).startswith(said)


@given(
    (kpl_st.defective_frames() | kpl_st.non_canonical_records()).map(lambda made: made.data)
    | st.binary(max_size=60).map(join_frame),
    st.none() | st.text(max_size=3),
)
def test_nothing_stops_it(data, outer_key):
    assert str(fingerprint(data, outer_key))


@pytest.mark.requirement("FPR-2")
@given(
    st.lists(
        st.tuples(st.sampled_from(["k0", "k1", "k2"]), st.integers(0, 2**128 - 1)), min_size=1, max_size=6
    )
)
def test_a_writer_without_its_sign_is_among_the_unknown_ones(keys):
    """awslabs' Java RecordAggregator writes an MD5 where no explicit hash key is given: its sign. Where all
    are given, it writes what the KPL writes, under its first user record's key."""
    data = kpl.encode([kpl.UserRecord(key, b"x", hash_key) for key, hash_key in keys])
    seen = fingerprint(data, keys[0][0])
    assert seen is not None
    assert {"awslabs' Java RecordAggregator", "kinesis4cats"} <= {*seen.writers}
