"""A producer's measurements, as those who receive them read them: Prometheus and CloudWatch."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections import Counter
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import validate
from prometheus_client.parser import text_string_to_metric_families

from kpl_codec.aws import Producer
from kpl_codec.outlets.emf import EmfLines
from kpl_codec.outlets.producer_metrics import PRODUCER, ProducerMetrics
from kpl_codec.producer import METRICS
from kpl_codec.sentinel.measures import Deltas, Measure, cloudwatch_name

from ..aws.model_client import ModelClient
from .test_telling import EMF

ATTRIBUTES = {"KinesisRecordsPut": "ShardId", "KinesisRecordsDataPut": "ShardId"}
ATTRIBUTES |= {"ErrorsByCode": "ErrorCode", "ShardMapErrors": "ErrorCode"}
observations = st.sampled_from(sorted(METRICS)).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.integers(0, 1000),
        st.sampled_from([{ATTRIBUTES[name]: "a"}, {ATTRIBUTES[name]: "b"}] if name in ATTRIBUTES else [{}]),
    )
)


class Kept:
    """An outlet that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[list[Measure]] = []

    def measures(self, measured: list[Measure], now: float) -> None:
        self.told.append(measured)


def put_some(observe: ProducerMetrics, count: int = 50) -> None:
    """Put user records with a real producer on the model stream; one of its answers is an error."""
    errors = [{"ErrorCode": "InternalFailure", "ErrorMessage": "try again"}]

    def spoil(operation: str, answer: dict[str, Any]) -> Any:
        if operation == "PutRecords" and errors:
            return {"Records": [errors.pop()] * len(answer["Records"])}
        return answer

    with Producer("orders", client=ModelClient(spoil=spoil), observe=observe) as producer:
        assert producer.wait_ready()
        futures = [producer.put(f"key-{number}", b"secret %d" % number) for number in range(count)]
        assert producer.flush()
        assert all(future.result(1) for future in futures)


@pytest.mark.requirement("PRD-33")
@given(st.lists(st.lists(observations, max_size=8), max_size=5))
def test_what_is_told_bit_by_bit_adds_up_to_what_was_observed(rounds: list[list[Any]]) -> None:
    metrics = ProducerMetrics(Kept())
    deltas = Deltas(PRODUCER)
    told: Counter[tuple[str, str]] = Counter()
    expected: Counter[tuple[str, str]] = Counter()
    for observed in rounds:
        for name, value, attributes in observed:
            metrics(name, value, attributes)
            apart = "".join(attributes.values())
            if METRICS[name][0] == "histogram":
                expected[name + "Sum", apart] += value
                expected[name + "Count", apart] += 1
            elif METRICS[name][0] == "counter":
                expected[name, apart] += value
            else:
                expected[name, apart] = value
        for measure in deltas.of(metrics.measured()):
            key = cloudwatch_name(measure.name), "".join(measure.attributes.values())
            if PRODUCER.metrics[measure.name].kind == "counter":
                told[key] += measure.value
            else:
                told[key] = measure.value
    assert +told == +expected


@pytest.mark.requirement("PRD-33")
def test_prometheus_reads_what_a_producer_did() -> None:
    with ProducerMetrics.to_prometheus("orders", 0, every=0.05) as observe:
        put_some(observe)
        url = f"http://127.0.0.1:{observe._outlet.port}/metrics"  # type: ignore[attr-defined]
        text, until = "", time.monotonic() + 20
        while 'user_records_put_total{stream="orders"} 50.0' not in text and time.monotonic() < until:
            time.sleep(0.05)
            with urllib.request.urlopen(url, timeout=10) as answer:
                text = answer.read().decode()
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    assert all(sample.labels["stream"] == "orders" for sample in samples)
    values = Counter[str]()
    for sample in samples:
        values[sample.name.removeprefix("kpl_producer_")] += sample.value  # type: ignore[assignment]
    assert values["user_records_received_total"] == values["user_records_put_total"] == 50
    assert values["buffering_time_count_total"] == 50
    assert values["user_records_pending"] == values["oldest_user_record_age"] == 0  # they are over
    assert values["buffering_time_sum_total"] > 0
    assert values["errors_by_code_total"] == values["all_errors_total"] > 0
    assert {s.labels["error_code"] for s in samples if "errors_by_code" in s.name} == {"InternalFailure"}
    assert "secret" not in text
    assert "key-" not in text


@pytest.mark.requirement("PRD-33")
def test_emf_lines_tell_all_of_it_by_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with ProducerMetrics.to_emf("orders", every=0.05) as observe:
        put_some(observe)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    put = 0.0
    for line in lines:
        validate(line, EMF)
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        assert directive["Namespace"] == "KplCodec/Producer"
        assert line["StreamName"] == "orders"
        put += line.get("UserRecordsPut", 0)
    assert put == 50


@pytest.mark.requirement("PRD-33")
def test_put_metric_data_is_as_the_service_takes_it() -> None:
    """botocore checks every argument against the service's own model; the stub answers."""
    access = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    client = boto3.client("cloudwatch", region_name="us-east-1", **access)
    with Stubber(client) as stub:
        expected = {"Namespace": "KplCodec/Producer", "MetricData": ANY}
        stub.add_response("put_metric_data", {}, expected)
        with ProducerMetrics.to_cloudwatch("orders", client=client) as observe:
            put_some(observe)
        stub.assert_no_pending_responses()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_counts_anew_whoever_held_the_lock() -> None:
    metrics = ProducerMetrics(EmfLines("orders", table=PRODUCER))
    metrics("UserRecordsPut", 5, {})
    read, write = os.pipe()
    with metrics._lock:
        child = os.fork()
        if not child:
            metrics("UserRecordsPut", 2, {})
            value = next(m.value for m in metrics.measured() if m.name == "user_records_put")
            os.write(write, str(int(value)).encode())
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(read, 10) == b"2"
