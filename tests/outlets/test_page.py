"""The live page, looked at in a real browser."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest

import kpl_codec as kpl
from kpl_codec.outlets.page import PageServer, report_of
from kpl_codec.sentinel import Watch
from kpl_codec.sentinel.measures import measures

from ..report.browser import Browser
from ..sentinel.model import START, ModelStream, key_on, open_map, run
from ..sentinel.test_watch import Traffic, watched


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


def four_shards() -> Watch:
    stream = ModelStream(open_map(4))
    traffic = Traffic(stream, rate=10, naive=0.03)
    watch = watched(stream)
    for minute in range(30):
        traffic.fill(START + 60 * minute, START + 60 * minute + 60)
        stream.forget(START + 60 * minute - 60)
        run(watch, stream, START + 60 * minute, START + 60 * minute + 60)
    return watch


def many_shards() -> Watch:
    """500 shards, ten minutes, plain records, and one shard with losses."""
    stream = ModelStream(open_map(500))
    shards = stream.shard_map.open_shards
    for shard in shards:
        key = key_on(shard)
        for n in range(60):
            stream.put(shard.shard_id, START + n * 10, key, b"a plain record")
    mixed = kpl.encode([kpl.UserRecord(key_on(shard), b"x" * 50) for shard in shards[7:11]])
    stream.records[shards[7].shard_id].clear()
    for n in range(600):
        stream.put(shards[7].shard_id, START + n, "a", mixed)
    watch = watched(stream)
    run(watch, stream, START, START + 600)
    return watch


@pytest.mark.requirement("SEN-27")
@pytest.mark.parametrize(("make", "seconds", "odds"), [(four_shards, 1800, 0.03), (many_shards, 600, 0.1)])
def test_the_page_in_a_browser(browser, make, seconds, odds, tmp_path):
    watch = make()
    now = START + seconds
    report = report_of(watch, now)
    totals = report.totals
    assert totals.lost_at_kcl == watch.sentinel.lost(now).seen
    assert totals.lost_at_kcl / totals.user_records == pytest.approx(odds, rel=0.3)
    with PageServer(watch, "127.0.0.1", 0) as server:
        assert server._server.server_address[0] == "127.0.0.1"
        server.measures(measures(watch, now), now)
        url = f"http://127.0.0.1:{server.port}/"
        for width in (1280, 390):
            with browser.page(url, width=width) as page:
                text = page.evaluate("document.body.innerText")
                assert watch.sentinel.stream in text
                assert str(watch.sentinel.lost(now)) in text
                assert "does not look at shards" in text
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                page.screenshot(str(tmp_path / f"{width}.png"))  # to be looked at
                assert page.complaints == []
                assert all(request.startswith((url, "data:")) for request in page.requests)


def test_who_comes_late_gets_a_page_of_now(monkeypatch):
    monkeypatch.setattr("kpl_codec.outlets.page.RENEW", 0.5)
    stream = ModelStream(open_map(2))
    watch = watched(stream)
    with PageServer(watch, "127.0.0.1", 0) as server:
        server.measures([], START)  # nothing was read yet
        Traffic(stream, rate=10).fill(START, START + 60)
        run(watch, stream, START, START + 60)
        time.sleep(0.6)
        renewing = threading.Timer(0.2, server.measures, ([], START + 60))
        renewing.start()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=10) as answer:
            assert "Nothing was read" not in answer.read().decode()
        renewing.join()


def test_the_page_renews_itself(browser, monkeypatch):
    monkeypatch.setattr("kpl_codec.outlets.page.RENEW", 1)
    stream = ModelStream(open_map(2))
    traffic = Traffic(stream, rate=10)
    watch = watched(stream)
    traffic.fill(START, START + 60)
    run(watch, stream, START, START + 60)
    with PageServer(watch, "127.0.0.1", 0) as server:
        server.measures([], START + 60)
        with browser.page(f"http://127.0.0.1:{server.port}/", width=800) as page:
            assert "no loss was seen" in page.evaluate("document.body.innerText")
            traffic.naive = 1.0
            traffic.fill(START + 60, START + 120)
            run(watch, stream, START + 60, START + 120)
            server.measures([], START + 120)
            end = time.monotonic() + 15
            while "does not look at shards" not in page.evaluate("document.body.innerText"):
                assert time.monotonic() < end
                time.sleep(0.2)
