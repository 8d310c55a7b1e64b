"""Launches the kernels of a run: one for colours, or two with contrast; two to blur."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from fastpipe.device.augment.operation import BlurRun, ColourRun, LaunchedRun
from fastpipe.device.augment.pixels import full_of

_LOG = logging.getLogger("fastpipe")
BLOCK_SIZE = 1024  # pixels of a program
# With it, a product and a sum would be rounded once, and tones be others than those of torch.
OPTIONS = {"enable_fp_fusion": False}


@cache
def has_triton() -> bool:
    """Whether Triton is installed; torch's builds for CUDA bring it."""
    return find_spec("triton") is not None


def can_launch(images: Tensor) -> bool:
    """Whether these images can be given to Triton's kernels.

    Triton's interpreter, for tests, takes images on a CPU.
    """
    # Other kinds of tensors stand for memory that a kernel could not read.
    if not has_triton() or type(images) is not Tensor:
        return False
    device_type = "cuda"
    if os.environ.get("TRITON_INTERPRET") == "1":
        device_type = "cpu"
    return images.device.type == device_type and _works_on(images.device)


@cache
def _works_on(device: torch.device) -> bool:
    """Launches each kernel once, and compares what it makes; see `check`.

    Triton is more than a package: it needs a compiler of C, and a folder that it may write.
    """
    from fastpipe.device.augment.triton_passes import check

    images = check.make_images(device)
    out = torch.empty(images.shape, dtype=torch.float32, device=device)
    try:
        for run in check.make_runs():
            tensors = {}
            for name, array in run.arrays.items():
                tensors[name] = torch.from_numpy(array).to(device)
            change_images(images, run, tensors, out)
            check.check_result(images, out, run)
    # Triton raises errors of many kinds: of its own, of the compiler, of the file system.
    except Exception as error:
        _LOG.warning(
            "augment: Triton is installed, but its kernels do not work on %s: %s: %s. Colours "
            "are changed without it, by more and smaller kernels of torch, which takes longer. "
            "Triton needs a C compiler (apt-get install gcc) and a folder for its files that can "
            "be written (TRITON_CACHE_DIR)",
            device,
            type(error).__name__,
            error,
        )
        return False
    return True


def change_images(
    images: Tensor,
    run: LaunchedRun,
    tensors: Mapping[str, Tensor],
    out: Tensor,
    moments: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Carries a run of stages out.

    Args:
        images: (n, c, height, width) uint8, uint16 or float32, in any memory format.
        run: of the plan.
        tensors: its arrays, on the images' device.
        out: (n, c, height, width) for the results, of any floating dtype and memory format.
        moments: what pixels are multiplied by, and what is added after it, (c,) each; None: they
            are not normalised.
    """
    # A kernel is launched on the current device.
    with torch.cuda.device(images.device) if images.is_cuda else nullcontext():
        if isinstance(run, BlurRun):
            _blur(images, run, tensors, out, moments)
        else:
            assert isinstance(run, ColourRun)
            _change_colours(images, run, tensors, out, moments)


def _change_colours(
    images: Tensor,
    run: ColourRun,
    tensors: Mapping[str, Tensor],
    out: Tensor,
    moments: tuple[Tensor, Tensor] | None,
) -> None:
    # Only here: it takes a moment, and who has no GPU does not need it.
    from fastpipe.device.augment.triton_passes import kernel

    count, _, height, width = images.shape
    num_blocks = _num_blocks(images)
    num_steps = tensors["codes"].shape[1]
    programs = (num_blocks, count)
    steps = [tensors[name] for name in ("codes", "values", "flips", "contrast_at")]
    sums = torch.empty(programs[::-1], dtype=torch.float32, device=images.device)
    factors, shifts = moments or (sums, sums)
    if run.has_contrast:
        kernel.sum_greys[programs](
            images,
            sums,
            *steps,
            num_steps,
            height,
            width,
            *images.stride(),
            _scale_of(images),
            block_size=BLOCK_SIZE,
            **OPTIONS,
        )
    kernel.change_pixels[programs](
        images,
        out,
        sums,
        *steps,
        factors,
        shifts,
        num_steps,
        height,
        width,
        *images.stride(),
        *out.stride(),
        _scale_of(images),
        block_size=BLOCK_SIZE,
        num_sums=1 << (num_blocks - 1).bit_length(),
        normalises=moments is not None,
        **OPTIONS,
    )


def _blur(
    images: Tensor,
    run: BlurRun,
    tensors: Mapping[str, Tensor],
    out: Tensor,
    moments: tuple[Tensor, Tensor] | None,
) -> None:
    """Along rows into planes, and from there along columns."""
    from fastpipe.device.augment.triton_passes import kernel

    count, channels, height, width = images.shape
    programs = (_num_blocks(images), count * channels)
    planes = torch.empty(images.shape, dtype=torch.float32, device=images.device)
    changed = tensors["changed"]
    for source, target, name in ((images, planes, "across"), (planes, out, "down")):
        weights = tensors[name]
        is_last = name == "down"
        factors, shifts = weights, weights
        if is_last and moments is not None:
            factors, shifts = moments
        kernel.blur_along[programs](
            source,
            target,
            weights,
            changed,
            factors,
            shifts,
            weights.shape[1],
            channels,
            height,
            width,
            *source.stride(),
            *target.stride(),
            _scale_of(source),
            block_size=BLOCK_SIZE,
            is_down=is_last,
            border=run.border,
            normalises=is_last and moments is not None,
            **OPTIONS,
        )


def _num_blocks(images: Tensor) -> int:
    """Programs for the pixels of an image."""
    area = images.shape[2] * images.shape[3]
    return -(-area // BLOCK_SIZE)


def _scale_of(images: Tensor) -> float:
    """What makes their values numbers in [0, 1]."""
    if images.dtype.is_floating_point:
        return 1.0
    return 1 / full_of(8 * images.element_size())
