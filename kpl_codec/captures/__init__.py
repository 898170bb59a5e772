"""Reads files of captured Kinesis records into Arrow batches. For what cannot be read there is a row with the
error.

    pieces = plan(["captures/"])                 # lists files, opens none
    for batch in read_piece(pieces[0]): ...      # in any process: batches of CAPTURE_SCHEMA

Specification: spec/07-spark.md, SPK-10 to SPK-16.
"""

from ..lazy import require_extras

with require_extras("kpl_codec.captures"):
    from .capture_rows import CAPTURE_SCHEMA
    from .files import FileRange, InputError, Location, plan, readable
    from .piece_reading import read_piece

__all__ = ["CAPTURE_SCHEMA", "FileRange", "InputError", "Location", "plan", "read_piece", "readable"]
