"""What MkDocs has from this repository (`make site`): README as the home page, guides and specification as
they are, and made pages of the public modules, of errors and of findings."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import kpl_codec
from kpl_codec.cli.explain import error_classes
from kpl_codec.findings import KINDS
from tests.test_surface import PUBLIC, names_of

ROOT = Path(__file__).parents[2]
SPEED = "tests/benchmarks/README.md"
WRITTEN = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", SPEED, "spec")
#: Types of the ``**options`` that functions share.
OPTIONS = ("producer.config.ProducerOptions", "arrow.Options")
OPTIONS += ("aws_lambda.events.HandlerOptions", "aws_lambda.events.OpenOptions")
#: What stands for one edge of a node in lunr's tree of words.
_LUNR = "e=e+s+o.id"


def on_files(files: Files, config: MkDocsConfig) -> None:
    for name in WRITTEN:
        for path in sorted((ROOT / name).rglob("*")) or [ROOT / name]:
            if path.is_file() and "__pycache__" not in path.parts:
                files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    files.append(File.generated(config, "names.md", content=names_page()))
    for name in PUBLIC:
        files.append(File.generated(config, f"api/kpl_codec{name}.md", content=api_page(name)))


def on_config(config: MkDocsConfig) -> None:
    config.extra["version"] = kpl_codec.__version__
    chapters = [f"spec/{path.name}" for path in sorted((ROOT / "spec").glob("[0-9]*.md"))]
    guides: list[object] = ["spec/guides/README.md"]  # then in its order, under its headings
    for part in (ROOT / "spec/guides/README.md").read_text().split("\n## ")[1:]:
        names = re.findall(r"\]\(([\w-]+\.md)\)", part)
        guides.append({part.partition("\n")[0]: [f"spec/guides/{name}" for name in names]})
    modules = [f"api/kpl_codec{module}.md" for module in PUBLIC]
    config.nav = [
        {"Start": "README.md"},
        {"Guides": guides},
        {"Reference": [{"Error codes and findings": "names.md"}, {"Python": modules}]},
        {"Specification": ["spec/README.md", *chapters]},
        {"Project": [SPEED, "spec/words.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]},
    ]


def on_page_markdown(markdown: str, **_: object) -> str:
    """The options of a fence are for `tests.guides`; ``file=x.py`` becomes the block's title."""
    markdown = re.sub(r"(?m)^( *```\w+).* file=(\S+).*$", r'\1 title="\2"', markdown)
    return re.sub(r"(?m)^( *```\w+)(?: (?!title)\w+=\S+)+$", r"\1", markdown)


def on_page_content(html: str, page: Any, **_: object) -> str:
    """Each parameter that a docstring explains begins a line; asyncio's functions have their public names."""
    if not page.file.src_uri.startswith("api/"):
        return html
    html = re.sub('(<span class="nf">)async_(?=fetch|read)', r"\1", html)
    return re.sub(r"\n(?=<code>\w+</code>(?:,? (?:and )?<code>\w+</code>)*: )", "<br>\n", html)


def on_post_build(config: MkDocsConfig) -> None:
    """lunr 2.3.9 takes "1" to node 45 and "14" to node 5 for one edge (olivernn/lunr.js#503)."""
    (worker,) = Path(config.site_dir).glob("assets/javascripts/workers/search.*.js")
    assert worker.read_text().count(_LUNR) == 1, "is the mistake mended in this version?"
    worker.write_text(worker.read_text().replace(_LUNR, _LUNR + '+";"'))


def api_page(module: str) -> str:
    """A module's docstring without the list of its files; then each name, as mkdocstrings shows it."""
    text = inspect.getdoc(import_module(f"kpl_codec{module}")) or ""
    lines = [f"# kpl_codec{module} {{#kpl_codec{module}}}\n", text.partition("\n\nModules")[0], ""]
    for name, thing in names_of(module).items():
        public = home = f"kpl_codec{module}.{name}"
        if inspect.isclass(thing) or inspect.isfunction(thing):
            # The code of a plain function that is made of one of asyncio has that one's name.
            code = getattr(getattr(thing, "__wrapped__", thing), "__code__", None)
            home = f"{thing.__module__}.{code.co_name if code else thing.__name__}"
        lines += [f"[](){{#{public}}}", "", f"::: {home}", "    options:", f"      heading: {name}", ""]
    shared = [name for name in OPTIONS if name.startswith(f"{module.lstrip('.')}.")]
    return "\n".join([*lines, *(f"::: kpl_codec.{name}\n" for name in shared)])


def names_page() -> str:
    """What `kpl-codec explain` says of every error with a code, and of every finding."""
    parts = ["# Error codes and findings", "`kpl-codec explain NAME` prints the same in a terminal."]
    entries = {error.name: (error, f"Codes: {', '.join(error.codes)}") for error in error_classes()}
    entries |= {kind.name: (kind, f"A finding, {kind.severity}: {kind.title}") for kind in KINDS.values()}
    for name, (entry, what) in entries.items():
        parts += [f"## {name} {{#{name}}}", f"**{what}.**", entry.meaning.replace("\n", "\n\n")]
        parts += [f"*Who is affected:* {entry.concerns}", f"*What to do:* {entry.todo}"]
    return "\n\n".join(parts)
