"""The code blocks of a Markdown page, run one after the other as a reader would.

    ```python                  runs; what it prints is its output
    ```python file=x.py        becomes a file
    ```sh                      runs in bash; must end with 0
    ```sh exit=1               must end with 1
    ```sh skip=REASON          is not run; REASON is one of `REASONS`
    ```text                    is the output of the block before; ... stands for anything
    ```json file=x.json        becomes a file
    ```yaml, ```json           is read; actions of policies and settings of event source mappings must exist

All Python blocks of a page share one namespace and one working directory with the others.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import botocore.session
import yaml

_BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


#: Why a block is not run here: the option ``skip`` names one of them.
REASONS = {
    "installs-packages": "pip would change the environment that the tests run in",
    "needs-a-cluster": "EMR, Kubernetes or a Spark cluster",
    "needs-an-account": "a service of AWS that no local server stands for",
    "needs-the-kcl": "the KCL's daemon, which is Java",
    "builds-an-image": "Docker",
    "waits-for-findings": "it runs until somebody ends it, and posts to an address on the internet",
    "reads-types": "tests/typing has mypy and pyright read these files",
}


class Block(NamedTuple):
    """``language`` and ``options`` from the line of the fence, ``line`` is its number in the page."""

    language: str
    options: dict[str, str]
    text: str
    line: int


def blocks(page: str) -> Iterator[Block]:
    for found in _BLOCK.finditer(page):
        language, *options = found["info"].split()
        named = dict(option.split("=", 1) for option in options)
        yield Block(language, named, found["text"], page.count("\n", 0, found.start()) + 1)


def outside(page: str) -> str:
    """The page without its blocks; each line keeps its number."""
    return _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), page)


class Run:
    """One page in one folder. State: the namespace, and what the last block printed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__guide__"}
        self.printed = ""

    def page(self, path: Path) -> None:
        """All blocks of a page, from top to bottom. An error says the line of its block."""
        try:
            for block in blocks(path.read_text()):
                try:
                    self.block(block)
                except BaseException as error:
                    raise AssertionError(f"{path.name}:{block.line} ({block.language}): {error!r}") from error
        finally:  # another page may have an `app.py`, too
            for name, module in list(sys.modules.items()):
                if Path(getattr(module, "__file__", None) or "/").is_relative_to(self.folder):
                    del sys.modules[name]

    def block(self, block: Block) -> None:
        """Raises AssertionError, or what the block raises."""
        if "skip" in block.options:
            assert block.options["skip"] in REASONS, block.options["skip"]
            return
        if "file" in block.options:
            (self.folder / block.options["file"]).write_text(block.text)
            if block.language != "yaml":
                return
        getattr(self, f"_{block.language}")(block)

    def _python(self, block: Block) -> None:
        out = io.StringIO()
        code = compile("\n" * block.line + block.text, "guide", "exec", dont_inherit=True)
        before = os.getcwd()
        os.chdir(self.folder)  # as a reader would
        sys.path.insert(0, str(self.folder))
        try:
            with contextlib.redirect_stdout(out), warnings.catch_warnings():
                warnings.simplefilter("default", UserWarning)  # as for a reader: what it tells is on the page
                exec(code, self.names)
        finally:
            os.chdir(before)
            sys.path.remove(str(self.folder))
        self.printed = out.getvalue()

    def _sh(self, block: Block) -> None:
        command = ["bash", "-euo", "pipefail", "-c", block.text]
        run = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=240)
        assert run.returncode == int(block.options.get("exit", 0)), run.stdout + run.stderr
        self.printed = run.stdout

    def _text(self, block: Block) -> None:
        same = doctest.OutputChecker().check_output(block.text, self.printed, doctest.ELLIPSIS)
        assert same, f"printed:\n{self.printed}\nthe page says:\n{block.text}"

    def _json(self, block: Block) -> None:
        check(json.loads(block.text))

    def _yaml(self, block: Block) -> None:
        check(yaml.safe_load(block.text))


def check(value: Any) -> None:
    """IAM actions must be operations of their service, properties of a mapping its parameters."""
    session = botocore.session.get_session()
    if isinstance(value, dict):
        for action in value.get("Action", []):
            service, name = action.split(":")
            assert name in session.get_service_model(service).operation_names, action
        if value.get("Type") in ("Kinesis", "AWS::Lambda::EventSourceMapping"):  # of SAM, CloudFormation
            operation = session.get_service_model("lambda").operation_model("CreateEventSourceMapping")
            known = {*operation.input_shape.members, *(["Stream"] if value["Type"] == "Kinesis" else [])}
            assert set(value["Properties"]) <= known, set(value["Properties"]) - known
        for inner in value.values():
            check(inner)
    elif isinstance(value, list):
        for inner in value:
            check(inner)
