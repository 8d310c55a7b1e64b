"""Which stages a GPU with Triton carries out in one pass, and how many kernels a batch takes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from support.batches.augment_batches import photos
from support.batches.formula_cases import k
from support.checkout import ROOT
from support.devices.launches import launches_of

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench.gpu.training import augments
from fastpipe import Augment, ConfigError
from fastpipe.device.augment import AugmentPlan
from fastpipe.device.augment import passes as augment_passes
from fastpipe.device.augment.operation import BlurRun, ColourRun
from fastpipe.device.augment.pixel_steps import Code, PixelStep
from fastpipe.device.augment.triton_passes import launch
from fastpipe.device.augment.triton_passes.runs import find_runs

KERNEL = "fastpipe.device.augment.triton_passes.kernel"


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """As if there were Triton: the runs that would be launched, which change nothing."""
    launched: list[Any] = []

    def note(images: torch.Tensor, run: Any, *_: Any) -> None:
        launched.append(run)

    monkeypatch.setattr(augment_passes, "has_triton", lambda: True)
    monkeypatch.setattr(augment_passes, "can_launch", lambda _: True)
    monkeypatch.setattr(augment_passes, "change_images", note)
    return launched


def plan_of(*modules: Any, count: int = 40, channels: int = 3) -> AugmentPlan:
    augment = Augment(list(modules))
    return augment.plan(np.arange(count), (16, 12), seed=1, epoch=0, batch=0, channels=channels)


def runs_of(*modules: Any) -> list[tuple[int, int]]:
    runs = plan_of(*modules).runs
    return [(run.first, run.end) for run in runs if isinstance(run, ColourRun)]


def kernels_of(augment: Augment, size: int, passes: list[Any]) -> int:
    """The number of kernels of a batch of 256, after the first batch."""
    images = torch.empty((256, 3, size, size), dtype=torch.uint8, device="meta")
    # Modules of others are looked at in the first two batches.
    launches_of(augment, images)
    launches_of(augment, images)
    passes.clear()
    count = len(launches_of(augment, images))
    for run in passes:
        is_one_kernel = isinstance(run, ColourRun) and not run.has_contrast
        count += 1 if is_one_kernel else 2
    return count


def test_four_modules_of_kornias_take_few_kernels(passes: list[Any]) -> None:
    """303 kernels and copies, if kornia is called: the training loop's thread launches them."""
    # From bytes to normalised: grey summed up, colours changed, blurred across, blurred down.
    assert kernels_of(augments(224)["kornia"], 224, passes) == 4
    assert [(run.first, run.end) for run in passes] == [(0, 3), (3, 4)]


def test_without_triton_they_take_half_of_what_kornia_takes() -> None:
    assert kernels_of(augments(224)["kornia"], 224, []) <= 150


def test_colours_to_normalised_are_two_kernels(passes: list[Any]) -> None:
    modules = [k.RandomVerticalFlip(), k.ColorJitter(0.4, 0.4, 0.4, 0.1), k.RandomInvert()]
    assert kernels_of(Augment(modules), 32, passes) == 2
    assert kernels_of(Augment(k.RandomHue((-0.1, 0.1))), 32, passes) == 1


@pytest.mark.usefixtures("passes")
def test_a_run_ends_where_a_pass_could_not_go_on() -> None:
    jitter = k.ColorJitter(0.4, 0.4, 0.4, 0.1, p=1.0)
    blur = k.RandomGaussianBlur((3, 3), (0.1, 2.0))
    flip = k.RandomHorizontalFlip()
    erasing = k.RandomErasing(p=1.0)
    assert runs_of(flip, jitter, blur, erasing) == [(0, 2), (3, 4)]
    assert runs_of(blur) == []
    # A second mean has to be summed up after the first contrast.
    assert runs_of(jitter, k.RandomInvert(), jitter) == [(0, 2), (2, 3)]
    # A mirrored box would be another one.
    assert runs_of(flip, erasing, flip) == [(0, 2), (2, 3)]
    # Its results may leave [0, 1], which is looked for after a stage.
    assert runs_of(k.RandomInvert(255.0)) == []


@pytest.mark.usefixtures("passes")
def test_a_blur_is_planned_for_the_whole_batch() -> None:
    plan = plan_of(k.RandomGaussianBlur((3, 5), (0.1, 2.0), "replicate", p=0.5), count=9)
    (run,) = plan.runs
    assert isinstance(run, BlurRun)
    assert run.border == "replicate"
    changed = run.arrays["changed"]
    assert 0 < changed.sum() < 9
    for name, taps in (("across", 5), ("down", 3)):
        weights = run.arrays[name]
        assert weights.shape == (9, taps)
        assert weights.sum(1) == pytest.approx(changed)


class Halves(torch.nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, :, ::2, ::2]


class Grays(torch.nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, :1]


@pytest.mark.parametrize(
    ("module", "message"),
    [(Halves(), "changed the images' size"), (Grays(), "returned shape")],
)
def test_a_pass_refuses_other_images_than_it_was_planned_for(
    module: torch.nn.Module, message: str, passes: list[Any]
) -> None:
    for modules in (
        [module, k.RandomHue((-0.1, 0.1))],
        [module, k.RandomHue((-0.1, 0.1)), k.RandomGaussianBlur((3, 3), (0.1, 2.0))],
    ):
        with pytest.raises(ConfigError, match=message):
            Augment(modules)(photos(4, 16, 12))
    assert passes == []


@pytest.mark.usefixtures("passes")
def test_gray_images_have_no_runs() -> None:
    assert plan_of(k.RandomInvert(), channels=1).runs == ()


def test_without_triton_a_plan_has_no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augment_passes, "has_triton", lambda: False)
    assert plan_of(k.RandomInvert()).runs == ()


def test_where_triton_cannot_launch_the_stages_are_carried_out_one_by_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    augment = Augment(k.RandomHue((-0.1, 0.1), p=1.0))
    images = photos(3, 8, 8)
    expected = augment(images, seed=1)
    monkeypatch.setattr(augment_passes, "has_triton", lambda: True)
    monkeypatch.setattr(launch, "has_triton", lambda: True)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    # As if there were no compiler: the kernels cannot be imported.
    monkeypatch.setitem(sys.modules, KERNEL, None)
    launch._works_on.cache_clear()
    assert torch.equal(augment(images, seed=1), expected)
    assert torch.equal(augment(images, seed=1), expected)
    messages = [record.message for record in caplog.records]
    assert len(messages) == 1
    assert "Triton needs a C compiler" in messages[0]
    launch._works_on.cache_clear()


def test_steps_of_a_sample_come_one_after_the_other() -> None:
    first_factors = np.array([0.5, 0.6], np.float32)
    stages = [
        [(np.array([0, 2]), [PixelStep(Code.MULTIPLY, (first_factors,))])],
        [
            (np.array([2]), [PixelStep(Code.FLIP_DOWN)]),
            (np.array([1]), [PixelStep(Code.CLAMP), PixelStep(Code.CONTRAST, (0.25,))]),
        ],
        [(None, [PixelStep(Code.GREY)])],
    ]
    (run,) = find_runs(stages, 3)
    assert (run.first, run.end, run.has_contrast) == (0, 3, True)
    codes = run.arrays["codes"]
    assert codes[0].tolist()[:2] == [Code.MULTIPLY, Code.GREY]
    assert codes[1].tolist()[:3] == [Code.CLAMP, Code.CONTRAST, Code.GREY]
    assert codes[2].tolist()[:2] == [Code.MULTIPLY, Code.GREY]
    assert run.arrays["values"][:, :, 0].max(1).tolist() == pytest.approx([0.5, 0.25, 0.6])
    assert run.arrays["flips"].tolist() == [[0, 0], [0, 0], [0, 1]]
    num_steps = codes.shape[1]
    assert run.arrays["contrast_at"].tolist() == [num_steps, 1, num_steps]
    assert (codes[:, 3:] == Code.NOTHING).all()


def test_two_flips_of_a_sample_are_none() -> None:
    flip = [(None, [PixelStep(Code.FLIP_ACROSS)])]
    (run,) = find_runs([flip, flip], 2)
    assert run.arrays["flips"].tolist() == [[0, 0], [0, 0]]
