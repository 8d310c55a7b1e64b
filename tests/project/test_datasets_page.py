"""Runs the programs in docs/reference/datasets.md; they print what it says, but for numbers: it has more photos."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.checkout import ROOT

import fastpipe
from fastpipe.tools.demo.photos import write_photos

PAGE = (ROOT / "docs" / "reference" / "datasets.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```pycon\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
PHOTOS = 20


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """data/objects, made by the program in docs/reference/fields.md, of fewer photos than those of the page."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "reference" / "fields.md").read_text(encoding="utf-8")
    section = page[page.index("## Try it") : page.index("## Python instead")]
    (program,) = re.findall(r"^```python\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    write_photos(
        tmp_path / "fastpipe-demo" / "photos", PHOTOS, truth=tmp_path / "fastpipe-demo" / "truth"
    )
    exec(compile(program, "docs/reference/fields.md", "exec"), {})


def statements(block: str) -> list[tuple[str, str]]:
    """Each statement of a block, and what it prints."""
    pairs = []
    for text in re.split(r"^>>> ", block, flags=re.MULTILINE)[1:]:
        # Further lines of the statement begin with three dots.
        match = re.match(r".*\n(?:\.\.\. .*\n)*", text)
        assert match is not None
        pairs.append((match[0].replace("\n... ", "\n").rstrip("\n"), text[match.end() :]))
    return pairs


def printed_by(code: str, names: dict[str, Any]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(
            compile(ast.Interactive(ast.parse(code).body), "docs/reference/datasets.md", "single"),
            names,
        )
    return said.getvalue()


def without_numbers(text: str) -> str:
    return re.sub(r"\d[\d,.]*", "0", re.sub(r"\s", "", text))


def test_it_prints_what_the_page_says(objects: None, torchvision: ModuleType) -> None:
    names: dict[str, Any] = {}
    compared = 0
    for block in BLOCKS:
        for code, expected in statements(block):
            smaller = code.replace("num_workers=2", "num_workers=1").replace(
                "batch_size=16", "batch_size=1"
            )
            printed = printed_by(smaller, names)
            assert without_numbers(printed) == without_numbers(expected), code
            compared += bool(expected)
    assert compared > 25
    names["loader"].close()


def test_it_names_all_methods_and_options() -> None:
    written = "\n".join(BLOCKS) + PAGE
    for method in vars(fastpipe.Dataset):
        if not method.startswith("_") and method not in ("transform", "set_epoch", "sample_format"):
            assert f".{method}(" in written, method
    parameters = inspect.signature(fastpipe.open).parameters
    options = [name for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY]
    assert "cache_dir" in options
    for option in options:
        assert f"`{option}=" in PAGE, option
