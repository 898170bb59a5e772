"""Posts findings to a webhook, as JSON for Slack (``text`` and ``blocks``) and others."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from html import escape
from http.client import HTTPException
from typing import Any, Final

from ..aws_errors import Backoff
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
    # Slack's three characters are escaped, so that no text is taken for a link or a mention.
    text = f"{mark} *{finding.stream}* {state}{escape(finding.text, quote=False)}"
    return {
        "text": text,
        "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text[:2900]}}],
        "finding": finding.to_json(),
    }


class Webhook(Outlet):
    """Posts findings in a thread of its own, so a slow receiver blocks nothing. ``failed`` counts findings
    that could not be posted after some attempts, or for which there was no room.
    """

    failures = "findings could not be posted to the webhook"

    def __init__(self, url: str) -> None:
        self._url = url
        self._posts: deque[Future[bool]] = deque()
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(1, "kpl-codec webhook")

    def __exit__(self, *exception: object) -> None:
        self._closing.set()  # each that waits is tried once more
        wait(self._posts, _TIMEOUT)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.failed += sum(not post.done() or post.cancelled() or not post.result() for post in self._posts)

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
