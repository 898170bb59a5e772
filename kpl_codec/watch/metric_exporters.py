"""What other systems are told: CloudWatch and OpenTelemetry measures, a webhook findings; and alarms."""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
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
from .exporter import Exporter
from .measures import METRICS, Emf, Every, Measure

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
#: The most findings that wait; attempts for each; seconds for one attempt.
_WAITING, _TRIES, _TIMEOUT = 100, 4, 10.0
_WAIT = Backoff(0.5, 10.0)


def alarms(form: str, stream: str) -> str:
    """Alarms on the metrics of ``stream`` (a name or an ARN), as text of a form. Raises StreamNameError."""
    # WCH-26: "A name that no stream can have MUST be refused before it stands in a template."
    name = stream_of(stream).name
    text = files(__package__).joinpath("templates", FORMS[form]).read_text(encoding="utf-8")
    return text.replace("@STREAM@", name)


class EmfLines(Exporter):
    """CloudWatch's embedded metric format on standard output, at most once a minute: an agent takes it."""

    def __init__(self, stream: str) -> None:
        self._emf = Emf(stream)
        self._every = Every(60.0)

    def measures(self, measured: Sequence[Measure], now: float) -> None:
        if self._every.due(now):
            for line in self._emf.lines(measured, now):
                sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


class OpenTelemetryExporter(Exporter):
    """The OpenTelemetry API (the ``otel`` extra): its SDK asks for the measures. ``meter``: by default that
    of the global provider. Its Prometheus exporter makes kpl_watch_lost_user_records of them, and
    kpl_watch_looks_total."""

    def __init__(self, stream: str, meter: Any = None) -> None:
        with needing_extras("OpenTelemetryExporter"):
            from opentelemetry import metrics

        self._stream = stream
        self._measured: Sequence[Measure] = ()
        meter = meter or metrics.get_meter("kpl_codec.watch")
        for name, metric in METRICS.items():
            create = getattr(meter, f"create_observable_{metric.kind}")
            # Without a unit: Prometheus's names would end in it, a second time or wrongly.
            create(f"kpl_watch.{name}", [partial(self._read, name)], description=metric.meaning)

    def _read(self, name: str, options: object) -> Iterable[Any]:
        from opentelemetry.metrics import Observation

        for measure in self._measured:
            if measure.name == name:
                yield Observation(measure.value, {"stream": self._stream, **measure.attributes})

    def measures(self, measured: Sequence[Measure], now: float) -> None:
        self._measured = measured


def message(finding: WatchFinding) -> dict[str, Any]:
    """The JSON for ``finding``. Its fields are under ``finding``, which Slack ignores."""
    mark = _MARKS[finding.severity] if finding.state != "over" else ":white_check_mark:"
    state = {"open": "", "grown": "more: ", "over": "over: "}[finding.state]
    # Slack's three characters are escaped, so that no text is taken for a link or a mention.
    text = f"{mark} *{finding.stream}* {state}{escape(finding.text, quote=False)}"
    return {
        "text": text,
        "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text[:2900]}}],
        "finding": finding.to_json(),
    }


class Webhook(Exporter):
    """Posts findings in a thread of its own, so a slow receiver blocks nothing; as JSON for Slack
    (``text`` and ``blocks``) and others. ``failed``: how many could not be posted after some attempts, or
    found no room."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._posts: deque[Future[bool]] = deque()
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(1, "kpl-codec webhook")
        self.failed = 0

    def __exit__(self, *exception: object) -> None:
        self._closing.set()  # each that waits is tried once more
        wait(self._posts, _TIMEOUT)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.failed += sum(not post.done() or post.cancelled() or not post.result() for post in self._posts)
        if self.failed:
            note(f"{self.failed:,} findings could not be posted to the webhook")

    def finding(self, finding: WatchFinding) -> None:
        # WCH-25: "A receiver that is slow or gone MUST NOT hold up the watch; what could not be posted MUST
        # be counted."
        while self._posts and self._posts[0].done():
            self.failed += not self._posts.popleft().result()
        if len(self._posts) < _WAITING:
            self._posts.append(self._pool.submit(self._post, json.dumps(message(finding)).encode()))
        else:
            self.failed += 1

    def _post(self, body: bytes) -> bool:
        headers = {"Content-Type": "application/json", "User-Agent": "kpl-codec"}
        for failures in range(_TRIES):
            try:
                request = urllib.request.Request(self._url, body, headers, method="POST")
                with urllib.request.urlopen(request, timeout=_TIMEOUT):
                    return True
            # Refused, timed out, an HTTP error; an answer that is not HTTP; a URL that cannot be opened.
            except (OSError, HTTPException, ValueError):
                if self._closing.wait(_WAIT.seconds(failures)):
                    return False
        return False
