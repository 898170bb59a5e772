"""The law of the door: each wrong argument of each public function is refused at the call, by its name.

The wrong values come from a parameter's annotation, not from the table that refuses them.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from botocore.config import Config

import kpl_codec as kpl
from kpl_codec import adapters, arrow, aws, schema_registry
from kpl_codec.aws import aio as aws_aio
from kpl_codec.aws_lambda import (
    ShardMapCache,
    idempotency_key,
    powertools,
    process_user_records,
    transform_user_records,
    user_records,
)
from kpl_codec.aws_lambda import aio as lambda_aio
from kpl_codec.base.arguments import NEEDS, _rows, row_of
from kpl_codec.kcl import audited
from kpl_codec.ledger.ledger import Ledger
from kpl_codec.producer import AsyncProducer, Producer, delivers
from kpl_codec.producer.metrics import OpenTelemetryMetrics
from kpl_codec.spark import local_session
from kpl_codec.testing.faults import FaultProxy, cut_response, error, fail_records, slow, throttle
from kpl_codec.testing.local_kinesis import LocalKinesis
from kpl_codec.testing.serving import CannotListen, ServerThread
from kpl_codec.validate import LocalEngine, validate, validate_stream

from ..every import every
from ..test_surface import OBJECTS, functions

VERSION = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
NUMBER = "49545115243490985018280067714973144582180062593244200961"
SHARD = "shardId-000000000000"
MAP = kpl.ShardMap([kpl.Shard(SHARD, kpl.ALL_HASH_KEYS)])
RECORD = kpl.KinesisRecord("a", kpl.encode([kpl.UserRecord("a", b"1")]), NUMBER, SHARD)
EVENT = adapters.to_lambda([RECORD], stream_arn=ARN)
FIREHOSE = {"records": [{"recordId": "1", "data": "eA=="}]}
STORE = Mock(spec=["save_inprogress"])
TABLE = pa.table({"data": [RECORD.data]})


class Effects:
    """What a call has done: calls of the client, records handled, a stream of batches read."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.meta = types.SimpleNamespace(region_name="us-east-1", endpoint_url="", config=None)

    def handler(self, *given: Any) -> None:
        self.seen.append(given)

    def batches(self) -> Iterator[pa.RecordBatch]:
        self.seen.append("batches")
        yield from TABLE.to_batches()

    def client_call(self, **arguments: Any) -> Any:
        self.seen.append(arguments)
        raise KeyboardInterrupt  # no service is there: whoever comes so far has done something

    list_shards = describe_stream_summary = get_shard_iterator = get_records = put_records = client_call


def both(function: Callable[..., Any], **given: Any) -> Callable[..., Any]:
    return lambda effects, **options: function(effects, **{**given, **options})


def method_of(kind: Any, name: str, _effects: Effects, **options: Any) -> Any:
    return getattr(kind, name)(Mock(spec=kind), **options)


#: Functions by the name that errors have, each called with the effects and with options.
CALLS: dict[str, Callable[..., Any]] = {
    "deaggregate": lambda e, **o: kpl.deaggregate([RECORD], **o),
    "explain": lambda e, **o: kpl.explain(RECORD.data, **o),
    "ShardMap": lambda e, **o: kpl.ShardMap(MAP.values(), **o),
    "Lineage": lambda e, **o: kpl.Lineage(MAP.values(), **o),
    "AggregatedRecordBuilder": lambda e, **o: kpl.AggregatedRecordBuilder(**o),
    "to_lambda": lambda e, **o: adapters.to_lambda([RECORD], **{"stream_arn": ARN, **o}),
    "to_firehose": lambda e, **o: adapters.to_firehose([RECORD], **{"delivery_stream_arn": ARN, **o}),
    "to_get_records": lambda e, **o: adapters.to_get_records([RECORD], **o),
    "captured": lambda e, **o: adapters.captured(EVENT, **o),
    "Deaggregator": lambda e, **o: arrow.Deaggregator(TABLE.schema, **o),
    "output_schema": lambda e, **o: arrow.output_schema(TABLE.schema, **o),
    "deaggregate_table": lambda e, **o: arrow.deaggregate_table(e.batches(), **o),
    "deaggregate_batches": lambda e, **o: arrow.deaggregate_batches(e.batches(), **o),
    "unframe": lambda e, **o: schema_registry.unframe(b"data", **o),
    "read_stream": both(aws.read_stream, stream="orders"),
    "read_record": both(aws.read_record, stream="orders", shard_id=SHARD, sequence_number=NUMBER),
    "fetch_shard_map": both(aws.fetch_shard_map, stream="orders"),
    "fetch_lineage": both(aws.fetch_lineage, stream="orders"),
    "fetch_records": both(aws.fetch_records, stream="orders", locations=[]),
    "aio.read_stream": both(aws_aio.read_stream, stream="orders"),
    "aio.read_record": both(aws_aio.read_record, stream="orders", shard_id=SHARD, sequence_number=NUMBER),
    "aio.fetch_shard_map": both(aws_aio.fetch_shard_map, stream="orders"),
    "kinesis_client": lambda e, **o: aws.kinesis_client(**{"region": "us-east-1", **o}),
    "user_records": lambda e, **o: user_records(EVENT, **o),
    "process_user_records": lambda e, handler=None, **o: process_user_records(EVENT, handler, **o),
    "aio.process_user_records": lambda e, handler=None, **o: lambda_aio.process_user_records(
        EVENT, handler, **o
    ),
    "transform_user_records": lambda e, handler=None, **o: transform_user_records(FIREHOSE, handler, **o),
    "ShardMapCache": lambda e, **o: ShardMapCache(e, **o),
    "Producer": lambda e, **o: Producer(**{"stream": "orders", **o}),
    "AsyncProducer": lambda e, **o: AsyncProducer(**{"stream": "orders", **o}),
    "Ledger": lambda e, **o: Ledger(**{"place": "put", **o}),
    "Ledger.writer": lambda e, **o: Ledger("put").writer(**{"stream": "orders", **o}),
    "Ledger.handled": lambda e, **o: Ledger("put").handled(**{"stream": "orders", "records": [], **o}),
    "frame": lambda e, **o: schema_registry.frame(b"data", VERSION, **o),
    "once": lambda e, **o: powertools.once(**{"persistence_store": STORE, "context": 5, **o}),
    "async_once": lambda e, **o: powertools.async_once(**o),
    "UserRecordBatchProcessor": lambda e, **o: powertools.UserRecordBatchProcessor(**o),
    "idempotency_key": lambda e, **o: idempotency_key(next(iter(kpl.deaggregate([RECORD]))), **o),
    "Ledger.note": lambda e, **o: Ledger("put").note(**{"stream": "orders", "rows": [], **o}),
    "kinesis_records": lambda e, **o: adapters.kinesis_records(EVENT, **o),
    **{
        f"{kind.__name__}.{name}": partial(method_of, kind, name)
        for kind in (Producer, AsyncProducer)
        for name in ("flush", "close", "wait_ready")
    },
    "delivers": lambda e, **o: delivers(**o),
    "OpenTelemetryMetrics": lambda e, **o: OpenTelemetryMetrics(**{"stream": "orders", **o}),
    "LocalKinesis": lambda e, **o: LocalKinesis(**o),
    "FaultProxy": lambda e, **o: FaultProxy(**{"target": "http://localhost:1", **o}),
    "FaultProxy.on": lambda e, **o: FaultProxy.on(
        Mock(spec=FaultProxy), **{"operation": "*", "fault": throttle(), **o}
    ),
    "error": lambda e, **o: error(**{"code": "X", **o}),
    "fail_records": lambda e, **o: fail_records(**{"which": [0], **o}),
    "slow": lambda e, **o: slow(**o),
    "cut_response": lambda e, **o: cut_response(**o),
    "local_session": lambda e, **o: local_session(**o),
    "audited": lambda e, **o: audited(dict, **{"stream": "orders", "ledger": Ledger("put"), **o}),
    "LocalEngine": lambda e, **o: LocalEngine(**o),
    "validate": lambda e, **o: validate(
        **{"inputs": ["in"], "shard_map": MAP, "output": "out", "engine": LocalEngine(), **o}
    ),
    "validate_stream": lambda e, **o: validate_stream(
        **{"client_settings": {}, "stream": "s", "shard_map": MAP, "output": "o"}
        | {"engine": LocalEngine(), **o}
    ),
}  # fmt: skip


class Thing: ...


def a_generator_function(*_: Any) -> Iterator[None]:
    yield


NAN = float("nan")
_NO_OBJECT = {"text": "yes", "number": 5, "class": Thing, "object": Thing(), "list": ["x"], "true": True}
_NO_FUNCTION = {
    "text": "print",
    "number": 5,
    "class": Thing,
    "true": True,
    "list": [print],
    "generator": a_generator_function,
    "seven arguments": lambda a, b, c, d, e, f, g: None,
}
#: By the words of an annotation: values that do not fit.
WRONG: dict[str, dict[str, Any]] = {
    "bool": {"text": "no", "one": 1, "zero": 0, "list": [], "nan": NAN, "class": bool},
    "int": {"text": "5", "half": 5.5, "nan": NAN, "minus": -1, "true": True, "list": [5], "class": int},
    "float": {"text": "5", "nan": NAN, "minus": -1, "true": True, "list": [5], "class": float, "inf": 1e999},
    "str": {"bytes": b"x", "number": 5, "path": Path("x"), "list": ["x"], "class": str, "true": True},
    "texts": {"one text": "data", "bytes": b"data", "numbers": [1], "number": 5, "class": list},
    "bytes": {"text": "x", "number": 5, "list": [1], "class": bytes},
    "Callable": _NO_FUNCTION,
    "word": {"bytes": b"strict", "number": 5, "other": "lenient", "list": ["strict"], "set": {"strict"}},
    "datetime": {"naive": datetime(2026, 1, 1), "number": 5, "word": "latest", "true": True},
    "folder": {
        "number": 5,
        "empty": "",
        "home": "~/checked",
        "one slash": "s3:/bucket/checked",
        "large": "S3://bucket/checked",
        "no bucket": "s3://",
        "another": "dbfs:/checked",
    },
    "object": _NO_OBJECT,
}


#: The key of WRONG by the name of a parameter, or by the first word of its annotation.
KINDS = {
    **dict.fromkeys(["AsyncHandler", "AsyncOnce", "Callable", "Handler", "Observe", "Once"], "Callable"),
    **dict.fromkeys(["Distribution", "Literal", "Policy"], "word"),
    **dict.fromkeys(["columns", "inputs", "shard_ids"], "texts"),
    **dict.fromkeys(["output", "place"], "folder"),
    **dict.fromkeys(["Engine", "HashKeyRange", "IdempotencyConfig", "Ledger", "ProducerConfig"], "object"),
    **dict.fromkeys(["ShardMap", "client", "context", "logger", "model", "producer"], "object"),
    **dict.fromkeys(["Config", "client_settings", "fault", "kind", "meter"], "object"),
    **dict.fromkeys(["persistence_store", "settings", "which"], "object"),
    "Start": "datetime",
    "Stream": "str",
}


def kind_of(annotation: str, name: str) -> str | None:
    """The key of WRONG for a parameter."""
    whole = annotation.removesuffix(" | None")
    if whole in ("bool", "int", "float", "str", "bytes"):
        return whole
    return KINDS.get(name) or KINDS.get(re.split(r"\W", whole)[0])


def words_of(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


#: Public functions by the names of `CALLS`.
HOMES: dict[str, Any] = {}
for thing in OBJECTS.values():
    for one in functions(thing):
        name = thing.__name__ if one.__name__ == "__init__" else one.__qualname__
        is_aio = one.__module__.endswith(".aio") or "async_" in str(one)
        HOMES.setdefault(f"aio.{name}" if is_aio and name != "async_once" else name, one)


def parameters(function: str) -> Mapping[str, str]:
    """The options of a function by name, those of its TypedDicts, too, with their annotations."""
    from kpl_codec.arrow import Options
    from kpl_codec.aws_lambda.batch import Invocation
    from kpl_codec.aws_lambda.events import records_of_event
    from kpl_codec.producer.config import ProducerOptions

    plain = function.removeprefix("aio.")
    if function == "AggregatedRecordBuilder":  # compiled: it has no signature
        return {"max_size": "int | None"}
    signature = inspect.signature(HOMES.get(function) or HOMES[plain])
    found = {name: words_of(one.annotation) for name, one in signature.parameters.items()}
    more: list[Any] = []
    if plain == "process_user_records":
        for home in (Invocation.__init__, records_of_event):
            found |= {n: words_of(p.annotation) for n, p in inspect.signature(home).parameters.items()}
    elif plain in ("deaggregate_table", "deaggregate_batches"):
        more = [Options]
    elif plain in ("Producer", "AsyncProducer"):
        more = [ProducerOptions]
    for typed in more:
        found |= {n: getattr(a, "__forward_arg__", str(a)) for n, a in typed.__annotations__.items()}
    return {name: text for name, text in found.items() if row_of(name, plain)}


#: What chooses the records that are read: None is refused, too (ARG-12).
CHOOSES = {"client", "inputs", "only", "shard_ids", "start", "stream"}
#: There it only says whose records they are.
SAYS = {(name, "stream") for name in ("captured", "kinesis_records", "ShardMap", "Lineage")}

CASES = [
    pytest.param(function, name, label, value, id=f"{function}-{name}-{label.replace(' ', '-')}")
    for function in CALLS
    for name, annotation in sorted(parameters(function).items())
    if (kind := kind_of(annotation, name)) is not None
    for label, value in WRONG[kind].items()
    # no limit; any number; seconds
    if (name, label) not in (("timeout", "inf"), ("seed", "minus"))
    and (function, name, label) != ("once", "context", "number")
]
CASES += [
    pytest.param(function, name, "none", None, id=f"{function}-{name}-none")
    for function in CALLS
    for name in sorted(CHOOSES & parameters(function).keys())
    if (function, name) not in SAYS
]


def outcome(function: str, effects: Effects, **options: Any) -> None:
    plain = function.removeprefix("aio.")
    if "process" in plain or plain == "transform_user_records":
        options = {"handler": lambda r: effects.handler(r), **options}
    client = effects if function.endswith("Producer") else options.pop("client", effects)
    result = CALLS[function](client, **options)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def test_the_law_looks_at_many() -> None:
    assert len(CASES) > 1000
    assert len({case.values[1] for case in CASES}) > 60
    assert {case.values[1] for case in CASES if case.values[2] == "none"} == CHOOSES


@pytest.mark.requirement("ARG-1", "ARG-3", "ARG-12")
@every(("function", "name", "label", "value"), CASES)
def test_a_wrong_argument_is_refused_before_anything_is_done(
    function: str, name: str, label: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    effects = Effects()
    with pytest.raises((TypeError, ValueError)) as caught:
        outcome(function, effects, **{name: value})
    text = str(caught.value)
    assert text.startswith(f"{name} of {function.removeprefix('aio.')} is "), text
    assert ", give " in text
    assert not effects.seen
    assert not list(tmp_path.iterdir())


@every("function", [name for name in CALLS if name != "AggregatedRecordBuilder"])
def test_an_unknown_keyword_names_the_function_and_the_nearest(function: str) -> None:
    """The nearest one wherever a function takes options: Python itself names none."""
    plain = function.removeprefix("aio.").rpartition(".")[2]
    for name in parameters(function).keys() - {"stream"}:  # a producer's is no option
        wrong = f"{name}z"
        with pytest.raises(TypeError) as caught:
            outcome(function, Effects(), **{wrong: None})
        text = str(caught.value)
        assert plain in text, text
        assert repr(wrong) in text, text
        assert "unexpected keyword" in text or text.endswith(f"; did you mean {name}?"), text


@pytest.mark.parametrize("kind", [kpl.UserRecord, kpl.KinesisRecord])
def test_a_class_names_itself(kind: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\(\) got an unexpected keyword argument 'kee'"):
        kind("a", b"", kee=1)


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_that_is_none_says_so(port: int) -> None:
    with pytest.raises(CannotListen, match=f"cannot listen at 127.0.0.1, port {port}: "):
        ServerThread(BaseHTTPRequestHandler, "127.0.0.1", port)


#: Parameters without a row, by the reason.
NO_ROW = {
    "data of a record: the function looks at it only where it fails": {
        "data", "explicit_hash_key", "hash_key", "n", "text", "record", "records", "rows", "kinesis_records",
        "schema_version_id",
    },
    "what is read; what is wrong with it is an error with its place": {
        "event", "source", "batches", "table", "df", "pages", "locations", "column", "options", "schema",
        "coroutine",
    },
    "checked as a whole, with each of its items": {"shards"},
    "made by the library, not by callers": {
        "counts", "drop", "other", "ancestor_id", "job", "sink", "name", "outcome",
    },
    "a test's own tool": {
        "keys", "kind", "max_records", "max_reshards", "max_shards", "names", "with_tags",
    },
    "a setting of the producer (ConfigError)": {"compression"},
    "a field of AggregatedRecord": {
        "explicit_hash_key_indices", "explicit_hash_key_table", "partition_key_indices",
        "partition_key_table",
    },
}  # fmt: skip


#: Functions that the law above does not call, by the reason.
NOT_CALLED = {
    "made by the library": {"AggregatedRecord", "Deaggregation", "Writer"},
    "called by the library for each record or batch": {
        "ShardMapCache.shard_map", "Counts.add_drop", "Deaggregator.process",
    },
    "runs for each record: tests of its room": {
        "Producer.put", "Producer.check", "AsyncProducer.put", "AsyncProducer.check", "Writer.put",
        "decompress",
    },
    "needs Spark: tests of its room": {"verify"},
}  # fmt: skip


#: Functions that run for each record, with one argument left open: each looks at it where it does not fit.
PER_RECORD: dict[str, Callable[[Any], Any]] = {
    "ShardMap.shard_for": MAP.shard_for,
    "ShardMap.from_list_shards": kpl.ShardMap.from_list_shards,
    "ShardMap.from_json": kpl.ShardMap.from_json,
    "verify_placement": lambda value: kpl.verify_placement(value, MAP),
    "unframe": schema_registry.unframe,
    "encode": lambda value: kpl.encode([value]),
    "effective_hash_key": kpl.effective_hash_key,
    "partition_key_hash": kpl.partition_key_hash,
    "fail_records": fail_records,
    **{f"Lineage.{name}": getattr(MAP, name) for name in ("parents", "children", "ancestors", "generation")},
    **{f"Lineage.{name}": getattr(MAP, name) for name in ("created", "closed_at")},
    "Lineage.is_descendant": lambda value: MAP.is_descendant(value, SHARD),
    "Lineage.is_descendant of": lambda value: MAP.is_descendant(SHARD, value),
}


@pytest.mark.requirement("ARG-10")
@every(
    "value",
    [None, 5.5, NAN, object(), [Thing()], True],
    ids=["none", "half", "nan", "object", "list", "true"],
)
@every("function", PER_RECORD)
def test_what_runs_for_each_record_gives_no_answer_to_a_wrong_argument(function: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError, LookupError)):
        PER_RECORD[function](value)


#: Functions that take records or data, with one of them left open, and the parameter of that.
ITEMS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "to_lambda": ("records", lambda value: adapters.to_lambda([value], stream_arn=ARN)),
    "to_firehose": ("records", lambda value: adapters.to_firehose([value], delivery_stream_arn=ARN)),
    "to_get_records": ("records", lambda value: adapters.to_get_records([value])),
    "is_aggregated": ("data", kpl.is_aggregated),
    "explain": ("data", kpl.explain),
    "decode": ("data", kpl.decode),
    "encode": ("user_records", kpl.encode),
    "deaggregate of one": ("kinesis_records", lambda value: list(kpl.deaggregate(value))),
    "ShardMap": ("shards", lambda value: kpl.ShardMap([value])),
    "LocalKinesis": ("kind", LocalKinesis),
    "deaggregate": ("kinesis_records", lambda value: list(kpl.deaggregate([value]))),
    "fetch_records": ("locations", lambda value: list(aws.fetch_records(Effects(), "orders", [value]))),
    "fetch_records of one": ("locations", lambda value: aws.fetch_records(Effects(), "orders", value)),
    "Ledger.handled": ("records", lambda value: Ledger(print).handled("orders", [value])),
    "idempotency_key": ("record", lambda value: idempotency_key(value, ARN)),
    "frame": ("schema_version_id", lambda value: schema_registry.frame(b"data", value)),
    "frame of data": ("data", lambda value: schema_registry.frame(value, VERSION)),
    "to_lambda of one": ("records", lambda value: adapters.to_lambda(value, stream_arn=ARN)),
    "Ledger.handled of one": ("records", lambda value: Ledger(print).handled("orders", value)),
}


#: Of `ITEMS`, those that are given a list with a wrong item.
IN_A_LIST = {"to_lambda", "to_firehose", "to_get_records", "deaggregate", "fetch_records", "Ledger.handled"}


@pytest.mark.requirement("ARG-1")
@every("value", [None, 5.5, object(), "text", {}], ids=["none", "half", "object", "text", "dict"])
@every("function", ITEMS)
def test_a_record_of_another_type_is_refused_by_name(function: str, value: Any) -> None:
    name, call = ITEMS[function]
    with pytest.raises((TypeError, ValueError)) as caught:
        call(value)
    text = str(caught.value)
    assert re.match(rf"{name} of {function.partition(' ')[0]} is .*, give ", text)
    # Where the list is right and an item is not, the error does not speak of the whole.
    assert function not in IN_A_LIST or " in item 0, " in text or " in one of its items, " in text, text


def public_functions() -> Iterator[tuple[str, Any]]:
    """Public functions and methods by the name that errors have; no data classes and errors."""
    for thing in OBJECTS.values():
        if not (inspect.isclass(thing) and (is_dataclass(thing) or issubclass(thing, BaseException))):
            for one in functions(thing):
                yield thing.__name__ if one.__name__ == "__init__" else one.__qualname__, one


@pytest.mark.requirement("ARG-1")
def test_every_function_whose_parameters_have_rows_is_called_by_the_law() -> None:
    """A row helps only where the function asks for it."""
    doors = {
        name
        for name, function in public_functions()
        if any(row_of(one, name) for one in inspect.signature(function).parameters)
    }
    doors = {name for name in doors if "<locals>" not in name}  # of testing.strategies
    excused = set().union(*NOT_CALLED.values())
    called = {*CALLS, *PER_RECORD, *(name.partition(" ")[0] for name in ITEMS)}
    assert (doors - called - excused, excused & called) == (set(), set())


@pytest.mark.requirement("ARG-1")
def test_every_parameter_has_a_row_or_a_reason() -> None:
    without = {
        name
        for function, called in public_functions()
        for name, parameter in inspect.signature(called).parameters.items()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and not row_of(name, function)
    }
    assert without == {"self", "cls"}.union(*NO_ROW.values())
    met = {"fn"}.union(*map(parameters, CALLS))  # (of a future)
    met.update(*(inspect.signature(called).parameters for _, called in public_functions()))
    assert {name.partition(" of ")[0] for name in _rows()} <= met, "a row that nothing asks for"


@pytest.mark.requirement("ARG-2")
def test_an_option_is_refused_without_what_it_needs() -> None:
    asked = {}
    for function in CALLS:
        for name in NEEDS.keys() & parameters(function).keys():
            effects = Effects()
            with pytest.raises(ValueError) as caught:
                outcome(function, effects, **{name: 100 if name == "reserve_ms" else "x"})
            assert str(caught.value).startswith(
                f"{name} of {function.removeprefix('aio.')} is given without "
            )
            assert not effects.seen
            asked[name] = str(caught.value).partition(" without ")[2].partition(",")[0]
    assert asked == {
        "access_key_id": "secret_access_key",
        "reserve_ms": "context",
        "role_external_id": "role_arn",
        "role_session_name": "role_arn",
        "secret_access_key": "access_key_id",
        "session_token": "access_key_id",
        "sts_endpoint_url": "role_arn",
    }
    with pytest.raises(ValueError, match=r"^access_key_id of .*Producer is given without secret_access_key"):
        Producer("orders", client_settings={"access_key_id": "x"})
    effects, place = Effects(), aws.RecordLocation("7", SHARD)
    with pytest.raises(ValueError, match=r"^start of validate_stream is given with only, give one of them$"):
        outcome("validate_stream", effects, start="LATEST", only=[place])
    assert not effects.seen


@pytest.mark.requirement("ARG-1")
def test_a_policy_that_drops_by_range_needs_a_map_and_a_shard_map_needs_shards_of_texts() -> None:
    kcl: Any = {"policy": "kcl", "shard_map": MAP, "on_drop": print}
    for name in ("shard_map", "on_drop"):
        with pytest.raises(ValueError, match=rf"^{name} of process_user_records is None, give "):
            process_user_records(EVENT, print, **{**kcl, name: None})
    texts = [name for name in kpl.Shard.__match_args__ if name != "hash_key_range"]
    for field, value in product(texts, (5, b"x", ["x"], True)):
        shard = kpl.Shard(SHARD, kpl.ALL_HASH_KEYS).replace(**{field: value})
        with pytest.raises(TypeError, match=r"^shards of ShardMap is .*, give Shards, each with texts"):
            kpl.ShardMap([shard])


def test_no_error_shows_a_secret() -> None:
    for name in ("access_key_id", "secret_access_key", "session_token"):
        with pytest.raises(ValueError) as caught:
            aws.kinesis_client(region="us-east-1", **{name: "hush\n"})  # type: ignore[arg-type]
        assert "hush" not in str(caught.value)


def test_doubles_and_callables_of_all_sorts_fit() -> None:
    class Handler:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def __call__(self, record: Any, *, more: int = 0) -> None:
            self.seen.append(record)

        def method(self, record: Any, more: int = 0) -> None:
            self.seen.append(record)

        @staticmethod
        def plain(*records: Any) -> None: ...

    one = Handler()
    for fits in (one, one.method, one.plain, one.seen.append, print, Mock(), partial(one.method, more=2)):
        assert process_user_records(EVENT, fits) == {"batchItemFailures": []}
    assert len(one.seen) == 4


def test_help_of_a_plain_function_shows_no_async_one() -> None:
    for name in ("read_stream", "read_record", "fetch_shard_map", "fetch_lineage"):
        shown = inspect.signature(getattr(aws, name))
        assert "sync" not in str(shown).lower(), name
        assert "sleep" not in shown.parameters


def test_a_subclass_of_a_producer_takes_what_its_base_takes_and_passes_on_no_more() -> None:
    class OfAsyncio(AsyncProducer): ...

    class OfThreads(Producer):
        def __init__(self, stream: str, *, label: str = "", **options: Any) -> None:
            super().__init__(stream, **options, **({"label": label} if label else {}))

    async def keep(error: object) -> None: ...

    settings = {"region": "eu-west-1", "config": Config()}
    role = {"region": "eu-west-1", "role_arn": "arn:aws:iam::123456789012:role/reader"}
    OfAsyncio("orders", on_undelivered=keep, client_settings=settings)
    OfThreads("orders", client_settings=settings | role)
    for kind, options, text in (
        (OfAsyncio, {"client_settings": {"role": "x"}}, "client_settings of AsyncProducer.. has no argument"),
        (OfThreads, {"on_undelivered": keep}, "on_undelivered of Producer is an async function"),
        (OfThreads, {"label": "x"}, "no argument 'label'"),
    ):
        with pytest.raises(TypeError, match=text):
            kind("orders", **options)
