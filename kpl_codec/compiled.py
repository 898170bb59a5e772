"""``speedups``: the compiled extension, or None where it is not built. ``md5``.

KPL_CODEC_PURE=1 in the environment switches it off. Results are the same with and without it.
"""

from __future__ import annotations

from typing import Any

speedups: Any
try:
    from . import _speedups as speedups  # type: ignore[attr-defined, no-redef]
except ImportError:
    speedups = None


def md5(message: bytes | memoryview) -> bytes:
    """The digest: 16 bytes. A checksum and a hash here, not security (FIPS)."""
    return hashlib.md5(message, usedforsecurity=False).digest()


#: What is behind a DeaggregatedRecord, by the names of its fields; None: slots.
row_storage = None if speedups is None else speedups.row_storage

if speedups is None:
    import hashlib
else:  # whose import alone takes 2 ms of a cold start
    md5 = speedups.md5
