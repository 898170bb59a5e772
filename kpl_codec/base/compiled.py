"""The only module that imports the compiled extension. ``speedups`` is the extension, or None if it is not
built or KPL_CODEC_PURE=1 in the environment switches it off. Results are the same with and without it."""

from __future__ import annotations

from typing import Any

speedups: Any
try:
    from .. import _speedups as speedups  # type: ignore[attr-defined, no-redef]
except ImportError:
    speedups = None


def md5(message: bytes | memoryview) -> bytes:
    """The MD5 digest, 16 bytes: a checksum and a hash, not for security (FIPS)."""
    return hashlib.md5(message, usedforsecurity=False).digest()


def prefer_compiled(name: str, python: Any) -> Any:
    """The extension's function or class ``name``; ``python`` without the extension."""
    return python if speedups is None else getattr(speedups, name)


if speedups is None:
    import hashlib
else:  # imported late: hashlib takes 2 ms of a cold start
    md5 = speedups.md5
