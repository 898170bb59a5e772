"""Runs the vectors of spec/vectors against any program that speaks the JSON-lines protocol.

The protocol is spec/09-conformance.md. `Program` starts a command and asks it questions, `question`
turns a vector into one, `judge` compares the answer, `run` does it all. Programs for published
implementations are in `ADAPTERS`.
"""

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
