"""Writes result files completely or not at all, in a local folder or an object store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from pyarrow import fs

from ..captures import open_path


@contextmanager
def whole_file(path: str) -> Iterator[Any]:
    """A file that gets its name when it is complete. Several attempts may write it in parallel."""
    system, inner = open_path(path)
    folder, _, name = inner.rpartition("/")
    hidden = f"{folder}/.{name}.{uuid4().hex}"
    with system.open_output_stream(hidden) as out:
        yield out
    system.move(hidden, inner)


def sweep(system: Any, folder: str) -> None:
    """Delete the incomplete files of attempts that were killed."""
    for file in system.get_file_info(fs.FileSelector(folder)):
        if re.match(r"\.part-.*\.[0-9a-f]{32}$", file.base_name):
            system.delete_file(file.path)


def write_text(system: Any, path: str, text: str) -> None:
    """Write a file so that readers see the old one or the new one, never a part of one."""
    with system.open_output_stream(path + ".new") as out:
        out.write(text.encode())
    system.move(path + ".new", path)


def move_folder(system: Any, source: str, target: str) -> None:
    """Move the files in ``source`` to ``target``: at once, or one by one in an object store, which has no
    folders to move."""
    if isinstance(system, fs.LocalFileSystem):
        system.move(source, target)
        return
    for file in system.get_file_info(fs.FileSelector(source)):
        system.move(file.path, f"{target}/{file.base_name}")
