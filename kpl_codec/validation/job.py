"""The validate job: files or shards -> tasks -> an engine that runs them -> results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ..captures import Location, plan
from ..findings import Finding
from ..shards.shard_map import ShardMap
from .repaired import read_copied
from .results import Validation, finish, prepare_output
from .stream import only_parts, shard_parts
from .task import Job, discard, gather, make_folders, pack, work_folder

if TYPE_CHECKING:
    from ..aws.only import Place
    from ..aws.reading import Start


class Engine(Protocol):
    """Runs the tasks of a job."""

    @property
    def cores(self) -> int:
        """How many tasks run in parallel."""

    def run(self, job: Job) -> None:
        """Runs `Job.run` for every task."""

    def progress(self) -> tuple[int, int]:
        """The number of finished tasks and of all known tasks."""


def validate(
    inputs: Sequence[str],
    shard_map: ShardMap,
    output: str | Location,
    *,
    engine: Engine,
    task_bytes: int | None = None,
    user_records: bool = True,
) -> Validation:
    """Check everything under ``inputs`` and write the results under ``output``, which must be empty; without
    ``user_records`` only the findings and the report, which takes half of the time.

    Raises InputError and OutputError before it starts, and an engine's error if that fails; then
    ``output`` is as empty as before. Errors inside the input are never raised; they become findings.
    """
    pieces = plan(inputs)
    # Enough tasks to keep all cores busy until the end, each of 2 to 64 MiB.
    each = sum(piece.weight for piece in pieces) // (4 * engine.cores)
    tasks = pack(pieces, task_bytes=task_bytes or max(2 << 20, min(64 << 20, each)))
    return _run(Job(tasks, shard_map, Location(output), user_records=user_records), engine, inputs=inputs)


def validate_stream(
    connection: Mapping[str, Any],
    stream: str,
    shard_map: ShardMap,
    output: str | Location,
    *,
    engine: Engine,
    start: Start = "TRIM_HORIZON",
    only: Sequence[Place] | None = None,
    user_records: bool = True,
) -> Validation:
    """Check ``stream`` (a name or an ARN) from ``start`` to now: every shard that it has, a task each.

    ``connection``: arguments of `kpl_codec.aws.client.kinesis_client`. ``user_records``: as in `validate`.
    ``only``: just the records at these places (see `kpl_codec.aws.only`); what is gone is a finding. Where
    the records hold copies that repair put, the stream may be read twice. Raises as `validate` does, and
    StreamUnavailable.
    """
    # SPK-17: also shards that the map does not have. Their records are findings.
    parts = shard_parts(connection, stream, start)
    if only is not None:
        parts = only_parts(parts[0], only)
    source = f"Kinesis stream {stream}" + ("" if only is None else f", {len(only)} records of it")
    job = Job([[part] for part in parts], shard_map, Location(output), user_records=user_records)

    def of_channels(aggregated_records: int) -> Iterable[Finding]:
        from ..aws.channels import channel_findings, subscribers_of
        from ..aws.client import kinesis_client

        client = kinesis_client(**connection)
        return (
            channel_findings(subscribers_of(client, stream), aggregated_records) if aggregated_records else ()
        )

    return _run(job, engine, of_channels, inputs=[stream], source=source)


def _run(
    job: Job,
    engine: Engine,
    more: Callable[[int], Iterable[Finding]] = lambda aggregated_records: (),
    **about: Any,
) -> Validation:
    output = job.output
    prepare_output(output)
    # SPK-43: "Both engines MUST give the same user records, findings, counts, summary and report."
    work = work_folder(output)
    try:
        engine.run(job)
        repaired = read_copied(work / "copies")
        # A copy may have come after its original, and that is dropped: say that it is repaired.
        if repaired and any(kcl == "dropped" for *_, kcl in gather(work).groups):
            discard(output)
            make_folders(work)
            engine.run(replace(job, repaired=repaired))
    except BaseException:
        discard(output)
        raise
    return finish(output, job.shard_map, more, **about)
