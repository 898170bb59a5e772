"""Metrics, findings and alarms as their receivers read them: Prometheus, OpenTelemetry, CloudWatch."""

from __future__ import annotations

import json
import re

import hcl2
import pytest
import yaml
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from kpl_codec.cli.main import main
from kpl_codec.shards.stream_name import StreamNameError
from kpl_codec.watch import LastHour, Watch, WatchFinding
from kpl_codec.watch.exporters import (
    EmfLines,
    Exporter,
    OpenTelemetryExporter,
    TerminalExporter,
    _shard_table,
    alarms,
)
from kpl_codec.watch.status_page import PageServer
from kpl_codec.watch.watch_metrics import METRICS, NAMESPACE, Emf, cloudwatch_name, watch_metrics
from tests.widths import COLUMNS, too_wide

from .model import START, ModelStream, open_map, run
from .test_watch import Traffic, watched


@pytest.fixture(scope="module")
def watch_and_findings() -> tuple[Watch, list[WatchFinding]]:
    """Ten minutes of a stream with a naive aggregator."""
    stream = ModelStream(open_map(2))
    Traffic(stream, rate=10, naive=0.1).fill(START - 60, START + 600)
    watch = watched(stream)
    return watch, run(watch, stream, START, START + 600)


def test_every_exporter_is_tested():
    """A new one needs a test here of what it writes; then it stands in this list."""
    tested = {EmfLines, OpenTelemetryExporter, TerminalExporter, PageServer}  # the page: test_status_page.py
    ours = {one for one in Exporter.__subclasses__() if one.__module__.startswith("kpl_codec")}
    assert ours == tested


@pytest.mark.requirement("WCH-24")
def test_every_metric_is_reported_also_of_a_clean_stream(watch_and_findings):
    watch, _ = watch_and_findings
    metrics = watch_metrics(watch, START + 600)
    lost = watch.last_hour.lost()
    values = {m.name: m.value for m in metrics if not m.attributes}
    names = ("lost_user_records_low", "lost_user_records")
    assert [values[name] for name in names] == [lost.low, lost.estimate]
    assert {m.name for m in metrics} <= set(METRICS)
    clean = ModelStream(open_map(2))
    watch = watched(clean)
    run(watch, clean, START, START + 60)
    always = {m.name for m in watch_metrics(watch, START + 60)}
    assert always == set(METRICS) - {"shard_lost_user_records", "failed_calls", "kinesis_records_by_writer"}


def prometheus_name(name: str) -> str:
    """As OpenTelemetry's exporter writes it; the alarm templates rely on it."""
    return f"kpl_watch_{name}" + ("_total" if METRICS[name].kind == "counter" else "")


@pytest.mark.requirement("WCH-24")
def test_prometheus_reads_every_measure_of_opentelemetry(watch_and_findings):
    watch, _ = watch_and_findings
    metrics = watch_metrics(watch, START + 600)
    reader = PrometheusMetricReader()
    provider = MeterProvider([reader])
    exporter = OpenTelemetryExporter("orders", provider.get_meter("test"))
    exporter.on_metrics(metrics, START + 600)
    text = generate_latest().decode()
    provider.shutdown()
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    values = {
        (s.name, *sorted((k, v) for k, v in s.labels.items() if not k.startswith("otel_"))): s.value
        for s in samples
    }
    for measure in metrics:
        labels = {"stream": "orders", **measure.attributes}
        assert values[(prometheus_name(measure.name), *sorted(labels.items()))] == measure.value


@pytest.mark.requirement("WCH-24")
def test_emf_lines_hold_what_their_directives_name(watch_and_findings, capsys):
    watch, _ = watch_and_findings
    exporter = EmfLines("orders")
    metrics = watch_metrics(watch, START + 600)
    exporter.on_metrics(metrics, START + 600)
    exporter.on_metrics(metrics, START + 630)  # within the minute: nothing
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    count = 0
    for line in lines:
        assert isinstance(line["_aws"]["Timestamp"], int)
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        # CloudWatch's limits for a directive.
        assert len(directive["Dimensions"][0]) <= 30
        assert len(directive["Metrics"]) <= 100
        assert directive["Namespace"] == NAMESPACE
        assert all(isinstance(line[name], str) for name in directive["Dimensions"][0])
        assert all(isinstance(line[metric["Name"]], (int, float)) for metric in directive["Metrics"])
        count += len(directive["Metrics"])
    assert count == len(metrics)


def test_counters_are_added_up_once():
    emf, watch = Emf("orders"), Watch(LastHour("orders"))
    total = 0
    for calls in (3, 3, 10):
        watch.call_counts.polls = calls
        total += sum(line.get("Polls", 0) for line in emf.lines(watch_metrics(watch, START), START))
    assert total == 10


@pytest.mark.requirement("WCH-24")
def test_metrics_go_on_when_the_clock_is_set_back(watch_and_findings, capsys):
    watch, _ = watch_and_findings
    lines = EmfLines("orders")
    for now in (START + 600, START + 601, START - 3000):
        lines.on_metrics(watch_metrics(watch, START + 600), now)
    times = {json.loads(line)["_aws"]["Timestamp"] for line in capsys.readouterr().out.splitlines()}
    assert times == {round((START + 600) * 1000), round((START - 3000) * 1000)}


# -- alarms ---------------------------------------------------------------------------------------


CLOUDWATCH_NAMES = {cloudwatch_name(name) for name in METRICS}


def test_cloudformation_alarms_lint_clean_and_name_real_metrics():
    from cfnlint.api import lint_all  # it takes a second to import

    text = alarms("cloudformation", "arn:aws:kinesis:eu-west-1:123456789012:stream/orders")
    assert [str(match) for match in lint_all(text) if not match.rule.id.startswith("I")] == []  # I: notes
    resources = yaml.load(text.replace("!", "x"), yaml.SafeLoader)["Resources"].values()
    assert len(resources) == 3
    assert {resource["Properties"]["MetricName"] for resource in resources} <= CLOUDWATCH_NAMES
    assert {resource["Properties"]["Namespace"] for resource in resources} == {NAMESPACE}


@pytest.mark.parametrize("what", ["cloudformation", "terraform", "prometheus-rules"])
def test_a_template_names_the_command_that_printed_it(what, capsys):
    text = alarms(what, "orders")
    (line,) = (line for line in text.splitlines() if "Printed by: kpl-codec " in line)
    assert main(line.partition("kpl-codec ")[2].split()) == 0
    assert capsys.readouterr().out.strip() == text.strip()


def test_terraform_alarms_parse_and_name_real_metrics():
    resources = hcl2.loads(alarms("terraform", "orders"))["resource"]
    bodies = [body for resource in resources for blocks in resource.values() for body in blocks.values()]
    assert len(bodies) == 3
    assert {body["metric_name"].strip('"') for body in bodies} <= CLOUDWATCH_NAMES


def test_prometheus_rules_have_the_rules_shape_and_name_real_metrics():
    rules = yaml.safe_load(alarms("prometheus-rules", "orders"))
    names = {prometheus_name(name) for name in METRICS}
    for rule in rules["groups"][0]["rules"]:
        assert {"alert", "expr"} <= set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", rule["alert"])
        assert re.fullmatch("[0-9]+[smh]", rule.get("for", "1m"))
        names_used = set(re.findall(r"kpl_watch_\w+", rule["expr"]))
        assert names_used
        assert names_used <= names
        assert rule["expr"].count("(") == rule["expr"].count(")")


@pytest.mark.requirement("WCH-26")
@pytest.mark.parametrize("name", ['a"b', "a b", "", "x" * 129, "a\nb", "${x}"])
def test_no_other_text_gets_into_a_template(name):
    with pytest.raises(StreamNameError):
        alarms("terraform", name)


def test_a_terminal_folds_findings_and_a_log_has_one_a_line(watch_and_findings, monkeypatch, capsys):
    """A service's log takes each line for an entry."""
    watch, findings = watch_and_findings
    assert findings

    def printed() -> str:
        exporter = TerminalExporter(watch, lambda: None, json=False)
        for finding in findings:
            exporter.on_finding(finding)
        return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().err)

    monkeypatch.delenv("FORCE_COLOR", raising=False)
    in_pipe = printed()
    assert len(in_pipe.splitlines()) == len(findings)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    on_terminal = printed()
    assert not too_wide(on_terminal)
    times = r"\d\d:\d\d:\d\d"
    assert re.sub(times, "", on_terminal).split() == re.sub(times, "", in_pipe).split()


def test_a_shard_without_a_poll_has_no_time_of_one(capsys):
    stream = ModelStream(open_map(2))
    watch = watched(stream, sampling_rate=1.0)
    Console().print(_shard_table(watch, START + 50))
    table = capsys.readouterr().out
    assert "not polled yet" in table
    assert " s ago" not in table
    run(watch, stream, START + 50, START + 52)
    Console().print(_shard_table(watch, START + 53))
    table = capsys.readouterr().out
    assert "no loss was seen" in table
    assert table.count(" s ago") == 2
