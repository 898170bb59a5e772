"""Builds the optional extension kpl_codec._speedups in every install and wheel build, and the sdist.

Without a C compiler, or if it fails, the build prints one line and goes on: everything works without the
extension. KPL_CODEC_REQUIRE_SPEEDUPS=1, which wheels set, makes this an error. pyproject.toml loads this file
alone, so it imports nothing of the package.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension
from setuptools.command.build_ext import build_ext as _build_ext
from setuptools.command.sdist import sdist as _sdist
from setuptools.errors import BaseError, CCompilerError

NAME = "kpl_codec._speedups"


class build_ext(_build_ext):  # type: ignore[misc]  # setuptools has Cython's where there is Cython
    """`build_ext` that prints one line when it fails."""

    def build_extension(self, ext: Extension) -> None:
        if self.compiler.compiler_type == "unix":
            quiet = [] if "CFLAGS" in os.environ else ["-g0"]
            ext.extra_compile_args = ["-O3", *quiet, *ext.extra_compile_args]
        try:
            super().build_extension(ext)
        except (BaseError, CCompilerError) as error:
            if ext.name != NAME or os.environ.get("KPL_CODEC_REQUIRE_SPEEDUPS") == "1":
                raise
            ext.optional = True  # so that an editable install does not look for the extension either
            reason = str(error).strip().splitlines() or [type(error).__name__]
            sys.stderr.write(
                "kpl_codec: installed without the compiled extension: the same results, only slower. "
                f"With a C compiler, install again ({reason[-1]})\n"
            )


class sdist(_sdist):  # type: ignore[misc]
    """`sdist` that packs what git knows, tests and all, so that README's commands work as in a checkout, and
    nothing else: an ignored folder may hold a token. Without git, as in an unpacked sdist, it packs all."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        if os.path.exists(".git"):
            listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, check=True).stdout
            known = {os.fsdecode(name) for name in listed.split(b"\0")}
        else:
            known = {str(path) for path in Path().rglob("*") if "__pycache__" not in path.parts}
            known = {path for path in known if path.split(os.sep)[0] not in ("build", "dist", ".venv")}
        made = {path for path in files if ".egg-info" in path}
        super().make_release_tree(base_dir, sorted(made | set(filter(os.path.isfile, known))))
