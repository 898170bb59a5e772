"""``speedups``: the compiled extension, or None where it is not built.

KPL_CODEC_PURE=1 in the environment switches it off. Results are the same with and without it.
"""

from __future__ import annotations

from typing import Any

speedups: Any
try:
    from . import _speedups as speedups  # type: ignore[attr-defined, no-redef]
except ImportError:
    speedups = None
