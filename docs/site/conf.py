"""Sphinx's configuration of the site that `make docs` builds of the folder docs."""

from __future__ import annotations

import functools
import html
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent.parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from api_text import with_docstrings  # noqa: E402
from command_line import COMMANDS_HERE, describe_commands  # noqa: E402
from llms import DESCRIPTIONS, find_sections, list_pages  # noqa: E402
from plain_markdown import without_directives  # noqa: E402

import fastpipe  # noqa: E402

project = "fastpipe"
author = "the fastpipe authors"
copyright = author
version = release = fastpipe.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["site", "pictures/*.py"]
# A block without a language is a command line or what a command prints.
highlight_language = "text"
default_role = "code"  # docstrings write names in single backticks
smartquotes = False  # "--max-pixels" has two hyphens
nitpicky = True
# Types of other projects, which this site has no pages of.
nitpick_ignore_regex = [("py:.*", ".*")]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4  # as GitHub numbers them, so that a link works in both places

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 80
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"fastpipe {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
copybutton_exclude = ".linenos, .gp, .go"

# Links of pages to files that are no pages: the site has copies of these files.
_linked_files: set[Path] = set()
# The pages as Markdown, for programs, by the name of the page.
_markdown: dict[str, str] = {}
# Link or picture: text, target.
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


def prepare_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Puts generated text into a page, and points its links to files outside docs to copies."""
    if docname == "reference/command-line":
        source[0] = source[0].replace(COMMANDS_HERE, describe_commands())
    page = Path(app.env.doc2path(docname))
    to_site = "../" * docname.count("/")

    def rewrite_for_html(link: re.Match[str]) -> str:
        text, target = link.groups()
        path = _linked_file(page, target)
        if path is None or path.is_relative_to(DOCS):
            return link[0]
        if path.is_dir():
            return text
        return f'<a href="{to_site}{_copy_of(path)}">{text}</a>'

    rewrite_for_copy = functools.partial(_rewrite_for_copy, page)
    _markdown[docname] = _in_text(with_docstrings(source[0]), rewrite_for_copy)
    source[0] = _in_text(source[0], rewrite_for_html)


def _in_text(markdown: str, rewrite: Callable[[re.Match[str]], str]) -> str:
    """Markdown with other links. Code is left alone."""
    pieces = _BLOCK.split(markdown)
    pieces[::2] = [_LINK.sub(rewrite, text) for text in pieces[::2]]
    return "".join(pieces)


def _rewrite_for_copy(file: Path, link: re.Match[str]) -> str:
    """A link in a Markdown file, as it has to be in the file's copy in the site."""
    text, target = link.groups()
    path = _linked_file(file, target)
    if path is None:
        return link[0]
    if path.is_dir():
        return text
    from_copy = os.path.relpath(_place_in_site(path), Path(_place_in_site(file)).parent)
    _, hash_sign, heading = target.partition("#")
    return f"[{text}]({from_copy}{hash_sign}{heading})"


def _place_in_site(path: Path) -> str:
    """Where the site has a page as Markdown, or the copy of another file."""
    if path.suffix == ".md" and path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return _copy_of(path)


def _linked_file(page: Path, target: str) -> Path | None:
    """The file or folder that a link of a page leads to; None: another site, or MyST warns of it."""
    if re.match(r"[a-z]+:", target) or target.startswith("#"):
        return None
    path = (page.parent / target.partition("#")[0]).resolve()
    if path.is_dir() and (path / "README.md").exists():
        path = path / "README.md"
    return path if path.exists() else None


def _copy_of(path: Path) -> str:
    """The place in the site of a file that is no page, which `copy_linked_files` puts there."""
    _linked_files.add(path)
    return f"files/{path.relative_to(ROOT)}"


def write_markdown(app: Sphinx, error: Exception | None) -> None:
    """Writes each page as Markdown beside its HTML, and llms.txt, which lists them."""
    if error is not None or app.builder.name != "html":
        return
    out = Path(app.outdir)
    titles = {name: title.astext() for name, title in app.env.titles.items()}
    sections = find_sections(app.env.toctree_includes, titles)
    texts = []
    for section in sections:
        for name in section.pages:
            text = without_directives(_markdown[name], name, titles)
            copy = out / f"{name}.md"
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, encoding="utf-8")
            texts.append(text)
    (out / "llms.txt").write_text(list_pages(sections, titles), encoding="utf-8")
    (out / "llms-full.txt").write_text("\n\n".join(texts), encoding="utf-8")


def describe_page(app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Puts the page's sentence into its HTML, where search engines look for it."""
    if name in DESCRIPTIONS:
        sentence = html.escape(DESCRIPTIONS[name].replace("`", ""))
        context["metatags"] += f'<meta name="description" content="{sentence}" />'


def escape_stars(app: Sphinx, kind: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """A star in a docstring is a star, not emphasis: `*.tar`, **options."""
    for place, line in enumerate(lines):
        pieces = line.split("`")
        pieces[::2] = [text.replace("*", r"\*") for text in pieces[::2]]
        lines[place] = "`".join(pieces)


def copy_linked_files(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    copied: set[Path] = set()
    # A copy may link to further files, which then need copies, too.
    while _linked_files - copied:
        for path in _linked_files - copied:
            _copy_file(path, Path(app.outdir) / _copy_of(path))
            copied.add(path)


def _copy_file(path: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".md":
        rewrite = functools.partial(_rewrite_for_copy, path)
        copy.write_text(_in_text(path.read_text(encoding="utf-8"), rewrite), encoding="utf-8")
    else:
        shutil.copy(path, copy)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", prepare_page)
    app.connect("autodoc-process-docstring", escape_stars, priority=400)  # before napoleon
    app.connect("html-page-context", describe_page)
    app.connect("build-finished", write_markdown)
    app.connect("build-finished", copy_linked_files)
    return {"parallel_read_safe": False}
