"""Runs the programs in docs/reference/fields.md that load fields or pack the demo, on small datasets."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from support.checkout import ROOT
from support.pictures.drawn import FLAT_IMAGES, smooth_noise

import fastpipe
from fastpipe.dataset import tensors
from fastpipe.tools.demo.photos import CLASSES, write_photos

PAGE = (ROOT / "docs" / "reference" / "fields.md").read_text(encoding="utf-8")
LOADING = PAGE[PAGE.index("## Load them") : PAGE.index("## Read them elsewhere")]
PROGRAMS = re.findall(r"^```python\n(.*?)^```", LOADING, flags=re.MULTILINE | re.DOTALL)


def run(number: int, fielded: Path, folder: Path, **given: Any) -> dict[str, Any]:
    (folder / "data").mkdir()
    (folder / "data" / "train").symlink_to(fielded)
    names = given
    program = (
        PROGRAMS[number]
        .replace("batch_size=256", "batch_size=8, size=32")
        .replace("=2, col", "=1, col")
    )
    program = program.replace("256, fields", "8, size=32, fields").replace('"cuda"', '"cpu"')
    exec(compile(program, "docs/reference/fields.md", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_first_program(fielded: Path, tmp_path: Path) -> None:
    names = run(0, fielded, tmp_path)
    assert list(names["batch"]) == [
        "image",
        "label",
        "caption",
        "boxes",
        "boxes_labels",
        "joints",
        "id",
    ]
    assert len(names["captions"]) == len(names["boxes"]) == 8
    names["loader"].close()


def test_tokens(fielded: Path, tmp_path: Path) -> None:
    def tokenizer(texts: list[str], **_: Any) -> dict[str, torch.Tensor]:
        lengths = torch.tensor(list(map(len, texts)))
        return {"input_ids": lengths, "attention_mask": lengths > 0}

    names = run(6, fielded, tmp_path, tokenizer=tokenizer, fastpipe=fastpipe)
    assert names["batch"]["input_ids"].tolist() == list(map(len, names["batch"]["caption"]))
    names["loader"].close()


def test_the_demo_with_its_fields(tmp_path: Path) -> None:
    """Boxes and masks of the demo are about the same object."""
    section = PAGE[PAGE.index("## Try it") : PAGE.index("## Python instead")]
    (program,) = re.findall(r"^```python\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    write_photos(
        tmp_path / "fastpipe-demo" / "photos", 20, truth=tmp_path / "fastpipe-demo" / "truth"
    )
    exec(compile(program, "docs/reference/fields.md", "exec"), {})
    assert fastpipe.open("data/objects").classes == list(CLASSES)
    wanted = ("image", "label", "boxes", "mask", "caption")
    with fastpipe.loader(
        "data/objects", 20, size=128, crop=fastpipe.Resize(), fields=wanted, num_workers=1
    ) as loader:
        (batch,) = loader
    for row, label in enumerate(batch["label"].tolist()):
        assert CLASSES[label] in batch["caption"][row].split()
        assert batch["boxes_labels"][row].tolist() == [label + 1]
        mask = batch["mask"][row].numpy()
        assert set(np.unique(mask)) == {0, label + 1}
        rows, columns = np.nonzero(mask)
        extent = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
        # Nearest neighbours can miss the tip of a star.
        assert np.abs(extent - batch["boxes"][row].numpy()[0]).max() <= 6


def test_targets_of_a_detector(fielded: Path, tmp_path: Path) -> None:
    names = run(1, fielded, tmp_path)
    assert len(names["targets"]) == len(names["images"]) == 8
    assert all(len(target["boxes"]) == len(target["labels"]) for target in names["targets"])
    names["loader"].close()


def test_values_of_boxes(tmp_path: Path) -> None:
    fields = {"boxes": "boxes", "iscrowd": "json"}
    with fastpipe.Writer(tmp_path / "written", fields, classes=["cat"]) as writer:
        for number in range(9):
            writer.add(
                smooth_noise(40, 30, seed=number),
                key=f"{number}.jpg",
                boxes={"boxes": [[0, 0, 5, 5], [10, 10, 30, 25]], "labels": [0, 0]},
                iscrowd=[0, 1],
            )
    names = run(-1, tmp_path / "written", tmp_path)
    assert len(names["boxes"]) == len(names["labels"]) == len(names["iscrowd"])
    names["loader"].close()


def test_arrays(fielded: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(9):
        smooth_noise(40, 30, seed=number).save(tmp_path / "photos" / f"{number}.jpg")
    batch = run(2, fielded, tmp_path)["batch"]
    assert batch["latent"].shape == (8, 4, 64, 64)
    assert batch["text"].shape == (8, batch["text_counts"].max(), 768)


def test_kornia_moves_boxes_and_points(fielded: Path, tmp_path: Path) -> None:
    names = run(4, fielded, tmp_path)
    fields = ["image", "boxes", fastpipe.Points("joints", flip_pairs=[(0, 1)])]
    with fastpipe.loader("data/train", 8, size=32, fields=fields) as plain:
        for batch, other in zip(names["loader"], plain, strict=True):
            assert list(batch) == ["image", "boxes", "boxes_labels", "joints"]
            assert not torch.equal(torch.cat(batch["joints"]), torch.cat(other["joints"]))
    names["loader"].close()


def test_a_loss_of_mixed_images(fielded: Path, tmp_path: Path) -> None:
    names = run(5, fielded, tmp_path)
    batch, targets = names["batch"], names["targets"]
    for row, partner in enumerate(batch["mix_index"].tolist()):
        expected = torch.lerp(batch["gaze"][partner], batch["gaze"][row], batch["mix_lam"][row])
        torch.testing.assert_close(targets[row], expected)
    assert not torch.allclose(targets, batch["gaze"])
    names["loader"].close()


def test_torchvisions_transforms(fielded: Path, tmp_path: Path, torchvision: ModuleType) -> None:
    tensors._tv_tensors.cache_clear()
    names = run(7, fielded, tmp_path)
    assert len(names["captions"]) == FLAT_IMAGES % 8
    assert {type(sample["boxes"]).__name__ for sample in names["samples"]} == {"BoundingBoxes"}


def test_the_tables_name_all_options() -> None:
    for name in ("image", "label", "id", "key", "valid", "epoch"):
        assert f"| `{name}` |" in PAGE
    assert fastpipe.Boxes("boxes") == fastpipe.Boxes(
        "boxes", form="list", min_size=1.0, min_area=0.0
    )
    for text in ("`min_size=1.0`", "`min_area=0.0`", "`flip_pairs=[]`", '`"list"` (default)'):
        assert text in PAGE
