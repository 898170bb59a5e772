"""Builds kpl_codec._speedups, which is optional, as a part of every install and wheel.

Where there is no C compiler, or it fails, one line says so and the install goes on: everything works
without the extension (KPL_CODEC_REQUIRE_SPEEDUPS=1 makes that an error, for wheels). Named by
pyproject.toml; loaded as a file of its own, so it imports nothing of the package.

    python kpl_codec/_build.py [FLAG ...]   builds it into the tree, with extra compiler flags
"""

from __future__ import annotations

import os
import sys

from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext as _build_ext
from setuptools.errors import BaseError, CCompilerError

NAME = "kpl_codec._speedups"


class build_ext(_build_ext):  # type: ignore[misc]  # setuptools has Cython's where there is Cython
    """`build_ext` that may fail with one clear line."""

    def build_extension(self, ext: Extension) -> None:
        if self.compiler.compiler_type == "unix":
            ext.extra_compile_args = ["-O3", "-g0", *ext.extra_compile_args]
        try:
            super().build_extension(ext)
        except (BaseError, CCompilerError) as error:
            if ext.name != NAME or os.environ.get("KPL_CODEC_REQUIRE_SPEEDUPS") == "1":
                raise
            ext.optional = True  # an editable install then does not look for it either
            reason = str(error).strip().splitlines() or [type(error).__name__]
            sys.stderr.write(f"kpl_codec: built without _speedups: the same, slower ({reason[-1]})\n")


def main(flags: list[str]) -> None:
    """Build into the tree this file stands in."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.chdir(root)
    extension = Extension(NAME, ["kpl_codec/_speedups.pyx"], extra_compile_args=flags, extra_link_args=flags)
    distribution = Distribution({"name": "kpl_codec", "ext_modules": [extension], "packages": ["kpl_codec"]})
    command = build_ext(distribution)
    command.inplace = True
    command.force = True
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    main(sys.argv[1:])
