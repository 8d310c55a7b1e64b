"""The preview sheet shows photos, their crops, and what the loader hands out, with any augmentation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from support.batches.kornia_cases import k
from support.datasets.packed import damage
from support.pictures.pngs import png
from support.programs.cli_run import failed, succeeded

import fastpipe
from fastpipe import ConfigError
from fastpipe.device.augment.pixels import IMAGENET_MEAN, IMAGENET_STD
from fastpipe.tools.show.preview import SIZE, VARIANTS

pytestmark = pytest.mark.usefixtures("one_thread")

GAP, CAPTION = 6, 18  # of fastpipe/tools/show/sheet.py
TOP = 2 * CAPTION + GAP  # below the title and the legend


def cell(sheet: NDArray[np.uint8], row: int, column: int) -> NDArray[np.uint8]:
    top, left = TOP + row * (SIZE + GAP + CAPTION), GAP + column * (SIZE + GAP)
    return sheet[top : top + SIZE, left : left + SIZE]


def read(path: Path) -> NDArray[np.uint8]:
    picture = cv2.imread(str(path))
    assert picture is not None
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), dtype=np.uint8)


def opened(data: Path, augment: Any = None, batch_size: int = 4, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(
        data, batch_size, **{"size": SIZE, "num_workers": 1, "augment": augment, **options}
    )


KORNIA = [
    k.RandomBrightness((0.5, 1.5), p=0.8),
    k.RandomPlasmaShadow(p=0.5),
    k.RandomErasing(p=0.5),
]
AUGMENTS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "imagenet": fastpipe.Augment.imagenet,
    "bfloat16": lambda: fastpipe.Augment.imagenet(dtype=torch.bfloat16),
    "randaugment": fastpipe.Augment.randaugment,
    "kornia": lambda: KORNIA,
    "not normalised": lambda: fastpipe.Augment([k.RandomErasing(p=0.5)], mean=None, std=None),
}


@pytest.mark.parametrize("name", AUGMENTS)
def test_variants_are_what_the_loader_hands_out(large: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "preview.png"
    augment = AUGMENTS[name]()
    with opened(large, augment, batch_size=6, seed=4, exact=True) as loader:
        assert fastpipe.preview(loader, out, rows=3).photos == 3
        sheet = read(out)
        mean, std = (
            ((0, 0, 0), (1, 1, 1)) if name == "not normalised" else (IMAGENET_MEAN, IMAGENET_STD)
        )
        shift, scale = torch.tensor(mean).view(3, 1, 1), torch.tensor(std).view(3, 1, 1)
        for epoch in (0, 3, VARIANTS - 1):
            loader.set_epoch(epoch)
            ((images, _),) = loader
            pixels = images / 255 if augment is None else images.float() * scale + shift
            shown = (pixels.permute(0, 2, 3, 1).clamp(0, 1) * 255).round().byte().numpy()
            for row in range(3):  # the loader has another order
                variant = cell(sheet, row, 2 + epoch).astype(int)
                assert min(np.abs(variant - image).max() for image in shown) <= 1


def test_a_preview_changes_nothing_of_an_iteration(textured: Path, tmp_path: Path) -> None:
    def epoch(*, look: bool) -> list[torch.Tensor]:
        with opened(textured, KORNIA) as loader:
            got = []
            for number, (images, _) in enumerate(loader):
                got.append(images)
                if look and number == 1:
                    before = loader.stats().batches
                    fastpipe.preview(loader, tmp_path / "preview.png", rows=1)
                    assert loader.stats().batches == before
            return got

    for one, other in zip(epoch(look=False), epoch(look=True), strict=True):
        assert torch.equal(one, other)


def test_a_notebook_shows_the_sheet_and_no_file_is_replaced_unasked(
    textured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "preview.png"
    with opened(textured) as loader:
        sheet = fastpipe.preview(loader, rows=2)
        assert (sheet.path, sheet.photos) == (out, 2)
        assert sheet._repr_png_() == out.read_bytes()
        before = read(out)
        assert fastpipe.preview(loader, rows=1).photos == 1
        assert len(read(out)) < len(before), "its own sheet is replaced"
        out.write_bytes(b"precious")
        with pytest.raises(
            ConfigError, match=r"preview\.png exists, and fastpipe did not draw it; pass overwrite"
        ):
            fastpipe.preview(loader, rows=1)
        assert out.read_bytes() == b"precious"
        assert fastpipe.preview(loader, rows=1, overwrite=True).photos == 1
        assert loader.state_dict()["epoch"] == 0


def test_any_size_is_drawn_and_soft_labels_are_named(textured: Path, tmp_path: Path) -> None:
    sheets = []
    for number, augment in enumerate(
        ([k.RandomInvert(p=0.0)], [k.RandomInvert(p=0.0), k.RandomMixUpV2((0.3, 0.3))])
    ):
        with opened(textured, augment, size=(300, 200)) as loader:
            assert fastpipe.preview(loader, tmp_path / f"{number}.png", rows=2).photos == 2
        sheets.append(read(tmp_path / f"{number}.png"))
    assert (
        sheets[0].shape
        == sheets[1].shape
        == (TOP + 2 * (SIZE + GAP + CAPTION), GAP + 10 * (SIZE + GAP), 3)
    )
    drawn = (cell(sheets[0], 0, 2) != 250).any(axis=(0, 2))
    assert abs(drawn.sum() - SIZE * 200 / 300) <= 2  # the proportions of the crop
    below = slice(TOP + SIZE, TOP + SIZE + CAPTION)
    assert (sheets[1][below] < 128).sum() > 1.5 * (sheets[0][below] < 128).sum(), "longer captions"


def test_only_samples_that_the_weights_draw_are_shown(flat: Path, tmp_path: Path) -> None:
    """Others may have no label, which soft labels need."""
    with opened(flat, sampler=fastpipe.Weighted({"ant": 0, "bee": 0})) as loader:
        drawn = {number for batch in loader for number in batch.ids.tolist()}
        assert drawn
        assert set(loader.dataset["label"][sorted(drawn)]) == {2}
        assert (
            fastpipe.preview(loader, tmp_path / "cows.png", rows=100).photos
            == loader.dataset.class_counts[2]
        )
        assert fastpipe.preview(loader, tmp_path / "few.png", rows=3).photos == 3


def test_mistakes_in_a_program_are_named(textured: Path, tmp_path: Path) -> None:
    out = tmp_path / "preview.png"
    with pytest.raises(ConfigError, match="preview: expected a loader, got PosixPath"):
        fastpipe.preview(textured, out)  # type: ignore[arg-type]
    flatten = fastpipe.Augment(torch.nn.Flatten(), mean=None, std=None)
    with (
        opened(textured, flatten) as loader,
        pytest.raises(ConfigError, match="only images can be drawn"),
    ):
        fastpipe.preview(loader, out)
    with (
        opened(textured) as loader,
        pytest.raises(ConfigError, match="rows: expected 1 to 100, got 101"),
    ):
        fastpipe.preview(loader, out, rows=101)
    assert not out.exists()


PROGRAM = """
import kornia.augmentation as K
import beside

def build():
    return [K.RandomInvert(p=beside.P)]

listed = [K.RandomInvert(p=1.0)]
alone = K.RandomInvert(p=1.0)

def broken():
    raise ArithmeticError("no")

def nothing():
    return 3
"""


def test_the_command_takes_a_function_of_a_file(large: Path, tmp_path: Path) -> None:
    program, out = tmp_path / "my_augment.py", tmp_path / "sheet.png"
    program.write_text(PROGRAM)
    (tmp_path / "beside.py").write_text("P = 1.0")
    sheets = []
    for name in ("none", f"{program}:build", f"{program}:listed", f"{program}:alone"):
        succeeded("preview", large, "--augment", name, "--out", out, "--rows", 2, "--overwrite")
        sheets.append(cell(read(out), 1, 3).astype(int))
    assert np.abs(255 - sheets[0] - sheets[1]).max() <= 1
    assert np.array_equal(sheets[1], sheets[2])
    assert np.array_equal(sheets[1], sheets[3])
    out.unlink()
    for name, said in (
        (
            "blur",
            "--augment: expected none, simclr, randaugment, trivial_augment or FILE.py:NAME, got 'blur'",
        ),
        ("my.txt:build", "--augment: expected FILE.py:NAME"),
        (f"{tmp_path}/other.py:build", "--augment: there is no file"),
        (f"{program}:missing", "has no 'missing'; define a function missing()"),
        (f"{program}:broken", "raised ArithmeticError: no"),
        (f"{program}:nothing", "augment: expected a fastpipe.Augment"),
    ):
        assert said in failed(2, "preview", large, "--augment", name, "--out", out)
    assert not out.exists()


def test_the_size_is_that_of_the_training(large: Path, tmp_path: Path) -> None:
    for size in (40, 400):
        succeeded(
            "preview",
            large,
            "--size",
            size,
            "--out",
            tmp_path / "a.png",
            "--rows",
            1,
            "--overwrite",
        )
        drawn = cell(read(tmp_path / "a.png"), 0, 2) != 250
        assert drawn.any(axis=(1, 2)).sum() == min(size, SIZE)


def test_photos_keep_their_proportions_and_show_their_crops(large: Path, tmp_path: Path) -> None:
    succeeded("preview", large, "--out", tmp_path / "preview.png")
    sheet = read(tmp_path / "preview.png")
    for row, record in enumerate(fastpipe.open(large).index.records):
        width, height = int(record["width"]), int(record["height"])
        photo, with_crops = cell(sheet, row, 0), cell(sheet, row, 1)
        inside = (photo != 250).any(axis=2)
        assert abs(inside.any(axis=1).sum() - SIZE * height / max(width, height)) <= 2
        assert abs(inside.any(axis=0).sum() - SIZE * width / max(width, height)) <= 2
        changed = (photo != with_crops).any(axis=2)
        assert 100 < changed.sum() < SIZE * SIZE / 2
        assert (with_crops[changed] == (255, 210, 0)).all(axis=1).any()


def test_the_command_says_what_it_did(large: Path, tmp_path: Path) -> None:
    out = tmp_path / "sheet.png"
    said = succeeded("preview", large, "--augment", "simclr", "--out", out, "--rows", 2)
    assert said == f"2 images drawn to {out}, each with 8 variants\n"
    assert read(out).shape == (TOP + 2 * (SIZE + GAP + CAPTION), GAP + 10 * (SIZE + GAP), 3)
    succeeded("preview", large, "--out", out, "--rows", 90, "--overwrite")
    assert read(out).shape[0] == TOP + 6 * (SIZE + GAP + CAPTION)


def test_a_file_is_replaced_only_if_asked_to(
    flat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for options in ([], ["--out", "mine.png"]):
        file = tmp_path / (options[1] if options else "preview.png")
        file.write_bytes(b"precious")
        assert f"{file.name} exists, and fastpipe did not draw it; pass another name" in failed(
            2, "preview", flat, *options
        )
        assert file.read_bytes() == b"precious"
        succeeded("preview", flat, *options, "--overwrite", "--rows", 1)
        assert file.read_bytes().startswith(b"\x89PNG")
        first = file.read_bytes()
        succeeded("preview", flat, *options, "--rows", 1, "--seed", 1)
        assert file.read_bytes() != first, "its own sheet is replaced"


def test_the_same_seed_draws_the_same_sheet(textured: Path, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        with opened(textured, fastpipe.Augment.randaugment(), seed=seed) as loader:
            fastpipe.preview(loader, tmp_path / name, rows=2)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "again").read_bytes()
    assert (tmp_path / "one").read_bytes() != (tmp_path / "other").read_bytes()


def test_mistakes_are_named(flat: Path, tmp_path: Path, copied: Callable[[Path], Path]) -> None:
    out = tmp_path / "preview.png"
    assert "--rows: expected 1 to 100, got 0" in failed(
        2, "preview", flat, "--rows", 0, "--out", out
    )
    assert "simclr" in failed(2, "preview", flat, "--augment", "mixed", "--out", out)
    assert "cannot write" in failed(
        1, "preview", flat, "--out", tmp_path / "nowhere" / "preview.png"
    )
    dataset = copied(flat)
    damage(dataset, 0)
    assert "sample 0" in failed(1, "preview", dataset, "--rows", 37, "--out", out)
    assert not out.exists()


@pytest.mark.parametrize(
    "options", [{"dtype": torch.uint16}, {"augment": fastpipe.Augment.imagenet()}]
)
def test_alpha_is_drawn_over_a_checkerboard(tmp_path: Path, options: dict[str, Any]) -> None:
    pixels = np.full((SIZE, SIZE, 4), (250, 40, 10, 255), dtype=np.uint8)
    pixels[:, : SIZE // 2, 3] = 0
    (tmp_path / "photos").mkdir()
    Image.fromarray(pixels).save(tmp_path / "photos" / "half.png")
    options = {"batch_size": 1, "crop": fastpipe.Resize(), "hflip": False, **options}
    with opened(tmp_path / "photos", channels="rgba", **options) as loader:
        sheet = read(fastpipe.preview(loader, tmp_path / "preview.png").path)
    squares = np.indices((SIZE, SIZE // 2)) // (SIZE // 20)
    board = np.where(squares.sum(0) % 2, 255, 200)
    for column in (0, 2, 9):
        drawn = cell(sheet, 0, column)
        assert np.array_equal(
            drawn[:, : SIZE // 2], np.broadcast_to(board[..., None], (SIZE, SIZE // 2, 3))
        )
        assert (drawn[:, SIZE // 2 :] == (250, 40, 10)).all()


@pytest.mark.parametrize(
    "options", [{}, {"dtype": torch.uint16}, {"augment": fastpipe.Augment.simclr(strength=0)}]
)
def test_gray_is_drawn_gray(tmp_path: Path, options: dict[str, Any]) -> None:
    (tmp_path / "photos").mkdir()
    samples = np.arange(SIZE * SIZE, dtype=np.uint16).reshape(SIZE, SIZE) * 2
    (tmp_path / "photos" / "deep.png").write_bytes(png(samples, bits=16))
    options = {
        "batch_size": 1,
        "crop": fastpipe.Resize(),
        "hflip": False,
        "channels": "gray",
        **options,
    }
    with opened(tmp_path / "photos", **options) as loader:
        sheet = read(fastpipe.preview(loader, tmp_path / "preview.png").path)
    assert np.array_equal(
        cell(sheet, 0, 0), np.broadcast_to((samples >> 8)[..., None], (SIZE, SIZE, 3))
    )
    variant = cell(sheet, 0, 2)
    assert (variant == variant[..., :1]).all()
    assert np.abs(variant[..., 0].astype(int) - (samples >> 8)).max() <= (
        12 if "augment" in options else 1
    )
