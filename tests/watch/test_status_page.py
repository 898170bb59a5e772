"""The live page, looked at in a real browser."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.captures import CAPTURE_SCHEMA
from kpl_codec.validate.check import check
from kpl_codec.validate.report.build import build_report
from kpl_codec.validate.report.scan import Scan
from kpl_codec.validate.report.summary import counts, outcome
from kpl_codec.watch import Watch
from kpl_codec.watch.status_page import PageServer, report_of, tally_of
from kpl_codec.watch.watch_metrics import watch_metrics

from ..validate.report.browser import Browser
from .model import START, ModelStream, key_on, open_map, run
from .test_watch import Traffic, watched


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


def paged(stream: ModelStream, **settings: object) -> Watch:
    """A watch that counts for a page."""
    watch = watched(stream, **settings)
    watch.last_hour.tally_of = tally_of
    return watch


def four_shards() -> Watch:
    stream = ModelStream(open_map(4))
    traffic = Traffic(stream, rate=10, naive=0.03)
    watch = paged(stream)
    for minute in range(30):
        traffic.fill(START + 60 * minute, START + 60 * minute + 60)
        stream.forget(START + 60 * minute - 60)
        run(watch, stream, START + 60 * minute, START + 60 * minute + 60)
    return watch


@pytest.mark.slow
@pytest.mark.requirement("WCH-27")
def test_the_page_in_a_browser(browser, tmp_path):
    watch, now = four_shards(), START + 1800
    report = report_of(watch, now)
    totals = report.totals
    assert totals.lost_at_kcl == watch.last_hour.lost().seen
    assert totals.lost_at_kcl / totals.user_records == pytest.approx(0.03, rel=0.3)
    with PageServer(watch, "127.0.0.1", 0) as server:
        assert server._server.server_address[0] == "127.0.0.1"
        server.on_metrics(watch_metrics(watch, now), now)
        url = f"http://127.0.0.1:{server.port}/"
        for width in (1280, 390):
            with browser.page(url, width=width) as page:
                text = page.evaluate("document.body.innerText")
                assert watch.last_hour.stream in text
                assert watch.last_hour.lost().user_records in text
                assert "does not look at shards" in text
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                page.screenshot(str(tmp_path / f"{width}.png"))  # to be looked at
                assert page.complaints == []
                assert all(request.startswith((url, "data:")) for request in page.requests)


@pytest.mark.slow
def test_the_page_renews_itself(browser, monkeypatch):
    monkeypatch.setattr("kpl_codec.watch.status_page.RENEW", 1)
    stream = ModelStream(open_map(2))
    traffic = Traffic(stream, rate=10)
    watch = paged(stream)
    traffic.fill(START, START + 60)
    run(watch, stream, START, START + 60)
    with PageServer(watch, "127.0.0.1", 0) as server:
        server.on_metrics([], START + 60)
        with browser.page(f"http://127.0.0.1:{server.port}/", width=800) as page:
            assert "no loss was seen" in page.evaluate("document.body.innerText")
            traffic.naive = 1.0
            traffic.fill(START + 60, START + 120)
            run(watch, stream, START + 60, START + 120)
            end = time.monotonic() + 60
            while "does not look at shards" not in page.evaluate("document.body.innerText"):
                server.on_metrics([], START + 120)
                assert time.monotonic() < end
                time.sleep(0.2)


def frames(shard_map: kpl.ShardMap, shard: kpl.Shard) -> dict[str, tuple[str, bytes]]:
    """A Kinesis record of each sort for ``shard``: its key and data."""
    other_shard = next(one for one in shard_map.open_shards if one != shard)
    here, away = key_on(shard), key_on(other_shard)
    sound = kpl.encode([kpl.UserRecord(here, b"%d" % n) for n in range(3)])
    # Field 1 of the third user record is the index of its key: 9 is past the table.
    message = sound[4:-16].replace(b"\x1a\x05\x08\x00\x1a\x012", b"\x1a\x05\x08\x09\x1a\x012")
    return {
        "plain": (here, b"plain"),
        "sound": (here, sound),
        "mixed": (here, kpl.encode([kpl.UserRecord(here, b"in"), kpl.UserRecord(away, b"out")])),
        "foreign": (here, kpl.encode([kpl.UserRecord(away, b"out"), kpl.UserRecord(away, b"too")])),
        "index": (here, sound[:4] + message + hashlib.md5(message).digest()),
        "digest": (here, sound[:-1] + bytes([sound[-1] ^ 1])),
        "encoded": (here, base64.b64encode(sound)),
    }


@pytest.mark.requirement("WCH-38", "WCH-39")
@given(st.lists(st.sampled_from(sorted(frames(open_map(2), open_map(2).open_shards[0]))), max_size=12))
@settings(max_examples=30)
def test_the_page_counts_what_was_read_as_validate_does(sorts: list[str]) -> None:
    stream = ModelStream(open_map(2))
    shard = stream.shard_map.open_shards[0]
    for number, sort in enumerate(sorts):
        stream.put(shard.shard_id, START + number, *frames(stream.shard_map, shard)[sort])
    watch = paged(stream, sampling_rate=1.0, since=10.0)
    run(watch, stream, START, START + 60)
    report = report_of(watch, START + 60)
    scan = Scan(stream.shard_map)
    rows = [
        {**dict.fromkeys(CAPTURE_SCHEMA.names), "shardId": shard.shard_id, "sequenceNumber": str(put.number)}
        | {"partitionKey": put.key, "data": put.data, "file": "x"}
        for put in stream.records.get(shard.shard_id, [])
    ]
    batches = [pa.RecordBatch.from_pylist(rows, CAPTURE_SCHEMA)]
    for batch in check(batches, stream.shard_map, scan.report):
        scan.process(batch)
    scan.finish()
    checked = build_report(scan.tally, stream.shard_map, report.about)
    assert report.totals == checked.totals
    # Each lost user record is one of one finding.
    assert sum(count.user_records or 0 for count in report.kinds) == report.totals.lost_at_kcl
    kinds = {count.kind.name for count in report.kinds} - {"skewed-shard", "no-records", "hot-key"}
    assert ("capture-encoded-frame" in kinds) == ("encoded" in sorts)
    assert bool(kinds) == bool({"mixed", "foreign", "index", "digest", "encoded"} & set(sorts))


def test_a_sample_without_a_loss_is_not_called_clean() -> None:
    stream = ModelStream(open_map(2))
    Traffic(stream, rate=10).fill(START, START + 90)
    watch = paged(stream)
    run(watch, stream, START, START + 90)
    report = report_of(watch, START + 90)
    assert "Clean" not in "".join(outcome(report))
    assert "5 % of each shard's time" in outcome(report)[1]
    assert "a second" not in str(counts(report)[0])
    assert report.last_arrival is not None
    assert report.last_arrival.timestamp() <= START + 90
    # The minute that is not over is no cell: it would look like traffic that stops.
    assert max(cell.start.timestamp() for cell in report.cells) + 60 <= START + 90
