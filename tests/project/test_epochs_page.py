"""Runs the programs in docs/reference/epochs.md, on a small dataset, so that they stay true."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.checkout import ROOT
from support.pictures.drawn import FLAT_IMAGES

import fastpipe

PAGE = (ROOT / "docs" / "reference" / "epochs.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def run(number: int, dataset: Path, folder: Path, **given: Any) -> dict[str, Any]:
    (folder / "data").mkdir()
    for name in ("train", "extra"):
        (folder / "data" / name).symlink_to(dataset)
    names: dict[str, Any] = {"fastpipe": fastpipe, "data": fastpipe.open("data/train"), **given}
    small = "batch_size=4, num_workers=1, drop_last=False"
    program = PROGRAMS[number].replace("batch_size=256, size=", f"{small}, size=")
    program = program.replace("batch_size=256", f"{small}, size=32")
    program = (
        program.replace("take(0.1)", "take(0.5)")
        .replace("of=5", "of=2")
        .replace("range(5)", "range(2)")
    )
    program = program.replace("range(90)", "range(2)").replace("1000 * (", "10 * (")
    program = program.replace("epoch_size=1024", "epoch_size=10").replace(
        "epoch_size=1000", "epoch_size=10"
    )
    exec(compile(program, "docs/reference/epochs.md", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ids_of(loader: Any) -> list[int]:
    with loader:
        return [number for batch in loader for number in batch.ids.tolist()]


def test_parts(flat: Path, tmp_path: Path) -> None:
    names = run(0, flat, tmp_path)
    assert 0 < len(ids_of(names["few"])) < FLAT_IMAGES
    assert names["pets"].classes == ["ant", "bee"]
    assert len(ids_of(names["large"])) == FLAT_IMAGES - 16
    keys = [loader.dataset["key"][ids_of(loader)] for loader in (names["train"], names["val"])]
    assert sorted(np.concatenate(keys)) == sorted(names["data"]["key"])


def test_weights(flat: Path, tmp_path: Path) -> None:
    names = run(1, flat, tmp_path)
    assert [len(ids_of(names[name])) for name in ("even", "more", "hard")] == [
        FLAT_IMAGES,
        FLAT_IMAGES,
        10,
    ]


def test_weights_from_losses(flat: Path, tmp_path: Path) -> None:
    layer = torch.nn.Linear(3, 3)
    names = run(
        2, flat, tmp_path, model=lambda images: layer(images.float().mean(dim=(2, 3)) / 255)
    )
    assert (names["losses"] != 1).all()
    assert len(names["losses"]) == FLAT_IMAGES
    drawn = np.bincount(ids_of(names["train"]), minlength=FLAT_IMAGES)
    due = (names["losses"] / names["losses"].sum() * FLAT_IMAGES).numpy()
    assert (np.abs(drawn - due) <= 2).all()


def test_samples_of_each_class(flat: Path, tmp_path: Path) -> None:
    loader = run(3, flat, tmp_path)["metric"]
    with loader:
        assert all(len(set(batch[1].tolist())) == 1 for batch in loader)


def test_repeats_and_sizes(flat: Path, tmp_path: Path) -> None:
    names = run(4, flat, tmp_path)
    assert len(set(ids_of(names["train"]))) == 13
    assert len(names["short"]) == 3


def test_any_sampler(flat: Path, tmp_path: Path) -> None:
    names = run(5, flat, tmp_path)
    some, growing = names["some"], names["growing"]
    assert sorted(ids_of(some)) == list(range(20))
    with growing:
        epochs = [
            [number for batch in growing for number in batch.ids[batch.valid].tolist()]
            for _ in range(2)
        ]
    assert epochs == [names["by_size"][:10].tolist(), names["by_size"][:20].tolist()]


def test_views(flat: Path, tmp_path: Path) -> None:
    names = run(6, flat, tmp_path)
    assert len(next(iter(names["two"])).images) == 2
    assert [each.shape[-1] for each in names["images"]] == [224] * 2 + [96] * 6


def test_mixtures(flat: Path, tmp_path: Path) -> None:
    names = run(7, flat, tmp_path)
    assert len(names["mixed"].classes) == 3
    assert len(names["apart"].classes) == 6
    assert set(torch.cat([batch["source"] for batch in names["heads"]]).tolist()) == {0, 1}


def test_buckets(flat: Path, tmp_path: Path) -> None:
    names = run(8, flat, tmp_path)
    assert names["only"].shape == (1, *names["images"].shape[2:])
    assert names["only"].sum() == names["sizes"].prod(dim=1).sum()
    assert names["large"].recipe.crop.fill == (124, 116, 104, 255)
    assert list(next(iter(names["boxed"]))) == ["image", "image_size", "pixel_mask", "label"]


def test_sizes_that_images_cover(flat: Path, tmp_path: Path) -> None:
    names = run(9, flat, tmp_path)
    assert (names["height"], names["width"]) in names["sizes"]
    assert names["left_top"].shape == names["original"].shape
    assert names["original"].shape[1] == 2


def test_images_at_sizes_of_their_own(flat: Path, tmp_path: Path) -> None:
    names = run(10, flat, tmp_path)
    assert all(side % 28 == 0 for image in names["images"] for side in image.shape[1:])


def test_images_as_patches(flat: Path, tmp_path: Path) -> None:
    batch = run(11, flat, tmp_path)["batch"]
    assert batch.patches.shape == (4096, 768)
    assert batch.cu_seqlens[-1] == batch.grids.prod(dim=1).sum() == batch.patch_valid.sum()
    assert len(batch.labels) == len(batch.grids)


def test_batches_of_a_budget(flat: Path, tmp_path: Path) -> None:
    with run(12, flat, tmp_path)["by_pixels"] as loader:
        for images, _ in loader:
            assert images.numel() <= 3 * 16 * 64 * 64


def test_every_program_and_argument_is_there() -> None:
    assert len(PROGRAMS) == 13
    for name in ("sampler", "epoch_size", "size", "views"):
        assert f"`{name}=" in PAGE
        assert name in inspect.signature(fastpipe.loader).parameters
    for sampler in ("Weighted", "PerClass", "Repeated", "Sequential"):
        assert f"`sampler=fastpipe.{sampler}(" in PAGE
