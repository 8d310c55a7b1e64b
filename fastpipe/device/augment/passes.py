"""Stages of a plan -> passes over the images that take the place of one or several stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fastpipe.device.augment.merged_warps import find_warp_runs
from fastpipe.device.augment.operation import (
    LaunchedRun,
    Operation,
    Run,
    Step,
    WarpRun,
    with_prefix,
)
from fastpipe.device.augment.triton_passes.launch import (
    can_launch,
    change_images,
    has_triton,
)
from fastpipe.device.augment.triton_passes.runs import find_blur_runs, find_runs

_RUN = "run."  # before the names of a run's arrays, in the arrays of its first stage


def find_passes(
    stages: Sequence[tuple[Operation, Step]],
    count: int,
    channels: int,
    *,
    merge_geometry: bool,
) -> list[Run]:
    """The runs of stages, for a batch of `count` samples, that are one pass, or can be on a GPU."""
    runs: list[Run] = []
    if merge_geometry:
        warps = [operation.warps(step) for operation, step in stages]
        runs.extend(find_warp_runs(warps, count))
    if has_triton():
        pixel_steps = []
        for number, (operation, step) in enumerate(stages):
            is_merged = any(run.first <= number < run.end for run in runs)
            steps_of_stage = None
            if not is_merged:
                steps_of_stage = operation.pixel_steps(step, channels)
            pixel_steps.append(steps_of_stage)
        runs.extend(find_runs(pixel_steps, count))
        blurs = [operation.blurs(step) for operation, step in stages]
        runs.extend(find_blur_runs(blurs, count))
    return runs


def name_array(run: Run, name: str) -> str:
    """The name of an array of a run among those of its first stage."""
    return f"{run.first}.{_RUN}{name}"


def tensors_of(
    run: Run, step_tensors: Sequence[Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """The arrays of a run, on the device."""
    return with_prefix(step_tensors[run.first], _RUN)


def can_carry_out(run: Run, images: Tensor) -> bool:
    """Whether these images can have the pass, and not the stages one by one."""
    return not isinstance(run, LaunchedRun) or can_launch(images)


def carry_out(
    images: Tensor,
    run: Run,
    tensors: Mapping[str, Tensor],
    memory_format: torch.memory_format,
) -> Tensor:
    """Carries the stages of a run out, into fresh memory, of this format if a kernel writes it."""
    if isinstance(run, WarpRun):
        # Only here: see formulas.find_formula.
        from fastpipe.device.augment.formulas.geometry import warp_images

        images = images.to(torch.float32)
        return warp_images(images, tensors["matrices"], run.sampling)
    assert isinstance(run, LaunchedRun)
    out = torch.empty(
        images.shape,
        dtype=torch.float32,
        device=images.device,
        memory_format=memory_format,
    )
    change_images(images, run, tensors, out)
    return out


def carry_out_into(
    images: Tensor,
    run: LaunchedRun,
    tensors: Mapping[str, Tensor],
    out: Tensor,
    moments: tuple[Tensor, Tensor],
) -> None:
    """Carries a run of the last stages out, and normalises, in one pass."""
    change_images(images, run, tensors, out, moments)
