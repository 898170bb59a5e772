"""Posts findings to a webhook, as JSON for Slack (``text`` and ``blocks``) and others."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from contextlib import suppress
from http.client import HTTPException
from queue import Full, Queue
from typing import Any, Final

from ..backoff import Backoff
from ..watch import WatchFinding
from .outlet import Outlet

_MARKS: Final = {
    "critical": ":red_circle:",
    "error": ":large_orange_circle:",
    "warning": ":warning:",
    "info": ":memo:",
}
#: The most findings that wait; attempts for each; seconds for one attempt.
_WAITING, _TRIES, _TIMEOUT = 100, 4, 10.0
_WAIT = Backoff(0.5, 10.0)


def message(finding: WatchFinding) -> dict[str, Any]:
    """The JSON for ``finding``. Its fields are under ``finding``, which Slack ignores."""
    mark = _MARKS[finding.severity] if finding.state != "over" else ":white_check_mark:"
    state = {"open": "", "grown": "more: ", "over": "over: "}[finding.state]
    text = f"{mark} *{finding.stream}* {state}{_plain(finding.text)}"
    return {
        "text": text,
        "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text[:2900]}}],
        "finding": finding.to_json(),
    }


def _plain(text: str) -> str:
    """Slack's three characters escaped, so that no text is taken for a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class Webhook(Outlet):
    """Posts findings in its own thread, so a slow receiver blocks nothing. A context manager. ``failed``
    counts findings that could not be posted after some attempts, or for which there was no room.
    """

    failures = "findings could not be posted to the webhook"

    def __init__(self, url: str) -> None:
        if not url.startswith(("https://", "http://")):
            raise ValueError("a webhook's URL begins with https:// or http://")
        self._url = url
        self._queue: Queue[dict[str, Any] | None] = Queue(_WAITING)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kpl-codec webhook", daemon=True)

    def __enter__(self) -> Webhook:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.set()  # each that waits is tried once more
        end = time.monotonic() + _TIMEOUT
        with suppress(Full):
            self._queue.put(None, timeout=_TIMEOUT)
        self._thread.join(max(0.0, end - time.monotonic()))
        if self._thread.is_alive():
            self.failed += self._queue.qsize()

    def finding(self, finding: WatchFinding) -> None:
        """Post ``finding`` soon."""
        # WCH-25: "A receiver that is slow or gone MUST NOT hold up the watch; what could not be posted MUST
        # be counted."
        try:
            self._queue.put_nowait(message(finding))
        except Full:
            self.failed += 1

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if not self._post(json.dumps(item).encode()):
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
