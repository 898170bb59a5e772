"""The package's own build: an install goes on where nothing can compile, unless the twin is a must."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[1] / "kpl_codec" / "_build.py"
#: What `pip install -e` does with the extension: build it, then copy it to the source tree.
INSTALL = f"""
import runpy
from setuptools import Distribution, Extension
build = runpy.run_path({str(BUILD)!r})
extension = Extension(build["NAME"], ["kpl_codec/_speedups.c"])
command = build["build_ext"](Distribution({{"ext_modules": [extension], "packages": ["kpl_codec"]}}))
command.inplace = True
command.ensure_finalized()
command.run()
"""


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
@pytest.mark.parametrize("required", [False, True])
def test_without_a_compiler_one_line_says_so(tmp_path: Path, compiler: str, required: bool) -> None:
    package = tmp_path / "kpl_codec"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_speedups.c").write_text("int kpl;\n")
    environment = {**os.environ, "CC": compiler, "KPL_CODEC_REQUIRE_SPEEDUPS": "1" if required else "0"}
    ran = subprocess.run(
        [sys.executable, "-c", INSTALL], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    if required:
        assert "CompileError" in ran.stderr
    else:
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr.count("installed without the compiled extension") == 1
