"""Programs in the documents: each is Python, and what it takes of fastpipe is there, with these arguments.

tests/long/project/test_recipes.py runs those of docs/how-to/recipes.md, with their libraries;
tests beside this file run others.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

from support.checkout import ROOT

import fastpipe

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def programs() -> Iterator[tuple[str, str]]:
    """The place and the text of each."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in re.finditer(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
            line = text[: found.start()].count("\n") + 2
            yield (
                f"{page.relative_to(ROOT)}:{line}",
                found[1].replace(", ...)", ")"),
            )  # a signature, cut short


def complaints(program: str) -> Iterator[str]:
    """What a program takes of fastpipe that is not there."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.ImportFrom) and node.module == "fastpipe":
            yield from (alias.name for alias in node.names if not hasattr(fastpipe, alias.name))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "fastpipe":
            yield from [] if hasattr(fastpipe, node.attr) else [f"fastpipe.{node.attr}"]
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("fastpipe."):
            yield from unknown_arguments(node)


def unknown_arguments(call: ast.Call) -> Iterator[str]:
    """The arguments of a call that what it calls does not take."""
    path = ast.unparse(call.func).split(".")[1:]
    called: object = fastpipe
    for name in path:
        called = getattr(called, name, None)
    if not callable(called):
        return
    parameters = inspect.signature(called).parameters.values()
    if called is not fastpipe.loader and any(each.kind is each.VAR_KEYWORD for each in parameters):
        return  # it passes them on; fastpipe.loader only says what to do instead
    names = {parameter.name for parameter in parameters}
    yield from (
        f"{'.'.join(path)}({each.arg}=)"
        for each in call.keywords
        if each.arg and each.arg not in names
    )


def test_programs_are_python_and_take_what_is_there() -> None:
    found = [
        f"{place}: {complaint}"
        for place, program in programs()
        for complaint in complaints(program)
    ]
    assert found == []
    assert len(list(programs())) > 60


# Each page has to import these itself: readers copy its programs.
LIBRARIES = {"fastpipe", "torch", "np", "K"}


def not_imported(page: str) -> set[str]:
    """The libraries that a program of a page uses, and neither it nor one before it imports."""
    imported: set[str] = set()
    missing: set[str] = set()
    for block in re.finditer(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL):
        nodes = list(ast.walk(ast.parse(block[1].replace(", ...)", ")"))))
        for node in nodes:
            if isinstance(node, ast.Import):
                imported |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        missing |= (used & LIBRARIES) - imported
    return missing


def test_pages_import_the_libraries_that_they_use() -> None:
    missing = {}
    for page in PAGES:
        names = not_imported(page.read_text(encoding="utf-8"))
        if names:
            missing[page.relative_to(ROOT).as_posix()] = names
    assert missing == {}


def test_a_missing_import_is_seen() -> None:
    page = "```python\nimport numpy as np\n```\n```python\nnp.ones(3), torch.ones(3)\n```\n"
    assert not_imported(page) == {"torch"}


def test_what_is_not_there_is_seen() -> None:
    program = "from fastpipe import Data\nfastpipe.loader(x, size=3, shape=4)\nfastpipe.no()\nfastpipe.open(x, blur=1)"
    assert sorted(complaints(program)) == ["Data", "fastpipe.no", "loader(shape=)", "open(blur=)"]
