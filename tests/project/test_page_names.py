"""Help and messages name pages of the documentation by the command that shows them, also where only a wheel is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from support.checkout import ROOT

import fastpipe
from fastpipe.pages import name_page
from fastpipe.tools.show.pages import list_pages

PACKAGE = ROOT / "fastpipe"


def calls_of_name_page() -> Iterator[str]:
    for module in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "name_page":
                yield ast.literal_eval(node.args[0])


def shown_texts(tree: ast.Module) -> Iterator[str]:
    """The strings of a module that are not docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in docstrings:
            yield node.value


def page_names() -> set[str]:
    return {page.name for page in list_pages()}


def test_the_pages_exist() -> None:
    named = set(calls_of_name_page())
    assert len(named) > 5
    assert named - page_names() == set()


def test_docstrings_name_pages_that_exist() -> None:
    for name in fastpipe.__all__:
        text = " ".join((getattr(fastpipe, name).__doc__ or "").split())
        assert "docs/" not in text, name
        assert "of the documentation" not in text, name
        assert set(re.findall(r"`fastpipe docs ([\w-]+)`", text)) <= page_names(), name


def test_no_message_names_a_file_of_the_docs_folder() -> None:
    found = [
        f"{module.relative_to(ROOT)}: {text}"
        for module in PACKAGE.rglob("*.py")
        for text in shown_texts(ast.parse(module.read_text(encoding="utf-8")))
        if re.search(r"\bdocs/[\w/-]+\.md", text)
    ]
    assert found == []


def test_the_words() -> None:
    assert name_page("fields") == "`fastpipe docs fields`"
    assert name_page("failures", 3) == "`fastpipe docs failures`, section 3"
