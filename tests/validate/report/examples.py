"""Reports to look at and to test with: made from real frames through the real decoder, or filled in by
hand where only the page matters."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa

import kpl_codec as kpl
from kpl_codec.arrow import new_deaggregator
from kpl_codec.captures import CAPTURE_SCHEMA
from kpl_codec.findings import KINDS, Finding
from kpl_codec.findings.counters import Tally
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap
from kpl_codec.validate.report.facts import report_facts
from kpl_codec.validate.report.schema import Facts
from kpl_codec.validate.scan import Scan, findings_of

from ...shards.model import BEGIN, ModelStream
from ...spec.vectors import load

#: The facts, and examples of findings.
Report = tuple[Facts, list[Finding]]
INPUT_SCHEMA = pa.schema([field for field in CAPTURE_SCHEMA if not field.name.startswith("capture")])
#: Kinesis records with every defect that the vectors have.
BROKEN = [
    bytes.fromhex(vector["input"]["data"])
    for vector in load()
    if vector["kind"] == "decode" and vector["result"] == "invalid"
]
#: Seconds after BEGIN: when `Stream` reshards, and how long it is looked at.
SPLIT_AT, MERGED_AT, END = 1800, 3300, 5400


class Page(HTMLParser):
    """HTML in which every element is closed, in order. ``attributes``: element, name, value."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self._open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in ("meta", "link", "br", "hr", "input", "wbr"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


class Stream(ModelStream):
    """Four shards; the second is split after 30 minutes, the last two are merged after 55."""

    def __init__(self, until: int = END) -> None:
        super().__init__(4, now=0)
        self.go_on(until)

    def go_on(self, until: int) -> None:
        for at, reshard, position in ((SPLIT_AT, self.split, 1), (MERGED_AT, self.merge, 3)):
            if self.now < at <= until:
                self.now = at - 1
                reshard(position)
        self.now = until

    def record(self, data: bytes, key: str, index: int) -> dict[str, object]:
        """A row of a capture, which was put now."""
        shard = self.shard_for(kpl.effective_hash_key(key))
        return {
            "streamName": "orders",
            "shardId": shard.shard_id,
            "sequenceNumber": self.number(self.shards.index(shard), 0, index),
            "partitionKey": key,
            "data": data,
            "approximateArrivalTimestamp": BEGIN + timedelta(seconds=self.now),
            "file": f"captures/2026-11-21/part-{index % 3:03d}.jsonl",
            "position": index * 1000,
            "line": index + 1,
            "recordIndex": 0,
        }


def good_aggregate(stream: ModelStream, lead: str, rnd: random.Random) -> bytes:
    """As the KPL does: all of one shard."""
    shard = stream.shard_for(kpl.effective_hash_key(lead))
    records = [kpl.UserRecord(lead, b"x" * 20)]
    while len(records) < 8:
        key = f"customer-{rnd.randrange(5000)}"
        if kpl.effective_hash_key(key) in shard.hash_key_range:
            records.append(kpl.UserRecord(key, b"x" * rnd.randrange(200)))
    return kpl.encode(records)


def mixed_stream(count: int = 1500, *, clean: bool = False) -> tuple[ShardMap, pa.RecordBatch]:
    """An hour and a half: good aggregates, and if it is not ``clean`` a naive aggregator's, plain records,
    broken ones."""
    stream, rnd = Stream(until=0), random.Random(7)
    rows = []
    for index in range(count):
        stream.go_on(END * index // count)
        lead, data = f"customer-{rnd.randrange(5000)}", b"plain record"
        sort = 0 if clean else rnd.random()
        if sort < 0.7:
            data = good_aggregate(stream, lead, rnd)
        elif sort < 0.82 and index > 0.45 * count:  # a naive aggregator, from 40 minutes on
            keys = [lead, *(f"customer-{rnd.randrange(5000)}" for _ in range(5))]
            data = kpl.encode([kpl.UserRecord(key, b"y" * 30) for key in keys])
        elif sort > 0.97:
            data = rnd.choice(BROKEN)
        rows.append(stream.record(data, lead, index))
    return ShardMap(stream.shards), pa.RecordBatch.from_pylist(rows, schema=INPUT_SCHEMA)


def scanned(
    batch: pa.RecordBatch, shard_map: ShardMap, max_batch_bytes: int = 1 << 22
) -> tuple[Tally, list[Finding]]:
    """Through the real decoder and the scan, in batches of at most so many bytes."""
    options = {"shard_map": shard_map, "max_batch_bytes": max_batch_bytes, "dictionaries": True}
    written: list[pa.RecordBatch] = []
    scan = Scan(shard_map, written.append)
    for out in new_deaggregator(batch.schema, "report", **options).process(batch):
        scan.process(out)
    scan.finish()
    found = [finding for part in written for finding in findings_of(part)]
    return scan.tally, found


def report_of(
    tally: Tally, shard_map: ShardMap | None, findings: Iterable[Finding] = (), **about: Any
) -> Report:
    return report_facts(tally, shard_map, findings, generated=BEGIN, **about)


def full_report() -> Report:
    """Real records, most things that can be wrong with them, and some trouble with the capture."""
    shard_map, batch = mixed_stream()
    tally, _ = scanned(batch, shard_map)
    trouble = [
        Finding("capture-json", file="captures/2026-11-21/part-001.jsonl", line=812, position=813_004,
                requirement="SPK-14", detail="Unterminated string (byte 813411)"),
        Finding("duplicate", shard_id="shardId-000000000000", sequence_number="4" * 56, user_records=2,
                file="captures/2026-11-21/part-002.jsonl", line=7, detail="captured 2 times"),
    ]  # fmt: skip
    return report_of(
        tally,
        shard_map,
        source="Files under captures/2026-11-21",
        inputs=[f"captures/2026-11-21/part-{index:03d}.jsonl" for index in range(3)],
        findings=trouble,
    )


def empty_report() -> Report:
    """Nothing was read."""
    return report_of(Tally(), ShardMap(Stream().shards))


def clean_report() -> Report:
    """Records, and nothing to say against them."""
    shard_map, batch = mixed_stream(400, clean=True)
    return report_of(scanned(batch, shard_map)[0], shard_map)


def many_findings() -> Report:
    """200 findings of each of 50 kinds, 1,000 shards, 500 files: more of each than the page shows."""
    shards = [Shard(f"shardId-{i:012d}", held) for i, held in enumerate(ALL_HASH_KEYS.split(1000))]
    tally = Tally()
    for index, shard in enumerate(shards):
        tally.add("cells", (1_700_000_000 + index * 60, shard.shard_id), 1, 1, 0)
        tally.add("groups", (shard.shard_id, shard.shard_id, "expected", "delivered"), 10_000, 10**6, "1")
        tally.add("groups", (shard.shard_id, shards[0].shard_id, "stray", "dropped"), 500, 10**4, "2")
        tally.add("shards", shard.shard_id, 10_050, 50, None, None)
        tally.records.update(kinesis=10_050, plain=10_000, aggregated=50, mixed=50)
    for kind in tuple(KINDS)[:50]:
        for index in range(200):
            tally.add_finding(
                Finding(
                    kind,
                    shard_id=shards[index % 64].shard_id,
                    sequence_number=str(10**55 + index),
                    sub_sequence_number=index % 7,
                    user_records=1,
                    offset=index,
                    requirement=KINDS[kind].requirement,
                    detail=f"example {index}",
                )
            )
    return report_of(
        tally, ShardMap(shards), stream_name="a-large-one", inputs=[f"file-{i}" for i in range(500)]
    )


#: Texts that want out of the place they are put in.
HOSTILE = (
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><svg onload=window.hit=1>',
    "'-alert(1)-'",
    "</title></style></script><h1>hit</h1>",
    "javascript:window.hit=1",
    "&lt;b&gt; &amp; {{7*7}} ${7*7}",
    "\u202egnp.exe\x00\x1b[31m\x07 \ud800 end",
    "x" * 5000,
)


def hostile_report() -> Report:
    """A report that shows every text wherever one from outside can stand."""
    tally = Tally()
    findings = []
    for index, text in enumerate(HOSTILE):
        other = HOSTILE[-1 - index]
        tally.add("groups", (text, other, "stray", "dropped"), 3, 30, text)
        tally.add("cells", (1_700_000_000 + index, text), 3, 30, 1)
        tally.add("shards", text, 1, 1, 1_700_000_000, 1_700_000_100)
        tally.records["kinesis"] += 1
        findings += [
            Finding(kind, shard_id=text, sequence_number=text, file=text, line=1, cause=text, kcl=text,
                    expected_shard_id=other, requirement=text, detail=text)
            for kind in ("mixed-aggregate", text)
        ]  # fmt: skip
    about = {"stream_name": HOSTILE[0], "source": HOSTILE[2], "inputs": HOSTILE}
    return report_of(tally, None, findings=findings, **about)


#: Each is made when it is asked for first.
EXAMPLES: dict[str, Callable[[], Report]] = {
    "full": cache(full_report),
    "empty": cache(empty_report),
    "clean": cache(clean_report),
    "many": cache(many_findings),
    "hostile": cache(hostile_report),
}
