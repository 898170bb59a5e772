"""The watch in a consumer and on a schedule."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import kpl_codec as kpl
from kpl_codec.adapters import to_lambda
from kpl_codec.aws_lambda import aio, consumer_watch, process_user_records
from kpl_codec.aws_lambda.consumer_watch import ConsumerWatch

from ..watch.model import open_map
from ..watch.test_exporters import complaints
from ..watch.test_stream_watcher import naive
from ..watch.test_watch import NAIVE, SOUND, aggregate
from .conftest import STREAM, utc
from .dynamodb import idempotency_table
from .runtime_api import Function

NOW = 1545084712.0


class Maps:
    """Gives one shard map for any stream."""

    def __init__(self, shard_map: kpl.ShardMap | None) -> None:
        self._map = shard_map

    def shard_map(self, stream_arn: str, shard_id: str | None) -> kpl.ShardMap | None:
        return self._map


def event(kinds: list[str], first: int = 0) -> dict[str, Any]:
    shard_map = open_map(2)
    shard = shard_map.open_shards[1]
    data = [aggregate(shard_map, shard, kind) for kind in kinds]
    records = [
        kpl.KinesisRecord("a", one, str(10**20 + first + n), shard.shard_id, utc(1545084711, 0))
        for n, one in enumerate(data)
    ]
    return to_lambda(records, stream_arn=STREAM)


def consumer(**settings: Any) -> tuple[ConsumerWatch, list[Mapping[str, Any]]]:
    written: list[Mapping[str, Any]] = []
    return ConsumerWatch(Maps(open_map(2)), write=written.append, clock=lambda: NOW, **settings), written


def test_a_consumer_tells_what_the_kcl_would_lose():
    looking, written = consumer()
    handled: list[Any] = []
    answer = process_user_records(event([SOUND, NAIVE, SOUND]), handled.append, watch=looking)
    assert answer == {"batchItemFailures": []}
    assert len(handled) == 30
    (finding,) = [line for line in written if "kind" in line]
    assert (finding["kind"], finding["stream"], finding["writer"]) == ("naive-aggregator", "orders", "kpl")
    assert finding["lost"]["seen"] == finding["lost"]["high"] == 10
    metrics = {name: value for line in written if "_aws" in line for name, value in line.items()}
    assert metrics["LostUserRecordsSeen"] == 10
    assert metrics["UserRecordsRead"] == 30


def test_a_batch_delivered_again_is_counted_once_and_no_duplicate():
    """Lambda gives a batch again after a failure. The same record twice in one event is a duplicate."""
    looking, written = consumer(every=0.0)
    for _ in range(2):
        asyncio.run(aio.process_user_records(event([NAIVE]), _nothing, watch=looking))
    assert [line["kind"] for line in written if "kind" in line] == ["naive-aggregator"]
    assert sum(line.get("UserRecordsRead", 0) for line in written) == 10
    looking, written = consumer(every=0.0)
    looking.see({"Records": event([NAIVE])["Records"] * 2})
    assert [line["kind"] for line in written if "kind" in line] == ["naive-aggregator", "duplicate"]


async def _nothing(record: kpl.DeaggregatedRecord) -> None:
    pass


def test_late_records_are_told():
    looking, written = consumer()
    looking._clock = lambda: NOW + 600
    process_user_records(event([SOUND]), lambda record: None, watch=looking)
    assert [line["kind"] for line in written if "kind" in line] == ["lag"]


@pytest.mark.requirement("WCH-28")
@pytest.mark.parametrize(
    "broken", [{}, {"Records": None}, {"Records": [{"kinesis": {"data": "?"}}]}, {"Records": [1]}, 7]
)
def test_nothing_it_is_shown_makes_it_raise(broken):
    looking, _ = consumer()
    looking.see(broken)
    ConsumerWatch(Maps(None), write=lambda line: 1 / 0).see(event([NAIVE]))


@pytest.mark.requirement("WCH-28")
def test_the_answer_is_the_same_with_and_without():
    def fails(record: kpl.DeaggregatedRecord) -> None:
        raise ValueError

    looking, _ = consumer()
    for kinds in ([SOUND], [NAIVE, SOUND]):
        without = process_user_records(event(kinds), fails)
        assert process_user_records(event(kinds), fails, watch=looking) == without


class Context:
    def get_remaining_time_in_millis(self) -> int:
        return 25_000


@pytest.mark.server
@pytest.mark.timeout(120)
def test_a_scheduled_run_looks_at_every_shard_once(kinesis_local, stream, monkeypatch, capsys):
    from kpl_codec.aws.client import kinesis_client

    naive(kinesis_local.client(), stream, 40)
    settings = kinesis_local.client_settings
    client = kinesis_client(
        region=settings["region_name"],
        endpoint_url=settings["endpoint_url"],
        access_key_id="local",
        secret_access_key="local",
    )
    monkeypatch.setattr(consumer_watch, "_client", lambda: client)
    monkeypatch.setenv("KPL_STREAM", stream)
    monkeypatch.setenv("KPL_SHARE", "0.5")
    monkeypatch.setenv("KPL_PERIOD", "1")
    done = consumer_watch.lambda_handler({"time": "now"}, Context())
    assert done["polls"] >= done["openShards"] == 2
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    metrics = {name: value for line in lines if "_aws" in line for name, value in line.items()}
    assert metrics["Polls"] == done["polls"]
    assert metrics["OpenShards"] == 2
    assert metrics["LostUserRecordsSeen"] == done["lostUserRecords"]["seen"]


@pytest.mark.parametrize("name", ["KPL_SHARE", "KPL_PERIOD"])
@pytest.mark.parametrize("text", ["5%", "nan", "0", "inf", ""])
def test_a_setting_that_makes_no_sense_is_named(monkeypatch, name, text):
    monkeypatch.setenv("KPL_STREAM", "orders")
    monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=f"{name} is '{text}': it must be a number above 0"):
        consumer_watch.lambda_handler({}, Context())


def template() -> tuple[str, dict[str, Any]]:
    """The text of the template, and what is in it; a tag such as !Ref is dropped."""
    from importlib.resources import files

    class Loader(yaml.SafeLoader):
        pass

    def any_tag(loader: Any, suffix: str, node: yaml.Node) -> Any:
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, deep=True)
        return node.value

    Loader.add_multi_constructor("!", any_tag)
    text = files("kpl_codec.aws_lambda").joinpath("templates", "watch.yaml").read_text()
    return text, yaml.load(text, Loader)


def test_the_template_lints_clean_and_asks_for_no_more_than_is_called():
    text, parsed = template()
    assert complaints(text) == []
    resources = parsed["Resources"]
    (policy,) = resources["Role"]["Properties"]["Policies"]
    kinesis, logs, _, (condition, state, _) = policy["PolicyDocument"]["Statement"]
    called = ("ListShards", "DescribeStreamSummary", "GetShardIterator", "GetRecords")
    assert kinesis["Action"] == [f"kinesis:{name}" for name in called]
    assert (kinesis["Resource"], logs["Resource"]) == ("StreamArn", "Log.Arn")
    assert (condition, state["Resource"]) == ("KeepsState", "State.Arn")
    assert state["Action"] == ["dynamodb:GetItem", "dynamodb:PutItem"]
    assert "*" not in json.dumps(policy)
    assert resources["Function"]["Properties"]["Role"] == "Role.Arn"


# -- from run to run -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table() -> Any:
    with idempotency_table("watch") as client:
        yield client


@pytest.fixture
def function(table: Any, kinesis_local: Any, stream: str, tmp_path: Any) -> Iterator[Any]:
    """The template's own code under the real runtime client, as a function of ``settings``."""
    code = template()[1]["Resources"]["Function"]["Properties"]["Code"]["ZipFile"]
    (tmp_path / "index.py").write_text(code)
    running: list[Function] = []

    def start(**settings: str) -> Function:
        environment = {
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_ENDPOINT_URL_DYNAMODB": table.meta.endpoint_url,
            "AWS_DEFAULT_REGION": kinesis_local.client_settings["region_name"],
            "AWS_ENDPOINT_URL_KINESIS": kinesis_local.client_settings["endpoint_url"],
            "KPL_STREAM": stream,
            "PYTHONPATH": str(Path(kpl.__file__).parents[1]),
            **settings,
        }
        running.append(Function("index.lambda_handler", str(tmp_path), environment))
        return running[-1]

    yield start
    for one in running:
        one.stop()


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(180)
@pytest.mark.requirement("WCH-29", "WCH-30")
def test_runs_under_the_runtime_client_tell_a_finding_once_with_a_state(function, kinesis_local, stream):
    """A sampling_rate of 1: each record is read by exactly one run, each run in a process of its own."""
    client = kinesis_local.client()

    def run(**settings: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        one = function(KPL_SHARE="1", KPL_PERIOD="60", **settings)
        answer = one.invoke({"time": "now"}, timeout=60)
        lines = [json.loads(line) for line in one.stop().splitlines() if line.startswith("{")]
        assert answer.kind == "response", answer
        return answer.body, [line for line in lines if "kind" in line]

    naive(client, stream, 3)
    done, findings = run(KPL_STATE_TABLE="watch")
    assert done["state"] == "new"
    assert {f["kind"] for f in findings} == {"naive-aggregator"}
    seen = done["lostUserRecords"]["seen"]
    assert seen
    naive(client, stream, 1)
    done, findings = run(KPL_STATE_TABLE="watch")
    assert done["state"] == "resumed"
    assert [f for f in findings if f["state"] == "open"] == []
    assert seen < done["lostUserRecords"]["seen"] < 2 * seen
    # Without one it is told again, and of this run alone.
    done, findings = run()
    assert done["state"] == "off"
    assert {f["state"] for f in findings} >= {"open"}
    # A table that is not there: the run goes on, and says so.
    done, findings = run(KPL_STATE_TABLE="nowhere")
    assert done["state"] == "not saved: ResourceNotFoundException"
    assert findings
