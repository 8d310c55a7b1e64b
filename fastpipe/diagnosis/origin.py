"""A DataLoader and the code that has it -> the file and line that made it, as far as the source tells."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType
from typing import Any


def made_at(loader: Any, frame: FrameType | None) -> str:
    """The line that calls the loader's class: in the caller's file, the only such call, or the nearest above whose
    result has a name that the loader has there; then in the files that called that one. "" where neither finds one.
    """
    seen = set()
    while frame is not None:
        name = frame.f_code.co_filename
        if name not in seen:
            seen.add(name)
            lines = dict(_calls(name, type(loader).__name__))
            if len(lines) == 1:
                return f"{name}:{next(iter(lines))}"
            names = {
                key for scope in (frame.f_locals, frame.f_globals) for key, value in scope.items() if value is loader
            }
            named = [line for line, targets in lines.items() if targets & names]
            above = [line for line in named if line <= frame.f_lineno]  # of several, the nearest that has been run
            if above or len(named) == 1:
                return f"{name}:{max(above) if above else named[0]}"
        frame = frame.f_back
    return ""


def _calls(file: str, class_name: str) -> Iterator[tuple[int, set[str]]]:
    """The lines that call a class of this name, and the names that the result is given."""
    try:
        with open(file, encoding="utf-8") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        return
    named: dict[int, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named[id(node.value)] = {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called == class_name:
                yield node.lineno, named.get(id(node), set())
