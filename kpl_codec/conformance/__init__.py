"""Runs the vectors of spec/vectors against any program that speaks the protocol of spec/09-conformance.md."""

from __future__ import annotations

from .judging import GRADES, Judgement, judge, question
from .program import Program, ProgramError
from .running import ADAPTERS, Result, adapter_command, run, table, vector_files

__all__ = [
    "ADAPTERS",
    "GRADES",
    "Judgement",
    "Program",
    "ProgramError",
    "Result",
    "adapter_command",
    "judge",
    "question",
    "run",
    "table",
    "vector_files",
]
