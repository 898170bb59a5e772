"""Protocols of values: what Python and its tools may do with one is the same with and without compiled code.

Values of fields are compared elsewhere (test_speedups.py, deaggregation/test_records.py).
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import os
import pickle
import pprint
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.base.compiled import speedups
from kpl_codec.base.values import Value, each
from kpl_codec.producer import Attempt, Delivery

from ..every import every

SHARD = "shardId-000000000000"
MAP = kpl.ShardMap([kpl.Shard(SHARD, kpl.ALL_HASH_KEYS)])
NOW = datetime(2026, 11, 23, tzinfo=timezone.utc)


def a_row(number: int = 0) -> kpl.DeaggregatedRecord:
    """A user record as `deaggregate` makes it: one of a sound aggregate, a plain one, one with a defect."""
    sound = kpl.encode([kpl.UserRecord("key", b"data", "7"), kpl.UserRecord("k%s", b"d" * 500)])
    frames = [sound, b"plain", sound[:-1] + b"?"]
    records = [kpl.KinesisRecord("outer", data, str(i), SHARD, NOW) for i, data in enumerate(frames)]
    return list(kpl.deaggregate(records, "report", shard_map=MAP))[number]


def a_placement() -> kpl.Placement:
    placement = a_row().placement
    assert placement is not None
    return placement


ATTEMPT = Attempt("delivered", 1.0, 2.0, SHARD, SHARD, "7")
#: How to make one of each class that compiled code makes or reads, and of some that only Python makes.
VALUES: dict[str, Callable[[], Any]] = {
    "row": a_row,
    "large row": lambda: a_row(1),
    "plain row": lambda: a_row(2),
    "defective row": lambda: a_row(3),
    "made row": lambda: kpl.DeaggregatedRecord("k", b"d", None, (), "1", 0, True, SHARD, None),
    "user record": lambda: kpl.UserRecord("k%s", b"d" * 500, 7, (kpl.Tag("name"),)),
    "decoded user record": lambda: next(iter(kpl.decode(kpl.encode([kpl.UserRecord("key", b"data")])))),
    "tag": lambda: kpl.Tag("name", "value"),
    "Kinesis record": lambda: kpl.KinesisRecord("outer", b"data", "7", SHARD),
    "placement": a_placement,
    "shard": lambda: MAP.open_shards[0],
    "delivery": lambda: Delivery(SHARD, "7", 0, (ATTEMPT,)),
    "attempt": lambda: ATTEMPT,
    "drop": lambda: kpl.Drop("7", SHARD, 2, "out-of-range", 0),
}


def _first(value: Any) -> str:
    name: str = value.__match_args__[0]
    return name


def _matched(value: Any) -> Any:
    match value:
        case kpl.DeaggregatedRecord(key, data, sub_sequence_number=sub):
            return key, data, sub
        case kpl.KinesisRecord(key, data):
            return key, data
        case (_, *rest):
            return rest
    return None


def _pandas(value: Any) -> Any:
    import pandas as pd

    return [str(column) for column in pd.DataFrame([value, value]).columns]


def _delete(value: Any) -> None:
    delattr(value, _first(value))


#: What is done with a value.
PROTOCOLS: dict[str, Callable[[Any], Any]] = {
    "iter": iter,
    "unpack": lambda v: [*v],
    "len": len,
    "bool": bool,
    "index": lambda v: v[0],
    "slice": lambda v: v[:2],
    "in": lambda v: "key" in v,
    "reversed": reversed,
    "%": lambda v: "%s" % v,  # noqa: UP031
    "% of each field": lambda v: "%s " * len(v.__match_args__) % v,
    "format": lambda v: f"{v}",
    "format with a width": lambda v: f"{v:>9}",
    "str": str,
    "repr": repr,
    "add": lambda v: v + (1,),  # noqa: RUF005
    "radd": lambda v: (1,) + v,  # noqa: RUF005
    "mul": lambda v: v * 2,
    "order": lambda v: v < v.replace(),
    "equal": lambda v: (v == v.replace(), v != v.replace(), v == tuple(dataclasses.astuple(v))),
    "hash": lambda v: hash(v) == hash(v.replace()),
    "key": lambda v: {v: 1}[v.replace()],
    "isinstance": lambda v: [isinstance(v, kind) for kind in (tuple, Value, type(v))],
    "type": lambda v: (type(v).__module__, type(v).__qualname__, type(v).__name__),
    "doc": lambda v: type(v).__doc__,
    "signature": lambda v: str(inspect.signature(type(v))),
    "annotations": lambda v: type(v).__annotations__,
    "match_args": lambda v: v.__match_args__,
    "match": _matched,
    "dir": lambda v: [name for name in dir(v) if name[:1] != "_"],
    "vars": vars,
    "class attribute": lambda v: callable(getattr(type(v), _first(v)).__get__),
    "set": lambda v: setattr(v, _first(v), 1),
    "set new": lambda v: setattr(v, "another", 1),
    "set class": lambda v: setattr(v, "__class__", Value),
    "delete": _delete,
    "unknown": lambda v: v.dta,
    "subclass": lambda v: type("Sub", (type(v),), {}),
    "no arguments": lambda v: type(v)(),
    "unknown argument": lambda v: type(v)(dta=1),
    "replace": lambda v: v.replace(**{_first(v): "new"}),
    "replace unknown": lambda v: v.replace(dta=1),
    "__replace__": lambda v: v.__replace__(**{_first(v): "new"}),
    "copy": lambda v: (copy.copy(v) == v, type(copy.copy(v)) is type(v)),
    "deepcopy": lambda v: copy.deepcopy(v) == v,
    "pickle": lambda v: [pickle.dumps(v, protocol).hex() for protocol in range(6)],
    "unpickle": lambda v: [pickle.loads(pickle.dumps(v, protocol)) == v for protocol in range(6)],
    "json": json.dumps,
    "json default": lambda v: json.dumps(v, default=str),
    "dataclass": dataclasses.is_dataclass,
    "dataclasses.fields": lambda v: [(f.name, f.type, repr(f.default)[:20]) for f in dataclasses.fields(v)],
    "dataclasses.replace": lambda v: dataclasses.replace(v, **{_first(v): "new"}),
    "dataclasses.asdict": dataclasses.asdict,
    "pprint": lambda v: pprint.pformat([v, v], width=20),
    "pandas": _pandas,
    "weakref": lambda v: hasattr(v, "__weakref__"),
}  # fmt: skip


def answers() -> dict[str, dict[str, str]]:
    """What each protocol gives for each value, as text."""
    found: dict[str, dict[str, str]] = {}
    for name, make in VALUES.items():
        for protocol, use in PROTOCOLS.items():
            try:
                told = repr(use(make()))
            except Exception as error:  # noqa: BLE001 - which error it is belongs to the answer
                told = f"{type(error).__name__}: {error}"
            found.setdefault(protocol, {})[name] = told
    return found


#: Prints what a process without compiled code answers.
_WITHOUT = """
import json, sys
from tests.base import test_values
assert test_values.speedups is None and "kpl_codec._speedups" not in sys.modules
print(json.dumps(test_values.answers()))
"""


@pytest.mark.skipif(speedups is None, reason="built without a C compiler, or KPL_CODEC_PURE=1")
def test_values_are_the_same_with_and_without_compiled_code() -> None:
    """What each protocol answers. As pickles are the same bytes, each can read the other's."""
    run = subprocess.run(
        [sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=True, timeout=120,
        env={**os.environ, "KPL_CODEC_PURE": "1"}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    theirs, ours = json.loads(run.stdout), answers()
    assert {name: ours[name] for name in PROTOCOLS if ours[name] != theirs[name]} == {}


@every("name", VALUES)
@every(
    "protocol",
    ["iter", "unpack", "len", "index", "slice", "in", "reversed", "% of each field", "add", "radd", "mul"],
)
def test_no_value_is_a_tuple(name: str, protocol: str) -> None:
    """Code that counted on the number or the order of its fields would break with the next field."""
    with pytest.raises(TypeError):
        PROTOCOLS[protocol](VALUES[name]())
    assert not isinstance(VALUES[name](), tuple)


@every("name", VALUES)
def test_a_value_is_immutable_and_makes_others(name: str) -> None:
    value = VALUES[name]()
    for change in ("set", "set new", "set class", "delete"):
        with pytest.raises(AttributeError, match="immutable"):
            PROTOCOLS[change](value)
    assert value == VALUES[name]()
    changed = value.replace(**{_first(value): "new"})
    assert getattr(changed, _first(value)) == "new"
    assert changed != value == changed.replace(**{_first(value): getattr(value, _first(value))})
    assert dataclasses.replace(value, **{_first(value): "new"}) == changed
    if sys.version_info >= (3, 13):
        assert copy.replace(value, **{_first(value): "new"}) == changed


def test_a_row_without_fields_is_refused_or_says_so() -> None:
    """Compiled code reads its fields in memory: there must be none without them."""
    with pytest.raises((TypeError, AttributeError)):
        print(object.__new__(kpl.DeaggregatedRecord).data)


def test_a_pickle_of_before_a_field_was_added_is_read() -> None:
    kind, fields = a_row().__reduce__()[1]
    del fields["record_id"]
    assert a_row().__reduce__()[0](kind, fields) == a_row()


def test_a_field_more_breaks_nobody() -> None:
    class Grown(Value):
        one: int
        two: int = 2
        three: int = 3

    assert Grown(1) == Grown(1, 2, 3) == Grown(one=1)
    assert list(each(Grown, "one")(Grown, [1, 5], two=2, three=3)) == [Grown(1), Grown(5)]
    match Grown(1):
        case Grown(one, two):
            assert (one, two) == (1, 2)
        case _:
            pytest.fail("no match")
    with pytest.raises(TypeError, match="three"):
        Grown(1, threee=1)  # type: ignore[call-arg]
