"""Reports to look at and to test with: made from real frames through the real decoder, or filled in by
hand where only the page matters."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from itertools import cycle, islice
from typing import Any

import pyarrow as pa

import kpl_codec as kpl
from kpl_codec.arrow import new_deaggregator
from kpl_codec.findings import KINDS, Finding
from kpl_codec.findings.counters import Tally
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap
from kpl_codec.validate.report.facts import report_facts
from kpl_codec.validate.report.schema import Facts
from kpl_codec.validate.scan import Scan, findings_of

#: The facts, and examples of findings.
Report = tuple[Facts, list[Finding]]
NOW = datetime(2026, 11, 21, 3, 30, tzinfo=timezone.utc)
START = datetime(2026, 11, 21, 2, 0, tzinfo=timezone.utc)

INPUT_SCHEMA = pa.schema(
    [
        ("streamName", pa.string()),
        ("shardId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("partitionKey", pa.string()),
        ("data", pa.binary()),
        ("approximateArrivalTimestamp", pa.timestamp("us", "UTC")),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("line", pa.int64()),
        ("recordIndex", pa.int64()),
    ]
)


def sequence_number(shard_index: int, created: datetime, time: datetime, index: int) -> str:
    """A number with the hints that `kpl_codec.shards.sequence_numbers` reads."""
    number = (
        2 << 184
        | int(created.timestamp()) << 148
        | (shard_index & 0xF) << 144
        | index << 80
        | int(time.timestamp()) << 36
        | shard_index << 4
        | 2
    )
    return str(number)


class Page(HTMLParser):
    """HTML in which every element is closed, in order. ``attributes``: element, name, value. ``inside``: the
    texts of scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.elements, self._open = "", list[str](), list[str]()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.inside: dict[str, str] = {}
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in ("meta", "link", "br", "hr", "input", "wbr"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open and self._open[-1] in ("script", "style"):
            self.inside[self._open[-1]] = self.inside.get(self._open[-1], "") + data


class Stream:
    """A stream of four shards; the second is split after 30 minutes, the last two merged after 55."""

    def __init__(self) -> None:
        quarters = ALL_HASH_KEYS.split(4)
        halves = quarters[1].split(2)
        self.split_at, self.merge_at = START + timedelta(minutes=30), START + timedelta(minutes=55)
        merged = kpl.HashKeyRange(quarters[2].starting_hash_key, quarters[3].ending_hash_key)
        made = [
            (quarters[0], (), START, None),
            (quarters[1], (), START, self.split_at),
            (quarters[2], (), START, self.merge_at),
            (quarters[3], (), START, self.merge_at),
            (halves[0], (1,), self.split_at, None),
            (halves[1], (1,), self.split_at, None),
            (merged, (2, 3), self.merge_at, None),
        ]
        self.created = [created for _, _, created, _ in made]
        self.closed = [closed for _, _, _, closed in made]
        self.shards = [
            Shard(
                f"shardId-{index:012d}",
                held,
                parent_shard_id=f"shardId-{parents[0]:012d}" if parents else None,
                adjacent_parent_shard_id=f"shardId-{parents[1]:012d}" if parents[1:] else None,
                starting_sequence_number=sequence_number(index, created, created, 0),
                ending_sequence_number=sequence_number(index, created, closed, 1 << 40) if closed else None,
            )
            for index, (held, parents, created, closed) in enumerate(made)
        ]
        self.map = ShardMap(self.shards)

    def shard_index(self, hash_key: int, time: datetime) -> int:
        """The shard that takes ``hash_key`` at ``time``."""
        return next(
            index
            for index, shard in enumerate(self.shards)
            if hash_key in shard.hash_key_range
            and self.created[index] <= time
            and (self.closed[index] is None or time < self.closed[index])  # type: ignore[operator]
        )

    def record(self, data: bytes, key: str, hash_key: int, time: datetime, index: int) -> dict[str, object]:
        shard = self.shard_index(hash_key, time)
        return {
            "streamName": "orders",
            "shardId": self.shards[shard].shard_id,
            "sequenceNumber": sequence_number(shard, self.created[shard], time, index),
            "partitionKey": key,
            "data": data,
            "approximateArrivalTimestamp": time,
            "file": f"captures/2026-11-21/part-{index % 3:03d}.jsonl",
            "position": index * 1000,
            "line": index + 1,
            "recordIndex": 0,
        }


def mixed_stream(count: int = 1500, seed: int = 7) -> tuple[Stream, pa.RecordBatch]:
    """An hour and a half: good aggregates, a naive aggregator's, plain ones, broken ones."""
    stream, rnd = Stream(), random.Random(seed)
    rows = []
    for index in range(count):
        time = START + timedelta(minutes=90 * index / count)
        lead = f"customer-{rnd.randrange(5000)}"
        hash_key = kpl.effective_hash_key(lead)
        kind = rnd.random()
        if kind < 0.7:  # as the KPL does: all of one shard
            shard = stream.shard_index(hash_key, time)
            records = [kpl.UserRecord(lead, b"x" * 20)]
            while len(records) < 8:
                key = f"customer-{rnd.randrange(5000)}"
                if stream.shard_index(kpl.effective_hash_key(key), time) == shard:
                    records.append(kpl.UserRecord(key, b"x" * rnd.randrange(200)))
            data = kpl.encode(records)
        elif kind < 0.82:  # a naive aggregator, from 40 minutes on
            data = b"plain record"
            if index > 0.45 * count:
                keys = [lead, *(f"customer-{rnd.randrange(5000)}" for _ in range(5))]
                data = kpl.encode([kpl.UserRecord(key, b"y" * 30) for key in keys])
        elif kind < 0.97:
            data = b"plain record"
        else:
            data = broken_frame(rnd)
        rows.append(stream.record(data, lead, hash_key, time, index))
    return stream, pa.RecordBatch.from_pylist(rows, schema=INPUT_SCHEMA)


def frame(message: bytes) -> bytes:
    """A message in a sound frame."""
    return b"\xf3\x89\x9a\xc2" + message + hashlib.md5(message).digest()


def broken_frame(rnd: random.Random) -> bytes:
    """Something wrong, of eight kinds."""
    sound = kpl.encode([kpl.UserRecord("a", b"1"), kpl.UserRecord("b", b"2")])
    return rnd.choice(
        [
            sound[:-1] + bytes([sound[-1] ^ 1]),  # checksum-mismatch
            frame(sound[4:-18]),  # truncated
            frame(b"\x0a\x01a\x1a\x04\x08\x05\x1a\x00"),  # index-out-of-table
            frame(b"\x0a\x01a\x1a\x02\x08\x00"),  # missing-field
            frame(b"\x0a\x01\xff\x1a\x04\x08\x00\x1a\x00"),  # key-utf-8
            frame(b"\x0a\x01a\x12\x03abc\x1a\x06\x08\x00\x10\x00\x1a\x00"),  # hash-key
            frame(b"\x0a\x01a"),  # no-user-records
            frame(b"\x0a\x01a\x1a\x04\x08\x00\x18\x05"),  # wrong-wire-type
        ]
    )


def opened(
    batch: pa.RecordBatch, shard_map: ShardMap, max_batch_bytes: int = 1 << 22
) -> Iterator[pa.RecordBatch]:
    """The user records, in batches as `check` gives them."""
    options = {"shard_map": shard_map, "max_batch_bytes": max_batch_bytes, "dictionaries": True}
    return new_deaggregator(batch.schema, "report", **options).process(batch)


def scanned(
    batch: pa.RecordBatch, shard_map: ShardMap, max_batch_bytes: int = 1 << 22
) -> tuple[Tally, list[Finding]]:
    """Through the real decoder and the scan, in batches of at most so many bytes."""
    written: list[pa.RecordBatch] = []
    scan = Scan(shard_map, written.append)
    for out in opened(batch, shard_map, max_batch_bytes):
        scan.process(out)
    scan.finish()
    found = [finding for part in written for finding in findings_of(part)]
    return scan.tally, found


def report_of(
    tally: Tally, shard_map: ShardMap | None, findings: Iterable[Finding] = (), **about: Any
) -> Report:
    return report_facts(tally, shard_map, findings, generated=NOW, **about)


def full_report() -> Report:
    """Real records, most things that can be wrong with them, and some trouble with the capture."""
    stream, batch = mixed_stream()
    tally, _ = scanned(batch, stream.map)
    trouble = [
        Finding("capture-json", file="captures/2026-11-21/part-001.jsonl", line=812, position=813_004,
                requirement="SPK-14", detail="Unterminated string (byte 813411)"),
        Finding("duplicate", shard_id="shardId-000000000000", sequence_number="4" * 56, user_records=2,
                file="captures/2026-11-21/part-002.jsonl", line=7, detail="captured 2 times"),
    ]  # fmt: skip
    return report_of(
        tally,
        stream.map,
        source="Files under captures/2026-11-21",
        inputs=[f"captures/2026-11-21/part-{index:03d}.jsonl" for index in range(3)],
        findings=trouble,
    )


def empty_report() -> Report:
    """Nothing was read."""
    return report_of(Tally(), Stream().map)


def clean_report() -> Report:
    """Records, and nothing to say against them."""
    shards = [Shard(f"shardId-{i:012d}", held) for i, held in enumerate(ALL_HASH_KEYS.split(2))]
    shard_map = ShardMap(shards)
    rows = []
    for index in range(400):
        key = f"k{index}"
        shard = shard_map.shard_for(kpl.effective_hash_key(key))
        rows.append(
            {
                "streamName": "clicks",
                "shardId": shard.shard_id,
                "sequenceNumber": str(10**55 + index),
                "partitionKey": key,
                "data": kpl.encode([kpl.UserRecord(key, b"data")] * 3),
                "approximateArrivalTimestamp": START + timedelta(seconds=index),
            }
        )
    tally, _ = scanned(pa.RecordBatch.from_pylist(rows, schema=INPUT_SCHEMA), shard_map)
    return report_of(tally, shard_map)


#: Not all: the page shares its places among the kinds, and each is to fill more than one batch of 50.
FIFTY_KINDS = tuple(KINDS)[:50]


def many_findings(kinds: Iterable[str] = FIFTY_KINDS, each: int = 200) -> Report:
    """Many findings of each kind, on a stream of 64 shards."""
    shards = [Shard(f"shardId-{i:012d}", held) for i, held in enumerate(ALL_HASH_KEYS.split(64))]
    tally = Tally()
    for shard in shards:
        tally.add("groups", (shard.shard_id, shard.shard_id, "expected", "delivered"), 10_000, 10**6, "1")
        tally.add("groups", (shard.shard_id, shards[0].shard_id, "stray", "dropped"), 500, 10**4, "2")
        tally.add("shards", shard.shard_id, 10_050, 50, None, None)
        tally.records["kinesis"] += 10_050
        tally.records["plain"] += 10_000
        tally.records.update(aggregated=50, mixed=50)
    for kind in kinds:
        for index in range(each):
            tally.add_finding(
                Finding(
                    kind,
                    shard_id=shards[index % 64].shard_id,
                    sequence_number=str(10**55 + index),
                    sub_sequence_number=index % 7,
                    user_records=1,
                    offset=index,
                    requirement=KINDS[kind].requirement if kind in KINDS else None,
                    detail=f"example {index} of {each}",
                )
            )
    return report_of(tally, ShardMap(shards), stream_name="a-large-one")


#: Texts that want out of the place they are put in.
HOSTILE: Sequence[str] = (
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


def hostile_report(texts: Sequence[str] = HOSTILE) -> Report:
    """A report that shows every text wherever one from outside can stand."""
    tally = Tally()
    findings = []
    for index, text in enumerate(texts):
        other = texts[-1 - index]
        tally.add("groups", (text, other, "stray", "dropped"), 3, 30, text)
        tally.add("shards", text, 1, 1, None, None)
        tally.add("cells", (1_700_000_000 + index, text), 3, 30, 1)
        tally.add("shards", text, 0, 0, 1_700_000_000, 1_700_000_100)
        tally.records["kinesis"] += 1
        findings += [
            Finding(kind, shard_id=text, sequence_number=text, file=text, line=1, cause=text, kcl=text,
                    expected_shard_id=other, requirement=text, detail=text)
            for kind in ("mixed-aggregate", text)
        ]  # fmt: skip
    source, stream = islice(cycle(texts or [""]), 2, 5, 2)
    return report_of(tally, None, stream_name=stream, source=source, inputs=list(texts), findings=findings)
