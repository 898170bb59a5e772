"""Metrics and findings as their receivers read them: JSON, Prometheus, OpenTelemetry."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from kpl_codec.watch import Watch, WatchFinding
from kpl_codec.watch.exporters import Exporter, OpenTelemetryExporter, TerminalExporter, _shard_table
from kpl_codec.watch.watch_metrics import METRICS, metrics_to_json, watch_metrics
from tests.widths import COLUMNS, too_wide

from .model import START, ModelStream, Traffic, open_map, run, watched


@pytest.fixture(scope="module")
def watch_and_findings() -> tuple[Watch, list[WatchFinding]]:
    """Ten minutes of a stream with a naive aggregator."""
    stream = ModelStream(open_map(2))
    Traffic(stream, rate=10, naive=0.1).fill(START - 60, START + 600)
    watch = watched(stream)
    return watch, run(watch, stream, START, START + 600)


def test_every_exporter_is_tested():
    """A new one needs a test here of what it writes; then it stands in this list."""
    tested = {OpenTelemetryExporter, TerminalExporter}
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
    """As OpenTelemetry's exporter writes it; the alarms of the guide rely on it."""
    return f"kpl_watch_{name}" + ("_total" if METRICS[name].kind == "counter" else "")


@pytest.mark.requirement("WCH-24")
def test_every_measure_is_in_json_and_prometheus_reads_it_of_opentelemetry(watch_and_findings):
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.sdk.metrics import MeterProvider
    from prometheus_client import generate_latest
    from prometheus_client.parser import text_string_to_metric_families

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
        found = metrics_to_json(metrics)[measure.name]
        for key in measure.attributes.values():
            found = found[key]
        assert found == measure.value


@pytest.mark.requirement("WCH-24", "WCH-51")
@pytest.mark.parametrize("naive", [0.0, 0.1])
def test_json_has_the_metrics_once_a_minute_also_of_a_clean_stream(naive, capsys):
    """A watch that ended, and one that cannot read, print no line or the same count of polls."""
    stream = ModelStream(open_map(2))
    Traffic(stream, rate=10, naive=naive).fill(START - 60, START + 300)
    watch = watched(stream)
    exporter = TerminalExporter(watch, lambda: None, json=True)
    polls = []
    for minute in range(5):
        for finding in run(watch, stream, START + 60 * minute, START + 60 * (minute + 1)):
            exporter.on_finding(finding)
        metrics = watch_metrics(watch, START + 60 * (minute + 1))
        for second in (60, 62, 119):
            exporter.on_metrics(metrics, START + 60 * minute + second)
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        (line,) = [line for line in lines if "metrics" in line] if minute else [None]
        if line is not None:
            assert line == {"stream": "orders", "metrics": json.loads(json.dumps(metrics_to_json(metrics)))}
            polls.append(line["metrics"]["polls"])
        assert naive or not [line for line in lines if "kind" in line]
    assert polls == sorted(set(polls))
    assert all(polls)


@pytest.mark.requirement("WCH-51")
def test_metrics_go_on_when_the_clock_is_set_back(watch_and_findings, capsys):
    watch, _ = watch_and_findings
    exporter = TerminalExporter(watch, lambda: None, json=True)
    for now in (START + 600, START + 601, START - 3000, START - 2990, START - 2930):
        exporter.on_metrics(watch_metrics(watch, START + 600), now)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_alarms_of_the_guide_name_real_metrics():
    guide = (Path(__file__).parents[2] / "spec" / "guides" / "watch.md").read_text()
    names = {prometheus_name(name) for name in METRICS}
    alarms = [line for line in guide.splitlines() if line.startswith("|") and "kpl_watch_" in line]
    assert len(alarms) == 3
    for line in alarms:
        used = set(re.findall(r"kpl_watch_\w+", line))
        assert used <= names, line
        assert line.count("(") == line.count(")"), line
    paths = re.findall(r"\$\.metrics\.(\w+)", guide)
    assert paths
    assert set(paths) <= set(METRICS)


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
