"""Reads files of captured Kinesis records into Arrow batches. For what cannot be read there is a row with the
error.

    pieces = plan(["captures/"])                 # lists files, opens none
    for batch in read_piece(pieces[0]): ...      # in any process: batches of CAPTURE_SCHEMA

The commands cat, inspect and keys are here, too, some of which need no pyarrow: so names are
imported on first use.

Specification: spec/07-spark.md, SPK-10 to SPK-16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.lazy import lazy_names

if TYPE_CHECKING:  # what `lazy_names` gives, for type checkers
    from .capture_rows import CAPTURE_SCHEMA as CAPTURE_SCHEMA
    from .files import FileRange as FileRange
    from .files import InputError as InputError
    from .files import Location as Location
    from .files import plan as plan
    from .files import readable as readable
    from .piece_reading import read_piece as read_piece

_HOMES = {"CAPTURE_SCHEMA": "capture_rows", "read_piece": "piece_reading"}
_HOMES |= dict.fromkeys(("FileRange", "InputError", "Location", "plan", "readable"), "files")
__all__ = ["CAPTURE_SCHEMA", "FileRange", "InputError", "Location", "plan", "read_piece", "readable"]
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
