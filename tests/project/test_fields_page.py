"""Runs the programs in docs/fields.md that load fields, on a small dataset, so that they stay true."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from checkout import ROOT
from conftest import FLAT_IMAGES

import fastpipe
from fastpipe.samples import fields as samples_fields

PAGE = (ROOT / "docs" / "fields.md").read_text(encoding="utf-8")
LOADING = PAGE[PAGE.index("## Load them") : PAGE.index("## Read them elsewhere")]
PROGRAMS = re.findall(r"^```python\n(.*?)^```", LOADING, flags=re.MULTILINE | re.DOTALL)


def run(number: int, fielded: Path, folder: Path) -> dict[str, Any]:
    (folder / "data").mkdir()
    (folder / "data" / "train").symlink_to(fielded)
    names: dict[str, Any] = {}
    program = PROGRAMS[number].replace("batch_size=256", "batch_size=8, size=32").replace("=2, col", "=1, col")
    exec(compile(program, "docs/fields.md", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_first_program(fielded: Path, tmp_path: Path) -> None:
    names = run(0, fielded, tmp_path)
    assert list(names["batch"]) == ["image", "label", "caption", "boxes", "boxes_labels", "joints", "id"]
    assert len(names["captions"]) == len(names["boxes"]) == 8
    names["loader"].close()


def test_targets_of_a_detector(fielded: Path, tmp_path: Path) -> None:
    names = run(1, fielded, tmp_path)
    assert len(names["targets"]) == len(names["images"]) == 8
    assert all(len(target["boxes"]) == len(target["labels"]) for target in names["targets"])
    names["loader"].close()


def test_kornia_moves_boxes_and_points(fielded: Path, tmp_path: Path) -> None:
    names = run(2, fielded, tmp_path)
    with fastpipe.loader("data/train", 8, size=32, fields=("image", "boxes", "joints"), flip_pairs=[(0, 1)]) as plain:
        for batch, other in zip(names["loader"], plain, strict=True):
            assert list(batch) == ["image", "boxes", "boxes_labels", "joints"]
            assert not torch.equal(torch.cat(batch["joints"]), torch.cat(other["joints"]))
    names["loader"].close()


def test_torchvisions_transforms(fielded: Path, tmp_path: Path, torchvision: ModuleType) -> None:
    samples_fields._tv_tensors.cache_clear()
    names = run(3, fielded, tmp_path)
    assert len(names["captions"]) == FLAT_IMAGES % 8
    assert {type(sample["boxes"]).__name__ for sample in names["samples"]} == {"BoundingBoxes"}


def test_the_tables_name_all_options() -> None:
    for name in ("image", "label", "id", "key", "valid"):
        assert f"| `{name}` |" in PAGE
    assert fastpipe.loader.__kwdefaults__["min_box_size"] == 1.0
    for text in ("`min_box_size=1.0`", "`min_box_area=0.0`", "`flip_pairs=[]`", '`"list"` (default)'):
        assert text in PAGE
