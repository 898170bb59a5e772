"""A real browser for tests: headless Chromium, driven by Selenium.

    with Browser() as browser:
        browser.show(path.as_uri(), width=360)
        browser.evaluate("document.title"); browser.requests; browser.complaints

Chromium and its driver are taken from ``CHROMIUM`` and ``CHROMEDRIVER``, else from the machine. Selenium is
told where both are, so it downloads nothing. Where they are missing the tests are skipped; only with
``CI=true`` they are installed with apt-get.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from types import TracebackType
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

_PACKAGES = ("chromium", "chromium-driver", "fonts-dejavu-core")


def find() -> tuple[str, str]:
    """The paths of Chromium and of its driver. Skips the test where they are missing, unless ``CI=true``."""
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *_PACKAGES]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # The second is tried where the lists of packages are old, or not there.
    for commands in ([install], [["apt-get", "update", "-q"], install], []):
        names = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
        chromium = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
        driver = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
        if chromium is not None and driver is not None:
            return chromium, driver
        for command in commands if os.environ.get("CI") == "true" else ():
            subprocess.run(command, env=environment, capture_output=True, timeout=280, check=False)
    reason = f"no Chromium or no driver of it: apt-get install {' '.join(_PACKAGES)}, or set CHROMIUM "
    reason += "and CHROMEDRIVER to their paths"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Browser:
    """One Chromium process with an empty profile and one tab; gone with the ``with`` block."""

    def __enter__(self) -> Browser:
        chromium, driver = find()
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        self._driver = webdriver.Chrome(options, Service(executable_path=driver))
        self._driver.set_script_timeout(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._driver.quit()

    def show(self, url: str, *, width: int = 1280, height: int = 900) -> None:
        """Load a page in place of the one before, of which nothing is logged any more."""
        self.size(width, height)
        for kind in ("performance", "browser"):
            self._driver.get_log(kind)
        self._driver.get(url)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of Chromium's own protocol, for what WebDriver has no command for."""
        return self._driver.execute_cdp_cmd(method, params)

    def size(self, width: int, height: int = 900) -> None:
        """Show the page in a window, or on a phone, of that size."""
        phone = width < 600
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    def media(self, media: str, *, dark: bool = False) -> None:
        """Show the page as on ``media``, "screen" or "print"."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; that of a promise is waited for. Raises if it throws."""
        return self._driver.execute_script(f"return ({expression});")

    @property
    def requests(self) -> list[str]:
        """Every address that was asked for since the page was shown, its own included; not ``data:``."""
        messages = [json.loads(entry["message"])["message"] for entry in self._driver.get_log("performance")]
        sent = [one["params"] for one in messages if one["method"] == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent if not one["request"]["url"].startswith("data:")]

    @property
    def complaints(self) -> list[str]:
        """Console messages, uncaught errors, violations of the policy: anything a console would show. What
        was given once is not given again."""
        return [entry["message"] for entry in self._driver.get_log("browser")]
