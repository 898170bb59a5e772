"""MD5: a checksum and a hash here, not security (FIPS)."""

from __future__ import annotations

from ..compiled import speedups


def md5(message: bytes | memoryview) -> bytes:
    """The digest: 16 bytes."""
    return hashlib.md5(message, usedforsecurity=False).digest()


if speedups is None:
    import hashlib
else:  # whose import alone takes 2 ms of a cold start
    md5 = speedups.md5
