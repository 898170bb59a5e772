"""What MkDocs has from this repository: `mkdocs.yml` names this file, and `make site` runs MkDocs.

A home page with README's five doors, the guides, the spec, charts of the benchmarks, and pages made from
docstrings, the commands' parsers, error classes and kinds of findings. MkDocs fails if a link leads nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import kpl_codec
from tests.site import benchmarks, pages

ROOT = Path(__file__).parents[2]
#: Pages that are written by hand, with what is beside them; the examples of `spec/api` stand in made pages.
WRITTEN = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", "spec")
#: What stands for one edge of a node in lunr's tree of words.
_LUNR = "e=e+s+o.id"
#: An option of a command, or the command, and what it becomes.
_OPTION = re.compile(r"(?<![\w-])(?:--[a-z][\w-]*|kpl-codec)(?![\w-])")
_UNBROKEN = r'<span class="unbroken">\g<0></span>'


def on_config(config: MkDocsConfig) -> None:
    config.nav = navigation()
    config.extra["version"] = kpl_codec.__version__


def on_files(files: Files, config: MkDocsConfig) -> None:
    for name in WRITTEN:
        for path in sorted((ROOT / name).rglob("*")) or [ROOT / name]:
            place = path.relative_to(ROOT).as_posix()
            if path.is_file() and not place.startswith("spec/api/") and "__pycache__" not in place:
                files.append(File.generated(config, place, abs_src_path=str(path)))
    for name, text in made():
        files.append(File.generated(config, name, content=text))


def on_page_markdown(markdown: str, **_: object) -> str:
    return pages.plain_fences(markdown)


def on_page_content(html: str, **_: object) -> str:
    """Functions of asyncio are shown by the name that they have in their public module. No option of a
    command is broken behind its hyphens."""
    html = re.sub('(<span class="nf">)async_(?=fetch|read)', r"\1", html)
    return re.sub(">[^<]+<", lambda text: _OPTION.sub(_UNBROKEN, text[0]), html)


def on_post_build(config: MkDocsConfig) -> None:
    """Mends the theme's search. lunr 2.3.9 keeps equal parts of its tree of words once, and tells them apart
    by a text of characters and numbers with nothing between: "1" to node 45 and "14" to node 5 are one. Then
    each search for the beginning of such a word fails (https://github.com/olivernn/lunr.js/issues/503)."""
    (worker,) = Path(config.site_dir).glob("assets/javascripts/workers/search.*.js")
    script = worker.read_text()
    assert script.count(_LUNR) == 1, "is the mistake mended in this version?"
    worker.write_text(script.replace(_LUNR, _LUNR + '+";"'))


def made() -> Iterator[tuple[str, str]]:
    """(file, Markdown) of each page that is made."""
    yield "index.md", pages.home_page()
    yield "benchmarks.md", benchmarks.benchmark_page()
    yield "commands.md", pages.command_page()
    yield "errors.md", pages.error_page()
    yield "findings.md", pages.finding_page()
    for file, text in pages.api_pages():
        yield f"api/{file}", text


def navigation() -> list[object]:
    """What the site's menus show."""

    def entry(path: Path) -> dict[str, str]:
        title = path.read_text().partition("\n")[0].removeprefix("# ")
        return {title: path.relative_to(ROOT).as_posix()}

    # The guides in the order and under the headings of their list.
    folder = ROOT / "spec/guides"
    listed = [section.partition("\n") for section in (folder / "README.md").read_text().split("\n## ")[1:]]
    guides = [
        {heading: [entry(folder / name) for name in re.findall(r"\]\(([\w-]+\.md)\)", text)]}
        for heading, _, text in listed
    ]
    modules = [{module.lstrip(".") or "kpl_codec": f"api/{pages.file_of(module)}"} for module in pages.TITLES]
    made = [{"Commands": "commands.md"}, {"Error codes": "errors.md"}, {"Findings": "findings.md"}]
    project = {"Speed": "benchmarks.md", "Words": "spec/words.md", "Contributing": "CONTRIBUTING.md"}
    project |= {"Security": "SECURITY.md", "Changes": "CHANGELOG.md"}
    return [
        {"Start": "index.md"},
        {"Guides": ["spec/guides/README.md", *guides]},
        {"Reference": [*made, {"Python": modules}]},
        {"Specification": ["spec/README.md", *map(entry, sorted((ROOT / "spec").glob("[0-9]*.md")))]},
        {"Project": [{title: file} for title, file in project.items()]},
    ]
