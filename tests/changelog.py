"""CHANGELOG.md: whether it keeps its form, and what it says of a version.

python tests/changelog.py 1.2.3     prints the notes of the release on GitHub
"""

from __future__ import annotations

import re
import sys
from datetime import date
from pathlib import Path

#: keepachangelog.com
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def wrong_with(changelog: str, version: str) -> list[str]:
    """What in a changelog does not keep to the form, or does not fit the version in pyproject.toml."""
    wrong = []
    heads = re.findall(r"^## (.*)$", changelog, re.MULTILINE)
    links = set(re.findall(r"^\[(.+)\]: https://", changelog, re.MULTILINE))
    released = []
    for head in heads:
        match = re.fullmatch(r"\[(Unreleased|\d+\.\d+\.\d+)\](?: - (\d{4}-\d\d-\d\d))?", head)
        if match is None or (match[1] == "Unreleased") == bool(match[2]) or match[1] not in links:
            wrong.append(f"heading: {head}")
        elif match[2]:
            released.append((date.fromisoformat(match[2]), [int(part) for part in match[1].split(".")]))
    if released != sorted(released, reverse=True):
        wrong.append("order")
    if heads[:1] != ["[Unreleased]"] and not heads[0].startswith(f"[{version}]"):
        wrong.append(f"version {version}")
    if re.fullmatch(r"[\d.]+", version) and not any(head.startswith(f"[{version}]") for head in heads):
        wrong.append(f"nothing of {version}")
    return wrong + [kind for kind in re.findall(r"^### (.*)$", changelog, re.MULTILINE) if kind not in KINDS]


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
