"""A real browser for tests: headless Chromium, spoken to over its own pipe, with nothing but the stdlib.

    with Browser() as browser, browser.page(path.as_uri(), width=360) as page:
        page.evaluate("document.title"); page.requests; page.complaints

Chromium is taken from ``CHROMIUM``, from the machine, or, as root on a Debian machine that has none,
installed with apt-get.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
_MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--mute-audio",
    "--remote-debugging-pipe",
)


def find_chromium() -> str:
    """The path of a Chromium, installed now if need be. Skips the test only where nothing can install
    one (not root, no apt-get) and nobody insists (``CI``)."""
    named = os.environ.get("CHROMIUM")
    if named:
        return named
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found or Path(_MAC).exists():
        return found or _MAC
    apt = shutil.which("apt-get")
    if apt is not None and os.geteuid() == 0:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = [apt, "install", "-y", "-q", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
        for command in (install, [apt, "update", "-q"], install):  # lists of packages may be old, or none
            run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
            found = shutil.which("chromium")
            if found:
                return found
        pytest.fail(f"apt-get could not install chromium: {run.stderr[-500:]}")
    reason = "no Chromium: install it, or set CHROMIUM to its path"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Browser:
    """One Chromium process with an empty profile; gone with the ``with`` block."""

    def __init__(self) -> None:
        self._executable = find_chromium()
        self._next = 0
        self._held = b""
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4.
        command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        flags = [*_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", command, self._executable, *flags],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.send("Browser.close", timeout=5)
        except (OSError, TimeoutError):
            self._process.kill()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()

    def send(
        self, method: str, session: str | None = None, timeout: float = 30, **params: Any
    ) -> dict[str, Any]:
        """One command of the DevTools protocol, and its answer. Raises RuntimeError for a refusal."""
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            answer = self._read(deadline)
            if answer.get("id") != self._next:
                self._events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                return answer["result"]  # type: ignore[no-any-return]

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._held:
            if not select.select([self._from], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            block = os.read(self._from, 1 << 20)
            if not block:
                raise OSError("Chromium has ended")
            self._held += block
        line, _, self._held = self._held.partition(b"\0")
        return json.loads(line)  # type: ignore[no-any-return]

    def events(self, session: str) -> list[dict[str, Any]]:
        """What has happened on a page so far."""
        return [event for event in self._events if event.get("sessionId") == session]

    def wait_for(self, session: str, method: str, timeout: float = 30) -> None:
        """Until that event has come. Raises TimeoutError."""
        deadline = time.monotonic() + timeout
        while not any(event.get("method") == method for event in self.events(session)):
            self._events.append(self._read(deadline))

    @contextmanager
    def page(
        self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False, script: bool = True
    ) -> Iterator[Page]:
        """A page, loaded. ``script``: whether JavaScript runs."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            page.send(f"{domain}.enable")
        phone = width < 600
        page.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.send("Emulation.setEmulatedMedia", media="screen", features=[scheme])
        if not script:
            page.send("Emulation.setScriptExecutionDisabled", value=True)
        page.send("Page.navigate", url=url)
        self.wait_for(session, "Page.loadEventFired")
        try:
            yield page
        finally:
            self.send("Target.closeTarget", targetId=target)


class Page:
    """One loaded page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.send(method, self._session, **params)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression. Raises AssertionError if it throws."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """One key, down and up."""
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                text=text if kind == "keyDown" else "",
            )

    def type(self, text: str) -> None:
        """Text into whatever has the focus."""
        self.send("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """A real click in the middle of the first element that matches."""
        x, y = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def media(self, media: str) -> None:
        """Show it as on ``media``; "" ends pretending."""
        self.send("Emulation.setEmulatedMedia", media=media, features=[])

    @property
    def requests(self) -> list[str]:
        """Every address that was asked for, the page's own included; not ``data:``."""
        self.evaluate("1")
        return [
            event["params"]["request"]["url"]
            for event in self._browser.events(self._session)
            if event["method"] == "Network.requestWillBeSent"
            and not event["params"]["request"]["url"].startswith("data:")
        ]

    @property
    def complaints(self) -> list[str]:
        """Console messages, uncaught errors, violations of the policy: anything a console would show."""
        self.evaluate("1")
        wanted = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [
            json.dumps(event["params"])
            for event in self._browser.events(self._session)
            if event["method"] in wanted
        ]
