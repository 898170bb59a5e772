"""Builds the documentation's site: `python -m tests.site --output build/site`.

A home page with README's five doors, the guides, the spec, charts of the benchmarks, and pages made from
docstrings, `--help`, error classes and kinds of findings.
Exit status 1 if a link leads nowhere, or a page cannot be made. To look at it:
`python -m http.server -d build/site`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from . import benchmarks, pages

ROOT = Path(__file__).parents[2]
#: Pages that are written by hand, with what is beside them.
WRITTEN = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", "spec")


def navigation() -> list[object]:
    """What the site's menus show."""

    def title(path: Path) -> str:
        return path.read_text().partition("\n")[0].removeprefix("# ")

    chapters = sorted((ROOT / "spec").glob("[0-9]*.md"))
    # The guides in the order and under the headings of their list.
    listed = (ROOT / "spec/guides/README.md").read_text().split("\n## ")[1:]
    guides = {
        section.partition("\n")[0]: [
            ROOT / "spec/guides" / name for name in re.findall(r"\]\(([\w-]+\.md)\)", section)
        ]
        for section in listed
    }
    return [
        {"Start": "index.md"},
        {
            "Guides": [
                "spec/guides/README.md",
                *(
                    {heading: [{title(path): f"spec/guides/{path.name}"} for path in paths]}
                    for heading, paths in guides.items()
                ),
            ]
        },
        {
            "Reference": [
                *({name: f"api/{pages.file_of(module)}"} for module, name in pages.TITLES.items()),
                {"Commands": "commands.md"},
                {"Error codes": "errors.md"},
                {"Findings": "findings.md"},
            ]
        },
        {"Specification": ["spec/README.md", *({title(path): f"spec/{path.name}"} for path in chapters)]},
        {
            "Project": [
                {"Speed": "benchmarks.md"},
                {"Words": "spec/words.md"},
                {"Contributing": "CONTRIBUTING.md"},
                {"Security": "SECURITY.md"},
                {"Changes": "CHANGELOG.md"},
            ]
        },
    ]


def build(output: Path, scratch: Path) -> int:
    """The site in ``output``; the exit status of mkdocs."""
    documents = scratch / "documents"
    for name in WRITTEN:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (documents / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, documents / name)
    shutil.copy(Path(__file__).parent / "site.css", documents)
    shutil.rmtree(documents / "spec/api")  # its examples stand in the pages of the reference
    made = {
        "index.md": pages.home_page(),
        "benchmarks.md": benchmarks.benchmark_page(),
        "commands.md": pages.command_page(),
        "errors.md": pages.error_page(),
        "findings.md": pages.finding_page(),
        **{f"api/{file}": text for file, text in pages.api_pages()},
    }
    for name, text in made.items():
        (documents / name).parent.mkdir(exist_ok=True)
        (documents / name).write_text(text)
    for page in documents.rglob("*.md"):
        page.write_text(pages.plain_fences(page.read_text()))
    settings = {"docs_dir": str(documents), "site_dir": str(output), "nav": navigation()}
    (scratch / "mkdocs.yml").write_text(
        (Path(__file__).parent / "mkdocs.yml").read_text() + yaml.safe_dump(settings, sort_keys=False)
    )
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", str(scratch / "mkdocs.yml")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, env=environment, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="python -m tests.site", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "build/site", metavar="DIR")
    output = parser.parse_args().output.absolute()
    with tempfile.TemporaryDirectory(prefix="kpl-codec-site-") as name:
        return build(output, Path(name))


if __name__ == "__main__":
    sys.exit(main())
