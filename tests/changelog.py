"""The notes of the release on GitHub: `python tests/changelog.py 1.2.3`."""

from __future__ import annotations

import re
import sys
from pathlib import Path


def notes(changelog: str, version: str) -> str:
    """What stands under the heading of ``version``; of a release candidate, what is not released yet. Raises
    LookupError for a version without a heading."""
    name = version if re.fullmatch(r"[\d.]+", version) else "Unreleased"
    _, found, rest = changelog.partition(f"\n## [{name}]")
    if not found:
        raise LookupError(f"CHANGELOG.md has no heading of {version}")
    lines = rest.partition("\n")[2]
    return re.split(r"^## |^\[[^\]]+\]: https", lines, maxsplit=1, flags=re.MULTILINE)[0].strip() + "\n"


if __name__ == "__main__":
    print(notes(Path(__file__).parents[1].joinpath("CHANGELOG.md").read_text(), sys.argv[1]), end="")
