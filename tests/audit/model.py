"""A small world with a truth: producers that crash and send again, a stream that splits, consumers that skip,
repeat and forget, ledgers that lose segments; and an audit by plain sets, to compare with the real one.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from kpl_codec.audit.files import InputAccount, InputFile, InputSide, ReadProgress, account_of
from kpl_codec.audit.index import Columns, Index, Name, Run, Tally
from kpl_codec.audit.judge import STATES, Audit, judge
from kpl_codec.audit.lost_parts import LostPart, LostParts
from kpl_codec.audit.writers import Member
from kpl_codec.format.limits import MOST_USER_RECORDS
from kpl_codec.ledger.ledger import Sink, Writer, packed
from kpl_codec.ledger.ledger_rows import NO_DIGEST, Row, RowKind

Place = tuple[str, str]
SHARD = "shardId-000000000000"


@dataclass(frozen=True)
class Odds:
    """How often things go wrong: one of so many; 0: never."""

    seed: int = 0
    steps: int = 60
    largest: int = 12  # user records of a Kinesis record
    misplaced: int = 0
    unanswered: int = 0
    refused: int = 0
    producer_crash: int = 0
    consumer_crash: int = 0
    skip: int = 0
    split: int = 0
    foreign: int = 0
    lost_segment: int = 0
    lost_block: int = 0
    lost_handled: int = 0
    vague: int = 0  # rows of a table that do not say all
    drops_misplaced: bool = True
    digests: bool = False
    to_the_end: bool = True
    aside: int = 0  # Kinesis records that a poison hook takes
    in_tables: float = 0.67  # of the batches that are handled; the others are in the ledger
    clocks: int = 0  # ms by which the clocks of writers differ at most
    stream: str = "orders"


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
        self.writer = Writer(sink, name, world.odds.stream, "produced", wait=True)
        self.unwritten: list[Row] = []
        self.skew = world.rng.randint(-world.odds.clocks, world.odds.clocks)


class World:
    """``consumer``: writes its ledger; without it `consumer` has the files."""

    def __init__(self, odds: Odds, consumer: Writer | None = None) -> None:
        self.odds, self.rng = odds, random.Random(odds.seed)
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
        self.consumer_writer = consumer or Writer(sink, "c-0", odds.stream, "handled", wait=True)
        self.aside: set[Place] = set()
        self.vague: list[LostPart] = []
        self.legible = self.rng.choice(("", "shard_id", "sequence_number", "shard_id, sequence_number"))
        self.position = dict.fromkeys(self.shards, 0)
        self.checkpoint = dict.fromkeys(self.shards, 0)

    def one_of(self, many: int) -> bool:
        return many > 0 and self.rng.randrange(many) == 0

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
        rng, odds = self.rng, self.odds
        ids = tuple(range(self.ids, self.ids + rng.randint(1, odds.largest)))
        self.ids += len(ids)
        at = self.now + producer.skew
        digest = rng.randbytes(8)
        shard_id = rng.choice([name for name, shard in self.shards.items() if shard.open])
        unwritten = producer.unwritten
        while self.one_of(odds.unanswered):
            if rng.random() < 0.5:
                self.store(shard_id, ids, digest, "unanswered")
            unwritten.append(
                Row("unanswered", shard_id, sequence_number="", user_records=len(ids), at=at, digest=digest)
            )
            if rng.random() < 0.2:
                unwritten.append(Row("left", "expired", sequence_number="", user_records=len(ids), at=at))
                self.refused["left"] += len(ids)
                return
        if self.one_of(odds.refused):
            unwritten.append(
                Row("refused", "AccessDeniedException", sequence_number="", user_records=len(ids), at=at)
            )
            self.refused["refused"] += len(ids)
            return
        if self.one_of(odds.misplaced):
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
            if record.role == "again" and self.odds.drops_misplaced:
                continue
            if self.one_of(self.odds.aside):
                self.aside.add((shard_id, record.number))
                self.consumer_writer.note(
                    [Row("aside", shard_id, sequence_number=record.number, user_records=0, at=1)]
                )
                continue
            batch += [
                (shard_id, record.number, sub)
                for sub in range(len(record.ids))
                if not self.one_of(self.odds.skip)
            ]
        if batch and self.one_of(self.odds.consumer_crash):
            batch = batch[: self.rng.randint(0, len(batch))]
            self.position[shard_id] = self.checkpoint[shard_id]
        else:
            self.checkpoint[shard_id] = self.position[shard_id]
        self.handle(batch)

    def handle(self, batch: list[Name]) -> None:
        self.handled.update(batch)
        vague = {name for name in batch if self.one_of(self.odds.vague)}
        for shard_id, number, _ in vague:
            legible = {"shard_id": shard_id, "sequence_number": number}
            legible = {key: text for key, text in legible.items() if key in self.legible}
            self.vague.append(LostPart("table", "a row", **legible))
        batch = [name for name in batch if name not in vague]
        if self.rng.random() < self.odds.in_tables:
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
        odds, rng = self.odds, self.rng
        for _ in range(odds.steps):
            self.now += rng.randint(0, 2000)
            producer = rng.choice(self.producers)
            for _ in range(rng.randint(0, 4)):
                self.put(producer)
            if rng.random() < 0.4:
                self.write(producer)
            if self.one_of(odds.producer_crash):
                self.crash(producer)
            if self.one_of(odds.foreign):
                shard_id = rng.choice([name for name, shard in self.shards.items() if shard.open])
                self.store(shard_id, tuple(range(-rng.randint(1, 5), 0)), rng.randbytes(8), "foreign")
            if self.one_of(odds.split):
                self.split()
            for shard_id in list(self.shards):
                if rng.random() < 0.3:
                    self.consume(shard_id, rng.randint(1, 6))
        for producer in self.producers:
            self.write(producer)
            producer.writer.close()
        if odds.to_the_end:
            for shard_id in self.shards:  # parents come before their children
                while self.position[shard_id] < len(self.shards[shard_id].records):
                    self.consume(shard_id, 50)
        return self

    # -- the audit ----------------------------------------------------------------------------

    def read(self) -> tuple[tuple[list[Row], LostParts], tuple[list[Row], LostParts]]:
        """Both sides' ledgers, without what was lost of them; but a writer of which nothing is left cannot be
        known."""
        produced, handled = dict[str, bytes](), dict[str, bytes]()
        for producer in self.producers + self.crashed:
            for number, (file, part) in enumerate(producer.files.items()):
                if not number or not self.one_of(self.odds.lost_segment):
                    left = [member for member in part if not self.one_of(self.odds.lost_block)]
                    produced[file] = b"".join(left)
        for number, (file, part) in enumerate(self.consumer.items()):
            if not number or not self.one_of(self.odds.lost_handled):
                handled[file] = b"".join(part)
        return read_ledgers(produced), read_ledgers(handled, "handled")

    def digests(self) -> dict[Place, bytes]:
        """As the stream would give them."""
        if not self.odds.digests:
            return {}
        return {
            (name, one.number): one.digest for name, shard in self.shards.items() for one in shard.records
        }


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


def read_ledgers(
    files: str | Mapping[str, bytes], side: InputSide = "produced"
) -> tuple[list[Row], LostParts]:
    """All rows of the ledgers in files, or under a path, and what is lost of those of this side."""
    read = account_of([files], side, ()) if isinstance(files, str) else account(side, files)
    rows = [
        row for _, member in read.read(ReadProgress()) if isinstance(member, Member) for row in member.rows
    ]
    for part in read.writers.lost(side):
        read.lost.add(part)
    return rows, read.lost


def table_of(rows: Iterable[Sequence[Any]]) -> bytes:
    """A table of handled user records: of each its shard id, sequence number and sub-sequence number."""
    shards, numbers, subs = zip(*rows, strict=True) if (rows := [*rows]) else ((), (), ())
    columns = {
        "shardId": pa.array(shards, pa.string()),
        "sequenceNumber": pa.array(numbers, pa.string()),
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


def index_of(rows: Iterable[Row]) -> Index:
    columns = Columns({})
    for row in rows:
        columns.add(row)
    return Index(columns)


class Outcome(NamedTuple):
    """An audit, and what it is made of. ``rows``: of producers; ``handled``: how often ledgers and tables
    name a user record; ``lost``: of consumers."""

    audit: Audit
    index: Index
    rows: list[Row]
    handled: Counter[Name]
    aside: set[Place]
    lost: list[LostPart]
    digests: dict[Place, bytes]
    finished: set[str]


def run_audit(world: World, *, until: int | None = None) -> Outcome:
    (rows, lost_of_producers), (notes, lost_of_consumers) = world.read()
    lost = [*lost_of_consumers, *world.vague]
    for part in world.vague:
        lost_of_consumers.add(part)
    index = index_of(rows)
    tally = Tally(index)
    notes += [
        Row("handled", shard_id, sequence_number=number, user_records=1, at=0, first=sub)
        for table in world.tables.values()
        for shard_id, number, sub in table
    ]
    for start in range(0, len(notes), 5000):
        tally.add_rows(notes[start : start + 5000])
    handled = Counter(
        (row.shard_id, row.sequence_number, row.first) for row in notes if row.kind == "handled"
    )
    begun = [world.shards[shard_id].parent for shard_id in tally.handled_shards]
    finished = {parent for parent in begun if parent is not None}
    audit = judge(
        index,
        tally,
        lost_of_producers=lost_of_producers,
        lost_of_consumers=lost_of_consumers,
        until=until,
        finished=finished,
        digests=world.digests(),
    )
    aside = {(row.shard_id, row.sequence_number) for row in notes if row.kind == "aside"}
    return Outcome(audit, index, rows, handled, aside, lost, world.digests(), finished)


def names_of_runs(runs: Iterable[Run]) -> set[Name]:
    return {
        (one.shard_id, one.sequence_number, sub) for one in runs for sub in range(one.first, one.last + 1)
    }


def plain_audit(outcome: Outcome, until: int | None = None) -> dict[str, set[Name]]:
    """The audit by plain sets: the delivered user records of each state."""
    last: dict[str, tuple[int, int]] = {}
    passed = [*outcome.handled, *((*place, MOST_USER_RECORDS) for place in outcome.aside)]
    for shard_id, number, sub in passed:
        last[shard_id] = max(last.get(shard_id, (-1, -1)), (int(number), sub))
    # What was handled and no ledger names may be an attempt without an answer, of the same bytes.
    attempts: dict[bytes, int] = {}
    for row in outcome.rows:
        if row.kind == "unanswered":
            attempts[row.digest] = max(row.user_records, attempts.get(row.digest, 0))
    unclaimed = {(one.shard_id, one.sequence_number): one.last for _, one in outcome.audit.unclaimed}
    known = {outcome.digests[place] for place in unclaimed if place in outcome.digests}
    lowest = min((last for place, last in unclaimed.items() if place not in outcome.digests), default=10**9)
    doubtful = {digest for digest, most in attempts.items() if digest in known or lowest < most}
    # And so may one that its producer sent again.
    places = {name[:2] for name in outcome.handled} | outcome.aside
    doubtful |= {
        row.digest
        for row in outcome.rows
        if row.kind == "again" and (row.shard_id, row.sequence_number) in places
    }
    states: dict[str, set[Name]] = {state: set() for state in STATES}
    for row in set(outcome.rows):
        if row.kind != "delivered":
            continue
        may_be_named = any(
            part.sequence_number == row.sequence_number
            or (part.sequence_number is None and part.shard_id in (None, row.shard_id))
            for part in outcome.lost
        )
        for sub in range(row.user_records):
            name = row.shard_id, row.sequence_number, sub
            if until is None:
                due = row.shard_id in outcome.finished or (int(row.sequence_number), sub) < last.get(
                    row.shard_id, (-1, -1)
                )
            else:
                due = row.at < until
            if outcome.handled[name]:
                states["handled"].add(name)
            elif name[:2] in outcome.aside:
                states["aside"].add(name)
            elif not due:
                states["too_early"].add(name)
            elif may_be_named or row.digest in doubtful:
                states["unknown"].add(name)
            else:
                states["missing"].add(name)
    return states
