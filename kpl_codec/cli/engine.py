"""Runs a command's tasks in processes of this machine, or on Spark."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..pictures.terminal import note
from .options import add

if TYPE_CHECKING:
    from ..captures import Location, Piece

#: `auto` takes Spark for inputs above this size, in bytes. tests/benchmarks/README.md says how it was found.
LOCAL_BYTES = 4 * 1024**3


def size(text: str) -> int:
    """The type of --memory: bytes, as 800m or 2g."""
    found = re.fullmatch(r"([1-9][0-9]*)([kmgt])b?", text.lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 800m or 2g")
    return int(found[1]) << {"k": 10, "m": 20, "g": 30, "t": 40}[found[2]]


def add_engine(parser: argparse.ArgumentParser) -> None:
    """--engine, --cores, --memory."""
    group = parser.add_argument_group("this machine, or Spark")
    text = (
        "local: processes of this machine, without Java; auto (default): local, but Spark for --follow, for "
        f"captures of more than {LOCAL_BYTES >> 30} GiB, and under spark-submit"
    )
    add(group, "--engine", text, choices=["auto", "local", "spark"], default="auto")
    add(group, "--cores N", "tasks that run at once (default: all cores)")
    text = "memory of all tasks (default: three quarters of the machine's; of a local Spark 2g)"
    add(group, "--memory SIZE", text, type=size)


def log_in(output: Location) -> str | None:
    """The file for Spark's output; None if the output folder is not local."""
    from ..validation.results import LOG

    return (output / LOG).path if output.is_local else None


def choose_engine(args: argparse.Namespace, app_name: str, pieces: Sequence[Piece]) -> Any:
    """The engine that ``args`` ask for; ``pieces`` are those of the input files, none for a stream."""
    from ..validation import LocalEngine

    if is_local_job(args, pieces):
        return LocalEngine(cores=args.cores, memory_bytes=args.memory)
    return spark_engine(args, app_name)


def spark_engine(args: argparse.Namespace, app_name: str) -> Any:
    """Runs tasks on a running Spark, or starts a local one."""
    from ..captures import Location
    from ..spark.session import local_session
    from ..spark.validation.engine import SparkEngine

    if not args.quiet:
        note("starting Spark ...")
    memory = "2g" if args.memory is None else f"{args.memory >> 10}k"
    log_file = log_in(Location(args.output))
    session = local_session(
        app_name, cores=args.cores or "*", memory=memory, quick_start=True, log_file=log_file
    )
    return SparkEngine(session)


def is_local_job(args: argparse.Namespace, pieces: Sequence[Piece]) -> bool:
    """Whether the local engine runs the tasks."""
    if args.engine != "auto":
        return bool(args.engine == "local")
    # SPK-40: "The engine auto MUST be local for files of up to 4 GiB on one machine, for a stream, and where
    # pyspark is missing, and Spark for more, and under spark-submit."
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return False
    total = sum(piece.weight for piece in pieces)
    return total <= LOCAL_BYTES or find_spec("pyspark") is None
