"""A real browser for tests: headless Chromium, driven by Selenium.

    with Browser() as browser, browser.page(path.as_uri(), width=360) as page:
        page.evaluate("document.title"); page.requests; page.complaints

Chromium and its driver are taken from ``CHROMIUM`` and ``CHROMEDRIVER``, else from the machine. Selenium is
told where both are, so it downloads nothing. Where they are missing the tests are skipped; only with
``CI=true`` they are installed with apt-get.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
_PACKAGES = ("chromium", "chromium-driver", "fonts-dejavu-core")
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
)


def find() -> tuple[str, str]:
    """The paths of Chromium and of its driver. Skips the test where they are missing, unless ``CI=true``."""
    if missing() and os.environ.get("CI") == "true":
        _install()
    chromium, driver = _chromium(), _driver()
    if chromium is None or driver is None:
        reason = f"no Chromium or no driver of it: apt-get install {' '.join(_PACKAGES)}, or set CHROMIUM "
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason + "and CHROMEDRIVER to their paths")
    return chromium, driver


def _chromium() -> str | None:
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _CHROMIUM)), None)


def _driver() -> str | None:
    return os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")


def missing() -> bool:
    return _chromium() is None or _driver() is None


def _install() -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *_PACKAGES]
    for command in (install, ["apt-get", "update", "-q"], install):  # lists of packages may be old, or none
        if missing():
            subprocess.run(command, env=environment, capture_output=True, timeout=280, check=False)


class Browser:
    """One Chromium process with an empty profile; gone with the ``with`` block."""

    def __enter__(self) -> Browser:
        chromium, driver = find()
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        options = Options()
        options.binary_location = chromium
        for flag in (*_FLAGS, f"--user-data-dir={self._profile.name}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        self.driver = webdriver.Chrome(options, Service(executable_path=driver))
        self.driver.set_script_timeout(60)
        self._blank = self.driver.current_window_handle
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.driver.quit()
        self._profile.cleanup()

    @contextmanager
    def page(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Page]:
        """A page, loaded."""
        self.driver.switch_to.new_window("tab")
        page = Page(self.driver)
        page.forget()
        page.size(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.send("Emulation.setEmulatedMedia", media="screen", features=[scheme])
        page.load(url)
        try:
            yield page
        finally:
            self.driver.close()
            self.driver.switch_to.window(self._blank)


class Page:
    """One loaded page."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver
        self._requests: list[str] = []
        self._complaints: list[str] = []

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of Chromium's own protocol, for what WebDriver has no command for."""
        return self._driver.execute_cdp_cmd(method, params)

    def load(self, url: str) -> None:
        """Show another address in its place, and wait until it is loaded.

        The driver alone does not wait for that: on a busy machine it takes the end of the new tab's blank
        page for that of this one, and returns from `get` while this one is still read.
        """
        self._driver.get(url)
        address = json.dumps(url.partition("?")[0])
        end = time.monotonic() + 60
        while not self.evaluate(f"document.readyState == 'complete' && location.href.startsWith({address})"):
            assert time.monotonic() < end, f"not loaded after 60 s: {url}"
            time.sleep(0.02)

    def size(self, width: int, height: int) -> None:
        """Show it in a window, or on a phone, of that size."""
        phone = width < 600
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; that of a promise is waited for. Raises if it throws."""
        return self._driver.execute_script(f"return ({expression});")

    def media(self, media: str) -> None:
        """Show it as on ``media``; "" ends pretending."""
        self.send("Emulation.setEmulatedMedia", media=media, features=[])

    def forget(self) -> None:
        """Drop what was logged before this page."""
        for kind in ("performance", "browser"):
            self._driver.get_log(kind)

    @property
    def requests(self) -> list[str]:
        """Every address that this page asked for, its own included; not ``data:``. Chromium's own start page
        may still be loading beside it."""
        for entry in self._driver.get_log("performance"):
            logged = json.loads(entry["message"])
            message = logged["message"]
            here = logged["webview"] == self._driver.current_window_handle
            if here and message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                self._requests += [] if url.startswith("data:") else [url]
        return self._requests

    @property
    def complaints(self) -> list[str]:
        """Console messages, uncaught errors, violations of the policy: anything a console would show."""
        self._complaints += [entry["message"] for entry in self._driver.get_log("browser")]
        return self._complaints
