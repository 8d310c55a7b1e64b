"""Filters: each pixel becomes a sum of its neighbours, in one depthwise convolution for all images.

They take any memory format: padding copies images into planes.

Source of the formulas: kornia 0.9, `kornia.filters` and `kornia.enhance.sharpness`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fastpipe.device.augment import effects
from fastpipe.device.augment.blurs import Array, Blur
from fastpipe.device.augment.formulas.formula import (
    Formula,
    Parameters,
    Prepared,
    Tensors,
    of_names,
)
from fastpipe.plan.crops import Size


def sharpness(module: Any) -> Formula:
    """RandomSharpness: 0 blurs, 1 changes nothing, more sharpens; the outermost pixels stay."""

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        images.clamp_(0, 1)
        return effects.sharpness(images, tensors["sharpness"])

    prepare = of_names("sharpness")
    return Formula(prepare, change, least_size=(3, 3), memory_format=None)


def gaussian_blur(module: Any) -> Formula | None:
    """RandomGaussianBlur: along rows and then along columns, or both in one."""
    compile_options = vars(module).get("_compile_kwargs")
    is_compiled = bool(compile_options)
    if is_compiled:
        return None
    from kornia.filters import get_gaussian_kernel1d

    height, width = _height_and_width(module.flags["kernel_size"])
    border = module.flags["border_type"].name.lower()
    is_same_on_batch = module.same_on_batch
    is_in_one = not module.flags["separable"]

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        sigmas = parameters["sigma"][:, None]
        if is_same_on_batch:
            first_sigma = sigmas[:1]
            sigmas = first_sigma.expand_as(sigmas)
        tensors = {"across": get_gaussian_kernel1d(width, sigmas)}
        if height != width:
            tensors["down"] = get_gaussian_kernel1d(height, sigmas)
        num_channels = shape[1]
        for name, weights in tensors.items():
            # A kernel for each channel, so that a GPU need not copy them.
            weights_of_channels = weights[:, None]
            tensors[name] = weights_of_channels.expand(-1, num_channels, -1)
        return Prepared(tensors)

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        # (n, c, taps) each
        weights_across = tensors["across"]
        weights_down = tensors.get("down", weights_across)
        across = weights_across[:, :, None, :]
        down = weights_down[:, :, :, None]
        if is_in_one:
            kernels = down * across
            return effects.convolve(images, kernels, border)
        blurred_across = effects.convolve(images, across, border)
        return effects.convolve(blurred_across, down, border)

    def blur(arrays: Mapping[str, Array], host: None) -> Blur:
        across = arrays["across"]
        down = arrays.get("down", across)
        # All channels have the same weights.
        weights_across = across[:, 0]
        weights_down = down[:, 0]
        return Blur(weights_across, weights_down, border)

    least_size = _least_size((height, width), border)
    return Formula(
        prepare, change, least_size=least_size, blur=blur, memory_format=None
    )


def box_blur(module: Any) -> Formula:
    """RandomBoxBlur: the mean of a box, along rows, then along columns."""
    height, width = _height_and_width(module.flags["kernel_size"])
    border = module.flags["border_type"].name.lower()

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        count, channels = shape[:2]
        shape_across = (count, channels, 1, width)
        shape_down = (count, channels, height, 1)
        across = torch.full(shape_across, 1 / width)
        down = torch.full(shape_down, 1 / height)
        return Prepared({"across": across, "down": down})

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        blurred_across = effects.convolve(images, tensors["across"], border)
        return effects.convolve(blurred_across, tensors["down"], border)

    def blur(arrays: Mapping[str, Array], host: None) -> Blur:
        # (n, width) and (n, height), from (n, c, 1, width) and (n, c, height, 1)
        weights_across = arrays["across"][:, 0, 0]
        weights_down = arrays["down"][:, 0, :, 0]
        return Blur(weights_across, weights_down, border)

    least_size = _least_size((height, width), border)
    return Formula(
        prepare, change, least_size=least_size, blur=blur, memory_format=None
    )


def motion_blur(module: Any) -> Formula | None:
    """RandomMotionBlur: along a line of kornia's, whose length is drawn once a call."""
    from kornia.filters import get_motion_kernel2d

    border = module.flags["border_type"].name.lower()
    mode = module.flags["resample"].name.lower()
    fixed_length = module._fixed_kernel_size

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        length = fixed_length
        if length is None:
            # kornia takes the length of one of the images for all of them.
            image_of_length = int(parameters["idx"][0])
            lengths = parameters["ksize_factor"]
            length = int(lengths[image_of_length])
        angles = parameters["angle_factor"]
        directions = parameters["direction_factor"]
        kernels = get_motion_kernel2d(length, angles, directions, mode)
        return Prepared({"kernels": kernels})

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        kernels = tensors["kernels"][:, None]  # one for all channels
        return effects.convolve(images, kernels, border)

    longest = fixed_length
    if longest is None:
        drawn_lengths = module._param_generator.kernel_size
        longest = int(max(drawn_lengths))
    least_size = _least_size((longest, longest), border)
    return Formula(prepare, change, least_size=least_size, memory_format=None)


def _height_and_width(kernel_size: int | tuple[int, int]) -> Size:
    if isinstance(kernel_size, int):
        return kernel_size, kernel_size
    height, width = kernel_size
    return int(height), int(width)


def _least_size(kernel_size: Size, border: str) -> Size:
    """The least height and width of images that kornia filters with this border."""
    height, width = kernel_size
    # So many pixels lie outside the image at each side.
    padded_rows = height // 2
    padded_columns = width // 2
    if border == "reflect":
        return padded_rows + 1, padded_columns + 1
    if border == "circular":
        return padded_rows, padded_columns
    return 1, 1
