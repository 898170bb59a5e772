"""Puts again the user records that the KCL dropped: first writes a plan, then puts them with a log
(spec/07-spark.md, 7.4).

out/repair/plan/         Parquet, with the user records; decision: put, already-delivered,
                         copy, not-read-yet, delivered-without-range, cannot
out/repair/log/          JSON Lines: one per user record put, or given up with its error
out/repair/record.json   the stream: its name, ARN, and when it was created
"""

from __future__ import annotations

import fcntl
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow.compute as pc

from ..captures import Location
from ..captures.results import check_plan, check_whole
from ..errors import EncodeError, HashKeyError, KplError
from ..format.hash_keys import explicit_hash_key_value
from ..format.records import Tag
from ..producer import DeliveryError, ProducerConfig
from ..rendering.labels import plural, utc
from ..shards.lineage import Lineage
from ..shards.stream_name import Stream, stream_members, stream_of, stream_of_pages
from . import repair_marks
from .repair_plan import LOST, plan_rows, streams_of, write_plan
from .validate_job import read_shard_map

if TYPE_CHECKING:
    from ..producer.delivery_future import DeliveryFuture
    from ..producer.threads import Producer

#: How many deliveries are between two writes of the log; as many more user records may be under way.
LOG_EVERY = 1000
#: A user record that is put again may wait long: nobody waits for it.
CONFIG = ProducerConfig(record_ttl_ms=300_000)
_CANNOT = "cannot repair from {path}: "


class RepairError(KplError, ValueError):
    """The results in ``path`` cannot be repaired. ``reason``: what was sent of a plan, and when (applied)."""

    code: str
    requirement = "SPK-30"
    requirements: ClassVar[dict[str, str]] = {"another-stream": "SPK-46"}
    path: str
    reason: str = ""
    texts: ClassVar[dict[str, str]] = {
        "no-results": (
            f"{_CANNOT}it lacks user records or shards; kpl-codec validate, or audit --stream, writes both"
        ),
        "several-streams": f"{_CANNOT}the results are of several streams; validate each by itself",
        "no-plan": f"{_CANNOT}there is no plan yet; run it without --apply first",
        "planned": f"{_CANNOT}there is a plan already, of which nothing was sent yet: --apply sends it",
        "applied": f"{_CANNOT}{{reason}}",
        "other-stream": f"{_CANNOT}its plan was applied to another stream",
        "another-stream": (
            f"{_CANNOT}its user records are of another stream: {{reason}} "
            "(--other-stream puts them there anyway)"
        ),
    }
    concerns = "Whoever runs the command. Nothing was written."
    todo = (
        "First `kpl-codec validate --stream NAME --output DIR`, then `kpl-codec repair DIR`, then "
        "`kpl-codec repair DIR --apply --stream NAME`."
    )


def check_results(output: Location, *, with_plan: bool, replan: bool = False) -> None:
    """Raises RepairError: no-results; no-plan if there must be a plan; planned or applied if there must be
    none. ``replan``: a plan of which nothing was sent may be there."""
    # The shard map is what validate writes last.
    if (output / "user-records").kind() is None or (output / "shards.json").kind() is None:
        raise RepairError(code="no-results", path=output.path)
    has_plan = (output / "repair/plan/_SUCCESS").kind() is not None
    if with_plan and not has_plan:
        raise RepairError(code="no-plan", path=output.path)
    if has_plan and not with_plan:
        summary = _summary_of_log(output)
        if summary or not replan:
            raise RepairError(code="applied" if summary else "planned", path=output.path, reason=summary)


def _summary_of_log(output: Location) -> str:
    """A sentence on how much of the plan was put, where and when, and what to do next; "" if nothing was
    put."""
    put_places = repair_marks.RecordPlaces()
    log = output / "repair/log"
    put = sum(put_places.add(old) for old, _ in repair_marks.read_copies(log))
    if not put:
        return ""
    rows = (output / "repair/plan").rows(["decision"], pc.field("decision") == "put")
    to_put = sum(batch.num_rows for batch in rows)
    last = max(file.info().mtime for file in log.files() if file.name.endswith(".jsonl"))
    stream = _target_stream(output / "repair/record.json")
    name = "the stream" if stream is None else stream.name
    text = f"its plan was applied: {put:,} of {plural(to_put, 'user record')} sent to {name},"
    text += f" the last at {utc(last):%Y-%m-%d %H:%M} UTC.\n"
    if put < to_put:
        return text + "Run it with --apply for the rest."
    return text + "To see what is still lost, validate the stream anew, into another folder."


def check_stream(output: Location, stream: str, lineage: Lineage) -> None:
    """Raises RepairError (another-stream) unless the results are of ``stream`` by the name in them, and by
    their shards, one of which must be in ``lineage``, the shards of the stream."""
    # SPK-46: "User records MUST NOT be put to another stream than the results are of, by its name or its
    # shards, unless that is asked for."
    name = stream_of(stream).name
    named = {stream_of(other).name for other in streams_of(output, LOST)}
    shards = read_shard_map((output / "shards.json").path)
    same_stream = any(
        (other := lineage.get(shard_id)) is not None
        and other.hash_key_range == shard.hash_key_range
        and shard.starting_sequence_number in (None, other.starting_sequence_number)
        for shard_id, shard in shards.items()
    )
    source, target = shards.stream, lineage.stream
    if source is not None and target is not None:
        same_stream = same_stream and not (source.is_another(target) or source.is_another_life(target))
    if named - {name} or not same_stream:
        others = ", ".join(sorted(named - {name}))
        reason = f"they are of {others}, not of {name}" if others else f"{name} has other shards"
        raise RepairError(code="another-stream", path=output.path, reason=reason)


def plan_repair(
    output: str | Location, *, with_unread: bool = False, without_range: Iterable[str] = ()
) -> dict[str, int]:
    """Write the plan; returns the number of user records by decision. ``with_unread``: also of shards that an
    audit's consumer never read. ``without_range``: ids of shards whose range the KCL did not know, so that it
    delivered their user records. Either replaces a plan of which nothing was sent. Raises RepairError
    (no-results, planned, applied, several-streams), InputError."""
    folder, without_range = Location(output), frozenset(without_range)
    check_results(folder, with_plan=False, replan=with_unread or bool(without_range))
    check_whole(folder, "findings", "user-records")
    stream = read_shard_map((folder / "shards.json").path).stream
    # If records name several streams, a map without a stream gives no verdicts.
    names = streams_of(folder, LOST if stream is not None else None)
    if len(names) > 1 or (stream is not None and not all(map(stream.has, names))):
        raise RepairError(code="several-streams", path=folder.path)
    return write_plan(folder, with_unread=with_unread, without_range=without_range)


def apply_repair(
    output: str | Location,
    client_settings: Mapping[str, Any],
    stream: str,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, int]:
    """Put the user records of the plan that no earlier run has put. Returns their number by outcome: put (by
    this run), put-before, failed, already-delivered, copy, cannot, not-sent (once ``stopped()`` is true).

    ``client_settings``: arguments of `kpl_codec.aws.kinesis_client`. ``stream``: a name or an ARN. Two runs
    at once take turns in a local folder; elsewhere only one may run. Raises RepairError (no-plan,
    other-stream), StreamUnavailable.
    """
    from ..aws.client import kinesis_client
    from ..aws.stream_reading import fetch_lineage
    from ..producer.threads import Producer

    folder = Location(output)
    check_results(folder, with_plan=True)
    # ACC-4, as of the results
    check_plan(folder / "repair/plan")
    # SPK-30: "Nothing MUST be put before a plan was written that names every user record concerned and what
    # becomes of it."
    files = [file for file in (folder / "repair/plan").files() if file.name.endswith(".parquet")]
    (folder / "repair/log").make_folder()
    client = kinesis_client(**client_settings)
    record, put_to = folder / "repair/record.json", fetch_lineage(client, stream).stream
    assert put_to is not None
    if record.kind() is not None:
        before = _target_stream(record)
        if before is None or before.is_another(put_to) or before.is_another_life(put_to):
            raise RepairError(code="other-stream", path=folder.path)
    record.write(json.dumps(stream_members(put_to)).encode())
    rows = (row for file in files for row in plan_rows(file))
    with ExitStack() as stack:
        if folder.is_local:  # the lock ends with the process that holds it
            lock = stack.enter_context(open((folder / "repair/log/lock").path, "ab"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        producer = stack.enter_context(Producer(stream, config=CONFIG, client=client))
        return dict(put_rows(rows, repair_marks.RepairLog(folder / "repair/log"), producer, stopped))


def _target_stream(record: Location) -> Stream | None:
    """The stream that a plan was applied to; None where that cannot be read."""
    try:
        return stream_of_pages([json.loads(record.read())])
    except ValueError:
        return None


def put_rows(
    rows: Iterable[dict[str, Any]],
    log: repair_marks.RepairLog,
    producer: Producer,
    stopped: Callable[[], bool] = lambda: False,
) -> Counter[str]:
    """Put the rows of a plan (see `plan_rows`) that the log does not have; returns what `apply_repair` does.
    Raises InputError for a plan or log that cannot be read."""
    # SPK-32: "What an earlier run has put MUST NOT be put again."
    put_before = log.put_places()
    counts: Counter[str] = Counter()
    pending: deque[tuple[tuple[Any, ...], DeliveryFuture]] = deque()

    def log_failure(old: tuple[Any, ...], error: KplError, *, stored: bool) -> None:
        # SPK-33: "A user record that cannot be put MUST be named with the reason."
        log.add({"old": old, "outcome": "failed", "error": str(error), "stored": stored})
        counts["failed"] += 1

    def log_deliveries(keep: int) -> None:
        while len(pending) > keep:
            old, future = pending[0]  # kept until its line is in the log, even after an interrupt
            try:
                delivery = future.result()
            except DeliveryError as error:
                log_failure(old, error, stored=error.may_be_stored)
            else:
                new = delivery.shard_id, delivery.sequence_number, delivery.sub_sequence_number
                log.add({"old": old, "outcome": "put", "new": new})
                counts["put"] += 1
            pending.popleft()
        log.write()

    try:
        for number, row in enumerate(rows, 1):
            old = row["shardId"], row["sequenceNumber"], row["subSequenceNumber"]
            if row["decision"] != "put":
                counts[row["decision"]] += 1
            elif old in put_before:
                counts["put-before"] += 1
            elif stopped():
                counts["not-sent"] += 1
            else:
                # A copy without the tag, which names the original, would be planned again.
                tags = [Tag(tag["key"], tag["value"]) for tag in row["tags"] or ()]
                tags.append(Tag(repair_marks.TAG, repair_marks.tag_value(old)))
                key = row["explicitHashKey"]
                try:
                    # "007" may be read, but is written as "7".
                    key = key and explicit_hash_key_value(key)
                    future = producer.put(row["partitionKey"], row["data"], key, tuple(tags))
                    pending.append((old, future))
                except (EncodeError, HashKeyError) as error:  # perhaps it is too large with its tag
                    log_failure(old, error, stored=False)
            if number % LOG_EVERY == 0:
                log_deliveries(keep=LOG_EVERY)
    finally:  # also the user records that were put before a row that cannot be read
        producer.flush()
        log_deliveries(keep=0)
    return counts
