"""Sphinx's configuration of the site that `make docs` builds of the folder docs."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent.parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from command_line import COMMANDS_HERE, describe_commands  # noqa: E402

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

# Links of pages to files of the checkout that are no pages: the site has copies of these files.
_linked_files: set[Path] = set()


def prepare_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Puts generated text into a page, and points its links to files outside docs to copies."""
    if docname == "reference/command-line":
        source[0] = source[0].replace(COMMANDS_HERE, describe_commands())
    _markdown[docname] = source[0]
    page = Path(app.env.doc2path(docname))
    to_site = "../" * docname.count("/")

    def rewrite(link: re.Match[str]) -> str:
        text, target = link.groups()
        path = (page.parent / target.partition("#")[0]).resolve()
        if re.match(r"[a-z]+:", target) or path.is_relative_to(DOCS):
            return link[0]
        if path.is_dir():
            path = path / "README.md"
            if not path.exists():
                return text
        if not path.exists():
            return link[0]  # MyST warns of it
        _linked_files.add(path)
        return f'<a href="{to_site}files/{path.relative_to(ROOT)}">{text}</a>'

    # Code is left alone.
    pieces = re.split(r"(^```.*?^```)", source[0], flags=re.MULTILINE | re.DOTALL)
    pieces[::2] = [re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", rewrite, text) for text in pieces[::2]]
    source[0] = "".join(pieces)


# The pages as Markdown, as they are read, for llms.txt.
_markdown: dict[str, str] = {}


def write_markdown(app: Sphinx, error: Exception | None) -> None:
    """Writes each page as Markdown beside its HTML, and llms.txt, which lists them."""
    if error is not None or app.builder.name != "html":
        return
    out = Path(app.outdir)
    lines = [
        "# fastpipe",
        "",
        "> An input pipeline for training image models with PyTorch: pack photos once, then C++ threads",
        "> load batches of random crops. `import fastpipe`; `pip install fastpipe-loader`.",
        "",
        "## Pages",
        "",
    ]
    for docname, text in sorted(_markdown.items()):
        copy = out / f"{docname}.md"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
        lines.append(f"- [{app.env.titles[docname].astext()}]({docname}.md)")
    (out / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    pages = "\n\n".join(text for _, text in sorted(_markdown.items()))
    (out / "llms-full.txt").write_text(pages, encoding="utf-8")


def escape_stars(app: Sphinx, kind: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """A star in a docstring is a star, not emphasis: `*.tar`, **options."""
    for place, line in enumerate(lines):
        pieces = line.split("`")
        pieces[::2] = [text.replace("*", r"\*") for text in pieces[::2]]
        lines[place] = "`".join(pieces)


def copy_linked_files(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    for path in _linked_files:
        copy = Path(app.outdir) / "files" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", prepare_page)
    app.connect("autodoc-process-docstring", escape_stars, priority=400)  # before napoleon
    app.connect("build-finished", copy_linked_files)
    app.connect("build-finished", write_markdown)
    return {"parallel_read_safe": False}
