"""docs/tutorial.md -> docs/tutorial.ipynb: python docs/site/notebook.py"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent
PAGE = DOCS / "tutorial.md"
NOTEBOOK = DOCS / "tutorial.ipynb"
_BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def notebook_of(page: str) -> str:
    """The notebook's JSON: texts become cells of Markdown, Python and commands cells of code."""
    cells: list[dict[str, Any]] = []
    end = 0
    for block in _BLOCK.finditer(page):
        cells += _text_cells(page[end : block.start()])
        language, code = block.groups()
        if language == "sh":
            code = "".join(f"!{line}\n" for line in code.splitlines())
        cells.append(_cell("code", code) | {"execution_count": None, "outputs": []})
        end = block.end()
    cells += _text_cells(page[end:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _text_cells(text: str) -> list[dict[str, Any]]:
    return [_cell("markdown", text)] if text.strip() else []


def _cell(kind: str, text: str) -> dict[str, Any]:
    lines = text.strip("\n").splitlines(keepends=True)
    return {"cell_type": kind, "metadata": {}, "source": lines}


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
