"""Tests of sizes that change: set_size between epochs, a schedule by epoch, one of several sizes for each batch."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.checkout import ROOT
from support.datasets.field_scenes import write_scenes
from support.running.distributions import assert_distribution

import fastpipe
from fastpipe.engine.slots import SlotRing
from fastpipe.errors import ConfigError
from fastpipe.plan.crop_options import batch_sizes
from fastpipe.plan.recipe import Sizes
from fastpipe.tools.show.preview import preview_samples

pytestmark = [pytest.mark.usefixtures("one_thread")]

CHOICES = (24, 32, (40, 16))
SIZES = {(24, 24), (32, 32), (40, 16)}


def opened(data: Path, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(data, 4, **{"num_workers": 2, "seed": 7, **options})


def same(one: list[Any], other: list[Any]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in pairs)


def shape(batch: Any) -> tuple[int, int]:
    height, width = batch[0].shape[2:]
    return int(height), int(width)


def growing(epoch: int) -> int:
    return 32 + 8 * epoch


def epoch_at(data: Path, size: Any, epoch: int, **options: Any) -> list[Any]:
    """The epoch of a loader that has one size."""
    with opened(data, size=size, **options) as loader:
        loader.set_epoch(epoch)
        return list(loader)


def test_an_epoch_that_runs_keeps_its_size(textured: Path) -> None:
    with opened(textured, size=16) as loader:
        list(loader)  # from the second epoch on, the next one begins early
        batches, sizes = [], []
        for batch in loader:
            batches.append(batch)
            loader.set_size(40)
            sizes.append(loader.state_dict()["size"])
        assert sizes == [[16, 16]] * (len(loader) - 1) + [[40, 40]], (
            "after the last batch, that of the next epoch"
        )
        assert same(batches, epoch_at(textured, 16, 1))
        assert same(list(loader), epoch_at(textured, 40, 2))


def ramp(epoch: int, *, start: int, end: int, least: int, most: int) -> int:
    """The size that FFCV's ImageNet example trains with: `least` up to epoch `start`, `most` from epoch `end` on, and
    between them the multiple of 32 that is nearest to the straight line; of two that are as near, the even multiple.
    """
    if epoch <= start:
        return least
    if epoch >= end:
        return most
    line = Fraction(least) + Fraction((most - least) * (epoch - start), end - start)
    return 32 * round(line / 32)


@pytest.mark.parametrize(
    ("page", "epochs", "bounds"),
    [
        ("how-to/recipes.md", 16, {"start": 6, "end": 12, "least": 160, "most": 192}),
        ("reference/loader.md", 90, {"start": 35, "end": 39, "least": 160, "most": 192}),
        ("reference/loader.md", 90, {"start": 10, "end": 60, "least": 96, "most": 288}),
    ],
)
def test_the_schedules_of_the_docs_are_ffcvs(
    page: str, epochs: int, bounds: dict[str, int]
) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (program,) = re.findall(
        r"^def size\(epoch\):.*?^    return [^\n]*$", text, flags=re.MULTILINE | re.DOTALL
    )
    knots = f"[{bounds['start']}, {bounds['end']}], [{bounds['least']}, {bounds['most']}]"
    names: dict[str, Any] = {"np": np}
    exec(re.sub(r"\[\d+, \d+\], \[\d+, \d+\]", knots, program), names)
    expected = [ramp(epoch, **bounds) for epoch in range(epochs)]
    assert len(set(expected)) == (bounds["most"] - bounds["least"]) // 32 + 1
    _, sizes = batch_sizes(names["size"], None, None, train=True)
    assert sizes is not None
    assert [sizes.in_epoch(epoch, 0)(5) for epoch in range(epochs)] == [
        (side, side) for side in expected
    ]


def test_each_batch_has_one_of_the_choices(textured: Path) -> None:
    with opened(textured, size_choices=CHOICES) as loader:
        epochs = [list(loader) for _ in range(6)]
    assert {shape(batch) for batches in epochs for batch in batches} == SIZES
    assert len({tuple(map(shape, batches)) for batches in epochs}) > 1
    of_one = {size: epoch_at(textured, size, 2) for size in SIZES}
    for number, batch in enumerate(epochs[2]):
        assert same([batch], [of_one[shape(batch)][number]])


def test_the_choices_are_evenly_drawn() -> None:
    """Single sizes, and the size of a batch after that of the batch before it."""
    sizes = Sizes(choices=tuple((side, side) for side in range(8)))
    each = 10_000
    drawn = [
        [sizes.in_epoch(epoch, seed=3)(batch)[0] for batch in range(each)] for epoch in range(10)
    ]
    assert_distribution(np.bincount(np.ravel(drawn)), np.ones(8))
    pairs = np.array(drawn)[:, :-1] * 8 + np.array(drawn)[:, 1:]
    assert_distribution(np.bincount(pairs.ravel(), minlength=64), np.ones(64))


def test_fields_follow_the_size(tmp_path: Path) -> None:
    scenes = write_scenes(tmp_path / "scenes", 12)
    names = ("image", "mask", "boxes", "id")
    options: dict[str, Any] = {"fields": names, "hflip": False}
    of_one = {}
    for size in SIZES:
        with opened(scenes, size=size, **options) as loader:
            of_one[size] = list(loader)
    with opened(scenes, size_choices=CHOICES, **options) as loader:
        for number, batch in enumerate(loader):
            expected = of_one[tuple(batch["image"].shape[2:])][number]
            for name in ("image", "mask", "id"):
                assert torch.equal(batch[name], expected[name])
            assert all(
                torch.equal(*pair) for pair in zip(batch["boxes"], expected["boxes"], strict=True)
            )


def test_memory_of_the_largest_size_is_used_again() -> None:
    made: list[int] = []

    def allocate(shape: tuple[int, ...]) -> Any:
        made.append(int(np.prod(shape)))
        return np.empty(shape, dtype=np.uint8)

    ring = SlotRing((4, 8, 8, 3), 2, allocate)
    for side in (8, 4, 8, 2, 8):
        array = ring.take((4, side, side, 3))
        assert array.shape == (4, side, side, 3)
        assert array.flags["C_CONTIGUOUS"]
        del array
    assert made == [4 * 8 * 8 * 3]
    small, large = ring.take((4, 2, 2, 3)), ring.take((4, 9, 9, 3))
    assert made[1:] == [4 * 9 * 9 * 3]
    del small, large
    again = ring.take()
    assert again.shape == (4, 8, 8, 3)
    assert ring.idle == 0  # the smaller one is let go
    assert len(made) == 2


def test_looking_and_preview_have_the_epochs_size(textured: Path, tmp_path: Path) -> None:
    with opened(textured, size=lambda epoch: 16 + 8 * epoch) as loader:
        assert preview_samples(loader, np.arange(3), 2)[0].images.shape == (3, 3, 32, 32)
        assert fastpipe.preview(loader, tmp_path / "sheet.png", rows=1).photos == 1
    with opened(textured, size=16) as loader:
        loader.set_size(24)
        assert preview_samples(loader, np.arange(3), 0)[0].images.shape == (3, 3, 24, 24)


def test_errors(textured: Path) -> None:
    with opened(textured, size=16, train=False, crop=fastpipe.CenterCrop(resize=20)) as loader:
        with pytest.raises(ConfigError, match="size: expected a whole number, got 'large'"):
            loader.set_size("large")  # type: ignore[arg-type]
        with pytest.raises(
            ConfigError,
            match=r"CenterCrop\(resize=20\) makes the image smaller than size=\(32, 32\)",
        ):
            loader.set_size(32)
        assert shape(next(iter(loader))) == (16, 16)
    for options, source in (
        ({"size_choices": CHOICES}, "size_choices="),
        ({"size": growing}, "a function, size="),
    ):
        with (
            opened(textured, **options) as loader,
            pytest.raises(ConfigError, match=f"sizes come from {source}"),
        ):
            loader.set_size(16)
    with opened(textured, size=16) as loader:
        loader.set_size(24)
        state = loader.state_dict()
    for others in ({"size": growing}, {"views": [fastpipe.View(16), fastpipe.View(8)]}):
        with (
            opened(textured, **others) as loader,
            pytest.raises(ConfigError, match=r"^load_state_dict: .* \[24, 24\]"),
        ):
            loader.load_state_dict(state)
    for choices in ([], 32, "32"):
        with pytest.raises(ConfigError, match="size_choices: expected sizes, for example"):
            opened(textured, size_choices=choices)
    with pytest.raises(
        ConfigError, match=r"size_choices: expected a number or \(height, width\), got \(8, 8, 8\)"
    ):
        opened(textured, size_choices=[(8, 8, 8)])
    for size, got in ((32, "size=32"), (np.array([8, 9]), r"size=")):
        with pytest.raises(ConfigError, match=f"one of size= and size_choices=, got both, {got}"):
            opened(textured, size=size, size_choices=[32, 64])
    with pytest.raises(
        ConfigError, match="size: the function returned 0 for epoch 0: size: expected 1 to 16384"
    ):
        opened(textured, size=lambda epoch: epoch)
    with pytest.raises(ConfigError, match=r"size: the function failed for epoch 0: KeyError\(0\)"):
        opened(textured, size={1: 32}.__getitem__)
    with opened(textured, size=lambda epoch: 32 - 32 * epoch) as loader:
        assert len(list(loader)) == len(loader)
        with pytest.raises(ConfigError, match="size: the function returned 0 for epoch 1"):
            next(iter(loader))
