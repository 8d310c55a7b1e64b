"""The steps of neighbouring stages -> runs of stages, and the arrays of a pass over the images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpipe.device.augment.operation import (
    Array,
    BlurRun,
    ColourRun,
    StageBlurs,
    StageSteps,
    number_rows,
)
from fastpipe.device.augment.pixel_steps import NUM_VALUES, Code

_FLIPS = (Code.FLIP_ACROSS, Code.FLIP_DOWN)


def find_runs(stages: Sequence[StageSteps | None], count: int) -> list[ColourRun]:
    """The runs among the stages of a batch of `count` samples; None: a stage without pixel steps.

    A pass sums up one mean, so it has one stage with contrast. It mirrors images before all else,
    so no stage mirrors a box that was erased before it.
    """
    runs = []
    members: list[StageSteps] = []
    first = 0
    for number, stage in enumerate([*stages, None]):
        continues = stage is not None
        if stage is not None and members:
            codes_before = set().union(*map(_codes_of, members))
            codes = _codes_of(stage)
            has_second_mean = Code.CONTRAST in codes & codes_before
            mirrors_box = Code.ERASE in codes_before and not codes.isdisjoint(_FLIPS)
            continues = not (has_second_mean or mirrors_box)
        if members and not continues:
            # Stages that change no sample of this batch need no pass.
            if any(members):
                runs.append(_make_run(first, members, count))
            members = []
        if stage is not None:
            if not members:
                first = number
            members.append(stage)
    return runs


def _codes_of(stage: StageSteps) -> set[Code]:
    codes = set()
    for _, steps in stage:
        for step in steps:
            codes.add(step.code)
    return codes


def _make_run(first: int, stages: Sequence[StageSteps], count: int) -> ColourRun:
    """The arrays of a pass; the steps of a sample come one after the other, from the first on."""
    num_steps = 1  # a kernel takes no empty array
    for stage in stages:
        num_steps += max((len(steps) for _, steps in stage), default=0)
    codes = np.zeros((count, num_steps), np.int64)
    values = np.zeros((count, num_steps, NUM_VALUES), np.float32)
    flips = np.zeros((count, 2), np.int64)
    contrast_at = np.full(count, num_steps)
    next_step = np.zeros(count, np.int64)  # of each sample

    for stage in stages:
        for rows, steps in stage:
            row_numbers = number_rows(rows, count)
            for step in steps:
                if step.code in _FLIPS:
                    flips[row_numbers, _FLIPS.index(step.code)] ^= 1
                    continue
                numbers = next_step[row_numbers]
                codes[row_numbers, numbers] = step.code
                for place, value in enumerate(step.values):
                    values[row_numbers, numbers, place] = _first(
                        value, len(row_numbers)
                    )
                if step.code == Code.CONTRAST:
                    contrast_at[row_numbers] = numbers
                next_step[row_numbers] = numbers + 1
    arrays: dict[str, Array] = {
        "codes": codes,
        "values": values,
        "flips": flips,
        "contrast_at": contrast_at,
    }
    has_contrast = bool((contrast_at < num_steps).any())
    return ColourRun(first, first + len(stages), arrays, has_contrast)


def _first(value: Array | float, count: int) -> Array | float:
    """The numbers of the first `count` rows: those of a single image are there twice."""
    return value[:count] if isinstance(value, np.ndarray) else value


def find_blur_runs(stages: Sequence[StageBlurs | None], count: int) -> list[BlurRun]:
    """The stages that blur samples of a batch; None: a stage that does not blur."""
    runs = []
    for number, stage in enumerate(stages):
        if stage:
            runs.append(_make_blur_run(number, stage, count))
    return runs


def _make_blur_run(number: int, stage: StageBlurs, count: int) -> BlurRun:
    _, first_blur = stage[0]
    # All calls of a module have as many weights.
    across = np.zeros((count, first_blur.across.shape[1]), np.float32)
    down = np.zeros((count, first_blur.down.shape[1]), np.float32)
    changed = np.zeros(count, np.int64)
    for rows, blur in stage:
        row_numbers = number_rows(rows, count)
        across[row_numbers] = blur.across[: len(row_numbers)]
        down[row_numbers] = blur.down[: len(row_numbers)]
        changed[row_numbers] = 1
    arrays: dict[str, Array] = {"across": across, "down": down, "changed": changed}
    return BlurRun(number, number + 1, arrays, first_blur.border)
