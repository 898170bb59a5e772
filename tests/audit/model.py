"""A small world with a truth: producers that crash and send again, a stream that splits, consumers that skip,
repeat and forget, ledgers that lose segments; and an audit by plain sets, to compare with the real one.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

import kpl_codec as kpl
from kpl_codec.audit.files import InputAccount, InputFile, InputSide, ReadProgress, account_of
from kpl_codec.audit.index import Name, Run
from kpl_codec.audit.judge import STATES, Audit
from kpl_codec.audit.lost_parts import LostParts
from kpl_codec.audit.missing_causes import FetchedRecords
from kpl_codec.audit.parquet_reader import HandledRows
from kpl_codec.format.limits import MAGIC, MOST_USER_RECORDS
from kpl_codec.ledger.ledger import Ledger, Sink, Writer, packed
from kpl_codec.ledger.ledger_rows import NO_DIGEST, Row, RowKind

Place = tuple[str, str]
SHARD = "shardId-000000000000"


class StoredRecord(NamedTuple):
    """A Kinesis record and the ids of its user records. ``role``: delivered, again, unanswered,
    foreign."""

    number: str
    ids: tuple[int, ...]
    digest: bytes
    role: str


class Files(dict[str, list[bytes]]):
    """The members that a writer has written, by file."""

    def sink(self, part_bytes: int) -> Sink:
        return Sink(self.write, part_bytes=part_bytes)

    def write(self, file: str, lines: Sequence[str]) -> None:
        self.setdefault(file, []).append(packed(lines))


def ledger_of(side: str, rows: Sequence[Row], stream: str = "orders") -> bytes:
    """A ledger of one member with rows, and its end, as it lies in a folder."""
    files = Files()
    writer = Writer(files.sink(1 << 20), f"w-{side}", stream, side, wait=True)
    writer.note(rows)
    writer.close()
    return b"".join(member for part in files.values() for member in part)


def printed(*members: Sequence[Row], side: str = "handled") -> list[str]:
    """The lines that `Ledger(print)` prints of some rows at a time, and of its end."""
    lines: list[str] = []
    with closing(Ledger(lines.append).writer("orders", side)) as writer:
        for rows in members:
            writer.note(rows)
            writer.flush()
    return lines


@dataclass
class Shard:
    created: int
    records: list[StoredRecord] = field(default_factory=list)
    parent: str | None = None
    open: bool = True


class Producer:
    """Its ledger, and the rows that a crash would lose."""

    def __init__(self, world: World, name: str) -> None:
        self.files = Files()
        sink = self.files.sink(world.rng.choice((1, 400, 1 << 20)))
        self.writer = Writer(sink, name, world.stream, "produced", wait=True)
        self.unwritten: list[Row] = []
        self.skew = world.rng.randint(-world.clocks, world.clocks)


class World:
    """``consumer``: writes its ledger; without it `consumer` has the files."""

    def __init__(self, rng: random.Random, stream: str = "orders", consumer: Writer | None = None) -> None:
        self.rng, self.stream = rng, stream
        #: How often it happens: one of so many times; 0: never.
        self.odds = {
            "misplaced": rng.choice([0, 5]),
            "unanswered": rng.choice([0, 0, 2, 5]),
            "refused": rng.choice([0, 0, 5]),
            "producer crash": rng.choice([0, 10]),
            "consumer crash": rng.choice([0, 5]),
            "skip": rng.choice([0, 3, 7]),
            "skip record": rng.choice([0, 0, 3]),
            "split": rng.choice([0, 3]),
            "foreign": rng.choice([0, 5]),
            "aside": rng.choice([0, 5]),  # a poison hook takes the Kinesis record
        }
        #: The most user records of a Kinesis record; ms by which the clocks of writers differ at most.
        self.largest, self.clocks = rng.choice([1, 6, 6, 100]), rng.choice([0, 10**7])
        #: Of the batches that are handled the part that is in tables; the others are in the ledger.
        self.in_tables = rng.choice([0.0, 0.1, 0.7])
        self.drops_misplaced = rng.random() < 0.5
        self.shards = {f"shardId-{n:012d}": Shard(n) for n in range(self.rng.randint(1, 3))}
        self.now = 1_700_000_000_000
        self.ids = 0
        self.delivered: dict[int, Name] = {}  # the results that callers got
        self.refused = Counter[RowKind]()
        self.handled = Counter[Name]()  # the truth
        self.tables: dict[str, list[Name]] = {"sink-a": [], "sink-b": []}
        self.producers = [Producer(self, "p-0"), Producer(self, "p-1")]
        self.crashed: list[Producer] = []
        self.consumer = Files()
        sink = self.consumer.sink(self.rng.choice((1, 300, 1 << 20)))
        self.consumer_writer = consumer or Writer(sink, "c-0", stream, "handled", wait=True)
        self.aside: set[Place] = set()
        self.position = dict.fromkeys(self.shards, 0)
        self.checkpoint = dict.fromkeys(self.shards, 0)

    def happens(self, what: str) -> bool:
        return self.odds[what] > 0 and self.rng.randrange(self.odds[what]) == 0

    # -- the stream ---------------------------------------------------------------------------

    def store(self, shard_id: str, ids: tuple[int, ...], digest: bytes, role: str) -> str:
        shard = self.shards[shard_id]
        before = int(shard.records[-1].number) if shard.records else (shard.created + 1) * 10**9
        number = str(before + self.rng.randint(1, 40))
        shard.records.append(StoredRecord(number, ids, digest, role))
        return number

    def split(self) -> None:
        shard_id = self.rng.choice([name for name, shard in self.shards.items() if shard.open])
        self.shards[shard_id].open = False
        for _ in range(2):
            child = f"shardId-{len(self.shards):012d}"
            self.shards[child] = Shard(len(self.shards), parent=shard_id)
            self.position[child] = self.checkpoint[child] = 0

    # -- producing ----------------------------------------------------------------------------

    def put(self, producer: Producer) -> None:
        rng = self.rng
        ids = tuple(range(self.ids, self.ids + rng.randint(1, self.largest)))
        self.ids += len(ids)
        at = self.now + producer.skew
        digest = rng.randbytes(8)
        shard_id = rng.choice([name for name, shard in self.shards.items() if shard.open])
        unwritten = producer.unwritten
        while self.happens("unanswered"):
            if rng.random() < 0.5:
                self.store(shard_id, ids, digest, "unanswered")
            unwritten.append(
                Row("unanswered", shard_id, sequence_number="", user_records=len(ids), at=at, digest=digest)
            )
            if rng.random() < 0.2:
                unwritten.append(Row("left", "expired", sequence_number="", user_records=len(ids), at=at))
                self.refused["left"] += len(ids)
                return
        if self.happens("refused"):
            unwritten.append(
                Row("refused", "AccessDeniedException", sequence_number="", user_records=len(ids), at=at)
            )
            self.refused["refused"] += len(ids)
            return
        if self.happens("misplaced"):
            number = self.store(shard_id, ids, digest, "again")
            unwritten.append(
                Row("again", shard_id, sequence_number=number, user_records=len(ids), at=at, digest=digest)
            )
            digest = rng.choice((digest, rng.randbytes(8)))
        number = self.store(shard_id, ids, digest, "delivered")
        unwritten.append(
            Row("delivered", shard_id, sequence_number=number, user_records=len(ids), at=at, digest=digest)
        )
        self.delivered.update({one: (shard_id, number, sub) for sub, one in enumerate(ids)})

    def write(self, producer: Producer) -> None:
        producer.writer.note(producer.unwritten)
        producer.unwritten = []

    def crash(self, producer: Producer) -> None:
        self.crashed.append(producer)
        self.producers.remove(producer)
        self.producers.append(Producer(self, f"p-{len(self.producers) + len(self.crashed)}"))

    # -- consuming ----------------------------------------------------------------------------

    def consume(self, shard_id: str, most: int) -> None:
        shard = self.shards[shard_id]
        if shard.parent is not None and self.position[shard.parent] < len(self.shards[shard.parent].records):
            return
        batch: list[Name] = []
        for _ in range(most):
            if self.position[shard_id] >= len(shard.records):
                break
            record = shard.records[self.position[shard_id]]
            self.position[shard_id] += 1
            if (record.role == "again" and self.drops_misplaced) or self.happens("skip record"):
                continue
            if self.happens("aside"):
                self.aside.add((shard_id, record.number))
                self.consumer_writer.note(
                    [Row("aside", shard_id, sequence_number=record.number, user_records=0, at=1)]
                )
                continue
            batch += [
                (shard_id, record.number, sub) for sub in range(len(record.ids)) if not self.happens("skip")
            ]
        if batch and self.happens("consumer crash"):
            batch = batch[: self.rng.randint(0, len(batch))]
            self.position[shard_id] = self.checkpoint[shard_id]
        else:
            self.checkpoint[shard_id] = self.position[shard_id]
        self.handle(batch)

    def handle(self, batch: list[Name]) -> None:
        self.handled.update(batch)
        if self.rng.random() < self.in_tables:
            self.tables[self.rng.choice(("sink-a", "sink-b"))] += batch
        elif batch:
            self.consumer_writer.note(
                [
                    Row("handled", s, sequence_number=n, user_records=1, at=0, digest=NO_DIGEST, first=sub)
                    for s, n, sub in batch
                ]
            )

    # -- all of it ----------------------------------------------------------------------------

    def run(self) -> World:
        rng = self.rng
        for _ in range(rng.choice([*range(1, 11), 20])):
            self.now += rng.randint(0, 2000)
            producer = rng.choice(self.producers)
            for _ in range(rng.randint(0, 4)):
                self.put(producer)
            if rng.random() < 0.4:
                self.write(producer)
            if self.happens("producer crash"):
                self.crash(producer)
            if self.happens("foreign"):
                shard_id = rng.choice([name for name, shard in self.shards.items() if shard.open])
                self.store(shard_id, tuple(range(-rng.randint(1, 5), 0)), rng.randbytes(8), "foreign")
            if self.happens("split"):
                self.split()
            for shard_id in list(self.shards):
                if rng.random() < 0.3:
                    self.consume(shard_id, rng.randint(1, 6))
        for producer in self.producers:
            self.write(producer)
            producer.writer.close()
        if rng.random() < 0.5:
            for shard_id in self.shards:  # parents come before their children
                while self.position[shard_id] < len(self.shards[shard_id].records):
                    self.consume(shard_id, 50)
        return self

    # -- what the service says -----------------------------------------------------------------

    def shard_map(self) -> kpl.ShardMap:
        opened = [name for name, shard in self.shards.items() if shard.open]
        ranges = dict(zip(opened, kpl.ALL_HASH_KEYS.split(len(opened)), strict=True))
        return kpl.ShardMap(
            kpl.Shard(
                name,
                ranges.get(name, kpl.ALL_HASH_KEYS),
                parent_shard_id=shard.parent,
                ending_sequence_number=None if shard.open else "9" * 30,
            )
            for name, shard in self.shards.items()
        )

    def fetch(
        self, client: Any, stream: str | None, shard_map: kpl.ShardMap | None, places: Iterable[Place]
    ) -> FetchedRecords:
        """Stands for `missing_causes.fetch`: frames with the digests of the records."""
        if shard_map is None:
            return FetchedRecords()
        records = {
            (shard_id, one.number): kpl.KinesisRecord(
                "k", MAGIC + b"\n" + one.digest + bytes(8), one.number, shard_id
            )
            for shard_id, shard in self.shards.items()
            for one in shard.records
        }
        wanted = frozenset(places)
        there = {place: record for place, record in records.items() if place in wanted}
        return FetchedRecords(there, wanted - there.keys())


def header(side: str, lines: int) -> dict[str, Any]:
    """The first line of a member, without its CRC."""
    facts = {"kpl_ledger": "w", "member": 0, "lines": lines, "version": 1, "side": side}
    return {**facts, "stream": "orders", "stream_arn": None, "kind": "header"}


def member(lines: Sequence[dict[str, Any]]) -> bytes:
    """The text of a member of these lines, its header first, with its CRC."""
    texts = [json.dumps(line, separators=(",", ":")) for line in lines]
    crc = crc32("\n".join(texts).encode())
    return "\n".join([f'{{"crc":{crc},{texts[0][1:]}', *texts[1:], ""]).encode()


class Memory(NamedTuple):
    """Stands for a place of files: the one that has these bytes."""

    path: str
    data: bytes
    opened: list[str]

    def filesystem(self) -> tuple[Memory, str]:
        return self, self.path

    def open_input_file(self, path: str) -> Any:
        self.opened.append(path)
        return pa.BufferReader(self.data)


def account(side: InputSide, files: Mapping[str, bytes]) -> InputAccount:
    """What there is to read of one side, all of it in memory."""
    places = [Memory(name, data, []) for name, data in files.items()]
    return InputAccount([InputFile(place, place.path, len(place.data), side) for place in places])  # type: ignore[arg-type]


def rows_in(read: InputAccount, side: InputSide, stream: str | None = None) -> list[Row]:
    """The rows of a side that its ledgers and tables have, of the stream (None: of any)."""
    rows: list[Row] = []
    for _, item in read.read(ReadProgress()):
        if isinstance(item, HandledRows):
            for at, sub in enumerate(item.sub.tolist()):
                shard_id, number = item.shard.text(at), item.number.text(at)
                rows.append(Row("handled", shard_id, sequence_number=number, user_records=1, at=0, first=sub))
        elif stream is None or (item.origin.side, item.origin.stream) == (side, stream):
            rows += item.rows
    return rows


def read_ledgers(
    files: str | Mapping[str, bytes], side: InputSide = "produced"
) -> tuple[list[Row], LostParts]:
    """All rows of the ledgers in files, or under a path, and what is lost of those of this side."""
    read = account_of([files], side, ()) if isinstance(files, str) else account(side, files)
    rows = rows_in(read, side)
    for part in read.writers.lost(side):
        read.lost.add(part)
    return rows, read.lost


def table_of(rows: Iterable[Sequence[Any]]) -> bytes:
    """A table of handled user records: of each its shard id, sequence number and sub-sequence number. A text
    may be bytes that are no UTF-8, which Parquet does not check."""
    shards, numbers, subs = zip(*rows, strict=True) if (rows := [*rows]) else ((), (), ())
    columns = {
        "shardId": pa.array(shards, pa.binary()).cast(pa.string(), safe=False),
        "sequenceNumber": pa.array(numbers, pa.binary()).cast(pa.string(), safe=False),
        "subSequenceNumber": pa.array(subs, pa.int64()),
    }
    out = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), out, write_page_checksum=True)
    return bytes(out.getvalue())


def rows_of(kind: RowKind, *numbers: int | str, shard_id: str = SHARD, user_records: int = 1) -> list[Row]:
    """Rows of one shard, by their sequence numbers."""
    return [
        Row(kind, shard_id, sequence_number=str(number), user_records=user_records, at=1)
        for number in numbers
    ]


def names_of_runs(runs: Iterable[Run]) -> set[Name]:
    return {
        (one.shard_id, one.sequence_number, sub) for one in runs for sub in range(one.first, one.last + 1)
    }


def plain_audit(
    rows: list[Row],
    handled: Counter[Name],
    aside: set[Place],
    audit: Audit,
    *,
    digests: Mapping[Place, bytes],
    finished: Collection[str],
    until: int | None,
) -> dict[str, set[Name]]:
    """The audit by plain sets: the delivered user records of each state. ``rows``: of producers;
    ``handled``: how often ledgers and tables name a user record. ``audit`` gives what is lost, and what no
    ledger names; the others are arguments of `judge`."""
    last: dict[str, tuple[int, int]] = {}
    passed = [*handled, *((*place, MOST_USER_RECORDS) for place in aside)]
    for shard_id, number, sub in passed:
        last[shard_id] = max(last.get(shard_id, (-1, -1)), (int(number), sub))
    # What was handled and no ledger names may be an attempt without an answer, of the same bytes.
    attempts: dict[bytes, int] = {}
    for row in rows:
        if row.kind == "unanswered":
            attempts[row.digest] = max(row.user_records, attempts.get(row.digest, 0))
    unclaimed = {(one.shard_id, one.sequence_number): one.last for _, one in audit.unclaimed}
    known = {digests[place] for place in unclaimed if place in digests}
    lowest = min((last for place, last in unclaimed.items() if place not in digests), default=10**9)
    doubtful = {digest for digest, most in attempts.items() if digest in known or lowest < most}
    # And so may one that its producer sent again.
    places = {name[:2] for name in handled} | aside
    doubtful |= {
        row.digest for row in rows if row.kind == "again" and (row.shard_id, row.sequence_number) in places
    }
    states: dict[str, set[Name]] = {state: set() for state in STATES}
    for row in set(rows):
        if row.kind != "delivered":
            continue
        names = {("", row.sequence_number), (row.shard_id, ""), ("", "")}
        may_be_named = bool(names & audit.lost_of_consumers.may_name.keys())
        for sub in range(row.user_records):
            name = row.shard_id, row.sequence_number, sub
            if until is None:
                due = row.shard_id in finished or (int(row.sequence_number), sub) < last.get(
                    row.shard_id, (-1, -1)
                )
            else:
                due = row.at < until
            if handled[name]:
                states["handled"].add(name)
            elif name[:2] in aside:
                states["aside"].add(name)
            elif not due:
                states["too_early"].add(name)
            elif may_be_named or row.digest in doubtful:
                states["unknown"].add(name)
            else:
                states["missing"].add(name)
    return states
