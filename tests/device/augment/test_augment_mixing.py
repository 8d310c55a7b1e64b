"""Tests of mixup, cutmix and random erasing: the papers' formulas, and how boxes and shares are distributed."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.batches.augment_batches import photos

from fastpipe import Augment
from fastpipe.device.augment import pixels
from fastpipe.device.augment.normalised import beta
from fastpipe.plan.draws import key, uniform

COUNT, CLASSES = 24, 30
LABELS = torch.arange(COUNT)


@pytest.fixture(params=["cpu", "accelerator"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with both ways of laying work out; the tensors are on the CPU either way."""
    if request.param == "accelerator":
        monkeypatch.setattr(pixels, "on_cpu", lambda device: False)


def planned(augment: Augment, size: tuple[int, int], **draws: int) -> dict[str, NDArray[Any]]:
    """The arrays of mixing, which is the only operation."""
    plan = augment.plan(np.arange(COUNT), size, **{"seed": 0, "epoch": 0, "batch": 0, **draws})
    return plan.split(plan.arrays)[0]


@pytest.mark.usefixtures("layout")
def test_mixup_is_the_papers_formula() -> None:
    size = (20, 33)
    images = photos(COUNT, *size)
    augment = Augment.imagenet(mixup=0.4, num_classes=CLASSES)
    mixed, soft = augment(images, LABELS)
    x = Augment.imagenet()(images).double()
    y = torch.nn.functional.one_hot(LABELS, CLASSES).double()
    share = torch.from_numpy(planned(augment, size)["share"]).double()
    for i in range(COUNT):
        j, lam = i - 1, share[i]  # the partner is the row before
        torch.testing.assert_close(
            mixed[i].double(), lam * x[i] + (1 - lam) * x[j], atol=1e-6, rtol=0
        )
        torch.testing.assert_close(
            soft[i].double(), lam * y[i] + (1 - lam) * y[j], atol=1e-6, rtol=0
        )


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("alpha", [0.3, 5.0])
def test_cutmix_cuts_a_box_and_labels_are_the_exact_share_of_pixels(alpha: float) -> None:
    """Each image is of one colour, its number, so that a pixel tells where it is from."""
    size = (23, 40)
    images = torch.arange(COUNT, dtype=torch.uint8)[:, None, None, None].expand(COUNT, 3, *size)
    mixed, soft = Augment(mean=None, std=None, cutmix=alpha, num_classes=CLASSES)(images, LABELS)
    number = (mixed * 255).round().long()[:, 0]
    for i in range(COUNT):
        own = number[i] == i
        assert (number[i][~own] == (i - 1) % COUNT).all()
        rows, columns = torch.where(~own)
        if len(rows):
            box = number[i][rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
            assert (box != i).all(), "not a box"
        share = own.double().mean()
        assert soft[i, i] == pytest.approx(float(share), abs=1e-6)
        assert soft[i, (i - 1) % COUNT] == pytest.approx(1 - float(share), abs=1e-6)


def test_cutmix_boxes_are_the_papers() -> None:
    """rx ~ U(0, W), ry ~ U(0, H), rw = W sqrt(1 - lambda), rh = H sqrt(1 - lambda); cut off at the border."""
    height, width, count = 200, 300, 40_000
    augment = Augment.imagenet(cutmix=1.0, num_classes=2)
    plan = augment.plan(np.arange(count), (height, width), seed=1, epoch=0, batch=0)
    top, left, bottom, right = plan.split(plan.arrays)[0]["boxes"].T
    whole = (top > 0) & (left > 0) & (bottom < height) & (right < width)
    sides = (bottom - top)[whole] / height, (right - left)[whole] / width
    assert np.abs(sides[0] - sides[1]).max() < 0.02
    # The share of boxes at least 0.3 a side, of all: lambda is uniform, so P(1 - lambda > 0.09) = 0.91; near a border
    # less of a box is left, which is worked out here from the middle's distribution.
    rng = np.random.default_rng(0)
    side = np.sqrt(1 - rng.random(count))
    x, y = rng.random(count), rng.random(count)
    w = np.minimum(x + side / 2, 1) - np.maximum(x - side / 2, 0)
    h = np.minimum(y + side / 2, 1) - np.maximum(y - side / 2, 0)
    ours = (bottom - top) / height * (right - left) / width
    assert ks_distance(ours, w * h) < 0.02


@pytest.mark.usefixtures("layout")
def test_with_both_each_sample_takes_one_half_and_half() -> None:
    size = (16, 16)
    augment = Augment.imagenet(mixup=0.4, cutmix=1.0, num_classes=CLASSES)
    images = photos(COUNT, *size)
    mixed, soft = augment(images, LABELS)
    arrays, x = planned(augment, size), Augment.imagenet()(images)
    assert 4 < arrays["cut"].sum() < 20
    torch.testing.assert_close(soft.sum(1), torch.ones(COUNT))
    for i in range(COUNT):
        expected = x[i].clone()
        if arrays["cut"][i]:
            top, left, bottom, right = arrays["boxes"][i]
            expected[:, top:bottom, left:right] = x[i - 1][:, top:bottom, left:right]
        else:
            expected = torch.lerp(x[i - 1], x[i], float(arrays["share"][i]))
        torch.testing.assert_close(mixed[i], expected, atol=1e-6, rtol=0)
    many = augment.plan(np.arange(20_000), size, seed=0, epoch=0, batch=0)
    assert many.hosts[0][0].mean() == pytest.approx(0.5, abs=0.02)


def test_one_image_mixes_with_itself() -> None:
    image = photos(1, 12, 12)
    mixed, soft = Augment.imagenet(mixup=0.5, cutmix=0.5, num_classes=3)(image, torch.tensor([2]))
    torch.testing.assert_close(mixed, Augment.imagenet()(image), atol=1e-6, rtol=0)
    assert soft.tolist() == [[0, 0, 1]]


def test_smoothing_and_mixing_go_together() -> None:
    augment = Augment.imagenet(mixup=0.4, label_smoothing=0.2, num_classes=CLASSES)
    _, soft = augment(photos(COUNT, 9, 9), LABELS)
    share = planned(augment, (9, 9))["share"]
    low = 0.2 / CLASSES
    assert soft[5, 5] == pytest.approx(0.8 * share[5] + low, abs=1e-6)
    assert soft[5, 4] == pytest.approx(0.8 * (1 - share[5]) + low, abs=1e-6)
    assert soft[5, 7] == pytest.approx(low, abs=1e-6)


def ks_distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Kolmogorov-Smirnov's, of two samples."""
    both = np.sort(np.concatenate([one, other]))
    shares = (
        np.searchsorted(np.sort(values), both, side="right") / len(values)
        for values in (one, other)
    )
    first, second = shares
    return float(np.abs(first - second).max())


DRAWS = 200_000
# Cumulative distribution functions that have a closed form.
KNOWN = {
    0.5: lambda x: 2 / math.pi * np.arcsin(np.sqrt(x)),
    1.0: lambda x: x,
    2.0: lambda x: 3 * x**2 - 2 * x**3,
    3.0: lambda x: x**3 * (10 - 15 * x + 6 * x**2),
}


def test_shares_follow_beta() -> None:
    u, v = (uniform(key(7, 0, stream), np.arange(DRAWS)) for stream in (1, 2))
    for alpha, distribution in KNOWN.items():
        values = np.sort(beta(u, v, alpha))
        distance = np.abs(distribution(values) - np.arange(DRAWS) / DRAWS).max()
        assert distance < 2.85 / math.sqrt(DRAWS), alpha  # a significance of about 1 in 10 million
    for alpha in (0.05, 0.2, 0.8, 4.0, 50.0):
        values = beta(u, v, alpha)
        variance = 1 / (4 * (2 * alpha + 1))
        assert values.mean() == pytest.approx(0.5, abs=5 * math.sqrt(variance / DRAWS))
        assert values.var() == pytest.approx(variance, rel=0.02)


def test_extreme_draws_are_shares_too() -> None:
    u, v = np.meshgrid([0.0, 1e-300, 0.5, 1 - 2**-53], [0.0, 0.25, 0.5, 0.75])
    for alpha in (1e-3, 1e-2, 1e4):
        with np.errstate(all="raise", under="ignore"):
            values = beta(u.ravel(), v.ravel(), alpha)
        assert ((values >= 0) & (values <= 1)).all()


@pytest.mark.usefixtures("layout")
def test_erasing_blanks_a_box_after_normalising() -> None:
    images = photos(COUNT, 40, 30)
    erased, kept = Augment.imagenet(erasing=0.5)(images), Augment.imagenet()(images)
    changed = 0
    for one, other in zip(erased, kept, strict=True):
        blank = (one == 0).all(0) & (other != 0).any(0)
        assert torch.equal(one[:, ~blank], other[:, ~blank])
        if blank.any():
            changed += 1
            rows, columns = torch.where(blank)
            box = one[:, rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
            assert (box == 0).all()
    assert 5 < changed < 20


def test_erased_boxes_are_distributed_as_torchvisions(torchvision: ModuleType) -> None:
    height, width, count = 224, 160, 4000
    plan = Augment.imagenet(erasing=1.0).plan(
        np.arange(count), (height, width), seed=0, epoch=0, batch=0
    )
    top, left, bottom, right = plan.split(plan.arrays)[0]["boxes"].T.astype(float)
    ours = {
        "area": (bottom - top) * (right - left),
        "ratio": (bottom - top) / (right - left),
        "top": top,
        "left": left,
    }
    picture = torch.empty(3, height, width)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        get_params = torchvision.transforms.RandomErasing.get_params
        drawn = np.array(
            [get_params(picture, (0.02, 0.33), (0.3, 3.3), [0.0])[:4] for _ in range(count)], float
        )
    i, j, h, w = drawn.T
    theirs = {"area": h * w, "ratio": h / w, "top": i, "left": j}
    for name, values in ours.items():
        assert ks_distance(values, theirs[name]) < 2.85 * math.sqrt(2 / count), name
    assert len(top) == count


def test_tiny_and_long_images_are_erased_and_cut_within_their_borders() -> None:
    augment = Augment.imagenet(erasing=1.0, cutmix=1.0, mixup=1.0, num_classes=CLASSES)
    for size in ((1, 1), (1, 9), (3, 2), (2, 200)):
        mixed, soft = augment(photos(COUNT, *size), LABELS)
        assert mixed.isfinite().all()
        torch.testing.assert_close(soft.sum(1), torch.ones(COUNT))
