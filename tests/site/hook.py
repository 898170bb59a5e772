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
WRITTEN = "README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md LICENSE spec tests/benchmarks/README.md"
#: Types of the ``**options`` that functions share.
_EVENTS = ".aws_lambda.events"
OPTIONS = (".producer.config.ProducerOptions", f"{_EVENTS}.HandlerOptions", f"{_EVENTS}.OpenOptions")


def on_files(files: Files, config: MkDocsConfig) -> None:
    for path in (path for name in WRITTEN.split() for path in [ROOT / name, *(ROOT / name).rglob("*")]):
        if path.is_file() and "__pycache__" not in path.parts:
            files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    files.append(File.generated(config, "names.md", content=names_page()))
    for name in PUBLIC:
        files.append(File.generated(config, f"api/kpl_codec{name}.md", content=api_page(name)))


def on_config(config: MkDocsConfig) -> None:
    """Fills the menus of mkdocs.yml: the guides in the order and under the headings of their list."""
    config.extra["version"] = kpl_codec.__version__
    _, guides, reference, chapters, _ = (entries for part in config.nav or () for entries in part.values())
    for part in (ROOT / "spec/guides/README.md").read_text().split("\n## ")[1:]:
        names = re.findall(r"\]\(([\w-]+\.md)\)", part)
        guides.append({part.partition("\n")[0]: [f"spec/guides/{name}" for name in names]})
    reference.append({"Python": [f"api/kpl_codec{name}.md" for name in PUBLIC]})
    chapters += [f"spec/{path.name}" for path in sorted((ROOT / "spec").glob("[0-9]*.md"))]


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
    before, edge, after = worker.read_text().partition("e=e+s+o.id")
    assert edge, "is the mistake mended in this version?"
    worker.write_text(f'{before}{edge}+";"{after}')


def api_page(module: str) -> str:
    """A module's docstring without the list of its files, then its names as mkdocstrings shows them."""
    text = inspect.getdoc(import_module(f"kpl_codec{module}")) or ""
    lines = [f"# kpl_codec{module} {{#kpl_codec{module}}}\n", text.partition("\n\nModules")[0], ""]
    names = names_of(module)
    errors = [n for n, one in names.items() if inspect.isclass(one) and issubclass(one, kpl_codec.KplError)]
    for name, thing in sorted(names.items(), key=lambda one: one[0] in errors):
        public = home = f"kpl_codec{module}.{name}"
        if inspect.isclass(thing) or inspect.isfunction(thing):
            # The code of a plain function that is made of one of asyncio has that one's name.
            code = getattr(getattr(thing, "__wrapped__", thing), "__code__", None)
            home = f"{thing.__module__}.{code.co_name if code else thing.__name__}"
        lines += [f"[](){{#{public}}}", "", f"::: {home}", "    options:", f"      heading: {name}"]
        lines += ["      members: false" * (name in errors), ""]
    lines += [f"::: kpl_codec{name}\n" for name in OPTIONS if name.startswith(f"{module or 'no'}.")]
    return "\n".join(lines)


def names_page() -> str:
    """What `kpl-codec explain` says of every error with a code, and of every finding."""
    parts = ["# Error codes and findings", "`kpl-codec explain NAME` prints the same in a terminal."]
    entries = {error.name: (error, f"Codes: {', '.join(error.codes)}") for error in error_classes()}
    entries |= {kind.name: (kind, f"A finding, {kind.severity}: {kind.title}") for kind in KINDS.values()}
    for name, (entry, what) in entries.items():
        parts += [f"## {name} {{#{name}}}", f"**{what}.**", entry.meaning.replace("\n", "\n\n")]
        parts += [f"*Who is affected:* {entry.concerns}", f"*What to do:* {entry.todo}"]
    return "\n\n".join(parts)
