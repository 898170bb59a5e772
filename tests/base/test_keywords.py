"""An argument that a function does not have, or has elsewhere: the error names the called function."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from importlib import import_module
from typing import Any

import boto3
import pyarrow as pa
import pytest

import kpl_codec as kpl
from kpl_codec import aws
from kpl_codec.aws import fetch_shard_map
from kpl_codec.producer import AsyncProducer, Producer
from kpl_codec.testing.local_kinesis import LocalKinesis, local_kinesis
from kpl_codec.testing.serving import CannotListen, ServerThread

from ..every import every

_EVENT: dict[str, Any] = {"Records": []}
_TABLE = pa.table({"data": pa.array([], pa.binary())})
#: Each public function and class with ``**options``: arguments of a call, a keyword, and its right name.
CALLS: dict[str, tuple[tuple[Any, ...], str, str]] = {
    "arrow.deaggregate_batches": ((_TABLE,), "shardmap", "shard_map"),
    "arrow.deaggregate_table": ((_TABLE,), "thread", "threads"),
    "aws_lambda.process_user_records": ((_EVENT, print), "polcy", "policy"),
    "aws_lambda.aio.process_user_records": ((_EVENT, print), "concurency", "concurrency"),
    "aws_lambda.powertools.UserRecordBatchProcessor": ((), "polices", "policy"),
    "producer.Producer": (("orders",), "client_setings", "client_settings"),
    "producer.AsyncProducer": (("orders",), "ledgers", "ledger"),
}
MODULES = sorted({name.rpartition(".")[0] for name in CALLS} | {"aws", "aws.aio", "kcl"})


def member(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(f"kpl_codec.{module}"), attribute)


@every("name", CALLS)
def test_an_unknown_keyword_names_the_function_and_the_nearest(name: str) -> None:
    arguments, wrong, right = CALLS[name]

    def call() -> None:
        result = member(name)(*arguments, **{wrong: None})
        if inspect.iscoroutine(result):
            asyncio.run(result)

    with pytest.raises(TypeError) as caught:
        call()
    text = str(caught.value)
    assert text.startswith((f"{name.rpartition('.')[2]}() has no argument {wrong!r}", "Producer", "Async"))
    assert text.endswith(f"; did you mean {right}?")


def test_each_public_function_with_options_is_listed() -> None:
    public = {
        f"{module}.{name}" for module in MODULES for name in import_module(f"kpl_codec.{module}").__all__
    }
    with_options = set()
    for name in public:
        value = member(name)
        if inspect.isfunction(value) or (inspect.isclass(value) and not issubclass(value, Exception)):
            try:
                kinds = [parameter.kind for parameter in inspect.signature(value).parameters.values()]
            except ValueError:  # a class without a signature, such as a TypedDict
                continue
            if inspect.Parameter.VAR_KEYWORD in kinds and not hasattr(value, "__total__"):
                with_options.add(name)
    assert with_options <= CALLS.keys()


@pytest.mark.parametrize("name", ["read_stream", "read_record", "fetch_shard_map", "fetch_lineage"])
def test_readers_name_themselves(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name}\(\) has no argument 'patiense'; did you mean patience\?"):
        getattr(aws, name)(None, "orders", patiense=1)
    with pytest.raises(TypeError, match=rf"^{name}\(\) has no argument 'since'"):
        getattr(aws.aio, name)(None, "orders", since=1)


@pytest.mark.parametrize("kind", [kpl.UserRecord, kpl.KinesisRecord])
def test_a_class_names_itself(kind: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\(\) got an unexpected keyword argument 'kee'"):
        kind("a", b"", kee=1)


@pytest.fixture
def client() -> Any:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    return boto3.session.Session().client("kinesis", region_name="us-east-1", **keys)


@pytest.mark.parametrize(
    "call",
    [
        lambda client: next(aws.read_stream("orders", client)),
        lambda client: asyncio.run(anext(aws.aio.read_stream("orders", client))),
        lambda client: aws.read_record(
            "orders", client, shard_id="shardId-000000000000", sequence_number="1"
        ),
        lambda client: fetch_shard_map("orders", client),
        lambda client: aws.fetch_lineage("orders", client),
    ],
)
def test_swapped_arguments_say_so(call: Callable[[Any], object], client: Any) -> None:
    with pytest.raises(TypeError, match=r"^client of \w+ is of type str, give a client of Kinesis"):
        call(client)


@pytest.mark.parametrize(
    "call", [Producer, AsyncProducer, lambda client: aws.fetch_shard_map(client, client)]
)
def test_a_stream_that_is_no_text_says_so(call: Callable[[Any], object], client: Any) -> None:
    with pytest.raises(TypeError, match=r"^stream of \w+ is of type Kinesis, give a stream's name or ARN"):
        call(client)


@pytest.mark.parametrize("make", [local_kinesis, LocalKinesis])
def test_an_unknown_server_lists_the_names(make: Any) -> None:
    with pytest.raises(
        ValueError, match="kind of LocalKinesis is 'kinesalit', give kinesis-local or kinesalite"
    ):
        make("kinesalit")


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_that_is_none_says_so(port: int) -> None:
    with pytest.raises(CannotListen, match=f"cannot listen at 127.0.0.1, port {port}: "):
        ServerThread(BaseHTTPRequestHandler, "127.0.0.1", port)
