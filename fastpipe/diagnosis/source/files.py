"""A place in a source file -> its text, and the part of the syntax tree around it."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache
from pathlib import Path

LOOPS = (ast.For, ast.AsyncFor, ast.While)


@lru_cache(maxsize=256)
def parse_file(file: str) -> ast.Module:
    """Parses a source file. A file that is missing or not Python gives an empty module."""
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])


def split_place(place: str) -> tuple[str, int]:
    """train.py:7 -> train.py, 7."""
    file, _, line = place.rpartition(":")
    return file, int(line) if line.isdigit() else 0


def read_line(place: str) -> str:
    """Reads the text of a line; "" if there is no such file."""
    file, line = split_place(place)
    return linecache.getline(file, line).strip()


def has_line(node: ast.AST, line: int) -> bool:
    """Whether a line is one of a statement or an expression."""
    if not isinstance(node, (ast.stmt, ast.expr)):
        return False
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def find_enclosing(place: str, *kinds: type[ast.stmt] | type[ast.expr]) -> ast.AST:
    """Finds the innermost node of some kinds around a line; an empty one if there is none."""
    file, line = split_place(place)
    innermost: ast.AST = ast.Pass()
    innermost_line = 0
    for node in ast.walk(parse_file(file)):
        if not isinstance(node, kinds) or not has_line(node, line):
            continue
        # Of two nodes around the line, the one that begins later is the inner one.
        if node.lineno > innermost_line:
            innermost = node
            innermost_line = node.lineno
    return innermost


def get_name(node: ast.AST) -> str:
    """Returns the last name of an expression: f and obj.f are both "f"; "" for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return ""


def strip_indices(node: ast.expr) -> ast.expr:
    """a[1][2] -> a."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def list_stored(root: ast.AST) -> list[ast.Name | ast.Attribute | ast.Subscript]:
    """Lists the names, attributes and items that get a value somewhere in a part of a file."""
    stored = []
    for node in ast.walk(root):
        if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            continue
        if isinstance(node.ctx, ast.Store):
            stored.append(node)
    return stored
