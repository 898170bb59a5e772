"""The compiled twin of the hot paths, ``speedups``, or None where it is not built.

It is not used where KPL_CODEC_PURE=1 stands in the environment. Results are the same either way.
"""

from __future__ import annotations

from typing import Any

speedups: Any
try:
    from . import _speedups as speedups  # type: ignore[attr-defined, no-redef]
except ImportError:
    speedups = None
