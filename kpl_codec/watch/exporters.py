"""Where a watch reports: metrics to CloudWatch and OpenTelemetry, findings to a webhook. And alarms on the
metrics, as templates. `terminal_exporter` and `status_page` have the other exporters.
Specification: spec/10-watch.md, WCH-24 to WCH-27."""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import partial
from html import escape
from http.client import HTTPException
from importlib.resources import files
from typing import Any, Final

from ..aws_errors import Backoff
from ..lazy import needing_extras
from ..rendering.terminal import note
from ..shards.stream_name import stream_of
from . import WatchFinding
from .watch_metrics import METRICS, Emf, Every, MetricValue

#: The file of each form of alarms.
FORMS: Final = {
    "cloudformation": "alarms.yaml",
    "terraform": "alarms.tf",
    "prometheus-rules": "rules.yaml",
}
_MARKS: Final = {
    "critical": ":red_circle:",
    "error": ":large_orange_circle:",
    "warning": ":warning:",
    "info": ":memo:",
}
#: The most findings that wait to be posted; attempts for each; seconds for one attempt.
_MOST_WAITING, _ATTEMPTS, _TIMEOUT = 100, 4, 10.0
_PAUSE = Backoff(0.5, 10.0)


class Exporter(AbstractContextManager["Exporter"]):
    """Gets every finding, and all metrics every few seconds. Each exporter takes what it can show."""

    def __exit__(self, *exception: object) -> None:
        """The watch has ended."""

    def on_finding(self, finding: WatchFinding) -> None:
        """A finding that is new, has grown, or is resolved."""

    def on_metrics(self, metrics: Sequence[MetricValue], now: float) -> None:
        """All metrics, at ``now``."""


def alarms(form: str, stream: str) -> str:
    """Alarms on the metrics of ``stream`` (a name or an ARN), in one of `FORMS`. Raises StreamNameError."""
    # WCH-26: "A name that no stream can have MUST be refused before it stands in a template."
    name = stream_of(stream).name
    text = files(__package__).joinpath("templates", FORMS[form]).read_text(encoding="utf-8")
    return text.replace("@STREAM@", name)


class EmfLines(Exporter):
    """Writes CloudWatch's embedded metric format to standard output once a minute, for CloudWatch's agent."""

    def __init__(self, stream: str) -> None:
        self._emf = Emf(stream)
        self._every = Every(60.0)

    def on_metrics(self, metrics: Sequence[MetricValue], now: float) -> None:
        if self._every.due(now):
            for line in self._emf.lines(metrics, now):
                sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


class OpenTelemetryExporter(Exporter):
    """The OpenTelemetry API (the ``otel`` extra): its SDK asks for the measures. ``meter``: by default that
    of the global provider. Its Prometheus exporter makes kpl_watch_lost_user_records of them, and
    kpl_watch_polls_total."""

    def __init__(self, stream: str, meter: Any = None) -> None:
        with needing_extras("OpenTelemetryExporter"):
            from opentelemetry import metrics

        self._stream = stream
        self._metrics: Sequence[MetricValue] = ()
        meter = meter or metrics.get_meter("kpl_codec.watch")
        for name, metric in METRICS.items():
            create = getattr(meter, f"create_observable_{metric.kind}")
            # Without a unit: Prometheus's names would end in it, a second time or wrongly.
            create(f"kpl_watch.{name}", [partial(self._read, name)], description=metric.meaning)

    def _read(self, name: str, options: object) -> Iterable[Any]:
        from opentelemetry.metrics import Observation

        for metric in self._metrics:
            if metric.name == name:
                yield Observation(metric.value, {"stream": self._stream, **metric.attributes})

    def on_metrics(self, metrics: Sequence[MetricValue], now: float) -> None:
        self._metrics = metrics


def message(finding: WatchFinding) -> dict[str, Any]:
    """The JSON for ``finding``. Its fields are under ``finding``, which Slack ignores."""
    mark = _MARKS[finding.severity] if finding.state != "resolved" else ":white_check_mark:"
    state = {"open": "", "grown": "more: ", "resolved": "resolved: "}[finding.state]
    # Slack's three characters are escaped, so that no text is taken for a link or a mention.
    text = f"{mark} *{finding.stream}* {state}{escape(finding.text, quote=False)}"
    return {
        "text": text,
        "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text[:2900]}}],
        "finding": finding.to_json(),
    }


class Webhook(Exporter):
    """Posts findings as JSON for Slack (``text`` and ``blocks``) and others, in a thread of its own, so that
    a slow receiver blocks nothing. ``failed``: findings that were not posted, because posting failed or too
    many were waiting."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._posts: deque[Future[bool]] = deque()
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(1, "kpl-codec webhook")
        self.failed = 0

    def __exit__(self, *exception: object) -> None:
        self._closing.set()  # each finding that waits is posted or given up now
        wait(self._posts, _TIMEOUT)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.failed += sum(not post.done() or post.cancelled() or not post.result() for post in self._posts)
        if self.failed:
            note(f"{self.failed:,} findings could not be posted to the webhook")

    def on_finding(self, finding: WatchFinding) -> None:
        # WCH-25: "A receiver that is slow or gone MUST NOT hold up the watch; what could not be posted MUST
        # be counted."
        while self._posts and self._posts[0].done():
            self.failed += not self._posts.popleft().result()
        if len(self._posts) < _MOST_WAITING:
            self._posts.append(self._pool.submit(self._post, json.dumps(message(finding)).encode()))
        else:
            self.failed += 1

    def _post(self, body: bytes) -> bool:
        headers = {"Content-Type": "application/json", "User-Agent": "kpl-codec"}
        for failures in range(_ATTEMPTS):
            try:
                request = urllib.request.Request(self._url, body, headers, method="POST")
                with urllib.request.urlopen(request, timeout=_TIMEOUT):
                    return True
            # Refused, timed out, an HTTP error; a response that is not HTTP; a URL that cannot be opened.
            except (OSError, HTTPException, ValueError):
                if self._closing.wait(_PAUSE.seconds(failures)):
                    return False
        return False
