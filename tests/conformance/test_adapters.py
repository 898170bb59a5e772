"""The adapters of spec/adapters/, each with the compiler or interpreter of its language if it is here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kpl_codec.conformance.grading import run, vectors
from kpl_codec.testing.local_kinesis import find_node, install

ADAPTERS = Path(__file__).parents[2] / "spec" / "adapters"

pytestmark = pytest.mark.slow

#: How to build in a copy of the folder, and how to start; LINES: without JSON.
BUILT = {
    "go": (["go", "build", "-o", "adapter", "."], ["./adapter"]),
    "ruby": (["ruby", "-c", "adapter.rb"], ["ruby", "adapter.rb"]),
    "rust": (["rustc", "--edition", "2021", "-O", "adapter.rs"], ["./adapter"]),
    "java": (["javac", "Adapter.java", "Decoder.java"], ["java", "Adapter"]),
}
LINES = {"rust", "java"}


@pytest.mark.requirement("CNF-6")
@pytest.mark.parametrize("language", BUILT)
def test_an_adapter_of_the_examples(language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The small decoders refuse groups and take some unusual keys; they lose and swap nothing."""
    build, start = BUILT[language]
    if shutil.which(build[0]) is None:
        pytest.skip(f"install {build[0]} to build and check the adapter in {language}")
    monkeypatch.chdir(shutil.copytree(ADAPTERS / language, tmp_path / language))
    subprocess.run(build, check=True, capture_output=True, timeout=240)
    decoding = [vector for vector in vectors() if vector["kind"] == "decode"]
    result = run(start, decoding, lines=language in LINES)
    assert set(result.counts) == {"pass", "refused", "accepted"}
    assert result.counts["pass"] > 240
    assert result.unsupported == 0


def test_npm_s_package() -> None:
    """As spec/09-conformance.md has it."""
    package = install("aws-kinesis-agg", "4.2.7")
    command = [find_node(), str(ADAPTERS / "node" / "adapter.js"), os.fspath(package)]
    decoding = [vector for vector in vectors() if vector["kind"] == "decode"]
    counts = run(command, decoding).counts
    assert counts == {"pass": 176, "refused": 7, "accepted": 99, "lost": 7, "wrong": 14}
