"""Geometry: where each pixel of the result comes from; flips, warps by a matrix, and resizing.

Source of the formulas: kornia 0.9, `kornia.geometry`. The matrices are kornia's own, computed on
the host; they are inverted and applied in kornia's order of arithmetic, so that the nearest pixel
is the same pixel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fastpipe.device.augment import pixels
from fastpipe.device.augment.formulas.formula import (
    Formula,
    Parameters,
    Prepared,
    Tensors,
    of_names,
)
from fastpipe.device.augment.pixel_steps import Code, one_step
from fastpipe.device.augment.warps import MakeWarp, Sampling, of_flip, of_matrices
from fastpipe.plan.crops import Size


def horizontal_flip(module: Any) -> Formula:
    """RandomHorizontalFlip."""
    return _flip(3, Code.FLIP_ACROSS, of_flip(-1, 1))


def vertical_flip(module: Any) -> Formula:
    """RandomVerticalFlip."""
    return _flip(2, Code.FLIP_DOWN, of_flip(1, -1))


def _flip(dimension: int, code: Code, warp: MakeWarp) -> Formula:
    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        return images.flip(dimension)

    steps = one_step(code)
    return Formula(of_names(), change, memory_format=None, steps=steps, warp=warp)


def affine(module: Any) -> Formula | None:
    """RandomAffine, RandomRotation, RandomRotation90, RandomShear and RandomTranslate."""
    flags = module.flags
    padding_mode = "zeros"
    if "padding_mode" in flags:
        padding_mode = flags["padding_mode"].name.lower()
    # torch fills with 0, the border or a reflection only.
    if padding_mode == "fill":
        return None
    mode = flags["resample"].name.lower()
    sampling = Sampling(mode, padding_mode, flags["align_corners"])

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        matrices = _matrices_of(module, parameters, shape)
        size = (shape[2], shape[3])
        to_inputs = _from_output_to_input(matrices, size, sampling.align_corners)
        # The last row is 0, 0, 1.
        return Prepared({"matrices": to_inputs[:, :2]})

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        height, width = images.shape[2:]
        x = _even_places(width, sampling.align_corners, images.device)
        y = _even_places(height, sampling.align_corners, images.device)
        places = _apply(tensors["matrices"], x, y)
        return _sample(images, places, sampling)

    warp = of_matrices(sampling)
    return Formula(prepare, change, memory_format=None, warp=warp)


def perspective(module: Any) -> Formula:
    """RandomPerspective."""
    flags = module.flags
    mode = flags["resample"].name.lower()
    sampling = Sampling(mode, "zeros", flags["align_corners"])

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        matrices = _matrices_of(module, parameters, shape)
        matrices = matrices / _projective_scale(matrices)
        size = (shape[2], shape[3])
        to_inputs = _from_output_to_input(matrices, size, sampling.align_corners)
        return Prepared({"matrices": to_inputs})

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        return warp_images(images, tensors["matrices"], sampling)

    warp = of_matrices(sampling)
    return Formula(prepare, change, memory_format=None, warp=warp)


def warp_images(images: Tensor, matrices: Tensor, sampling: Sampling) -> Tensor:
    """Moves pixels by projective matrices (n, 3, 3), as of a Warp."""
    height, width = images.shape[2:]
    x = _divided_places(width, sampling.align_corners, images.device)
    y = _divided_places(height, sampling.align_corners, images.device)
    numerators_and_divisor = _apply(matrices, x, y)
    places = numerators_and_divisor[:, :2] / numerators_and_divisor[:, 2:]
    return _sample(images, places, sampling)


def resized_crop(module: Any) -> Formula | None:
    """RandomResizedCrop, which cuts boxes of whole pixels out and resizes them."""
    flags = module.flags
    mode = flags["resample"].name.lower()
    if flags["cropping_mode"] != "slice" or mode not in ("nearest", "bilinear"):
        return None
    align_corners = flags["align_corners"]
    size = (int(flags["size"][0]), int(flags["size"][1]))

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        # (n, 4, 2): x, y of the corners, clockwise from the left top. The bottom right corner is a
        # pixel of the box.
        corners = parameters["src"].to(torch.int64)
        top_left = corners[:, 0].flip(1)
        bottom_right = corners[:, 2].flip(1) + 1
        return Prepared({"boxes": torch.cat([top_left, bottom_right], dim=1)})

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        if pixels.on_cpu(images.device):
            return _resize_one_by_one(
                images, tensors["boxes"], size, mode, align_corners
            )
        top, left, bottom, right = tensors["boxes"].unbind(1)
        resize = _resize_along
        if mode == "nearest":
            resize = _take_nearest_along
        images = resize(images, 2, top, bottom, size[0], align_corners)
        return resize(images, 3, left, right, size[1], align_corners)

    return Formula(prepare, change, changes_size=True, memory_format=None)


def resize(module: Any) -> Formula | None:
    """Resize, LongestMaxSize and SmallestMaxSize, without a filter against aliasing."""
    flags = module.flags
    if flags["antialias"]:
        return None
    mode = flags["resample"].name.lower()
    align_corners = flags["align_corners"]
    if mode == "nearest":
        mode = "nearest-exact"
        align_corners = None

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        height, width = parameters["output_size"][0].tolist()
        return Prepared({}, host=(height, width))

    def change(images: Tensor, tensors: Tensors, host: Size) -> Tensor:
        return functional.interpolate(
            images, host, mode=mode, align_corners=align_corners
        )

    return Formula(prepare, change, changes_size=True, memory_format=None)


def _matrices_of(module: Any, parameters: Parameters, shape: torch.Size) -> Tensor:
    """(n, 3, 3) kornia's matrices, from an input pixel x, y to an output pixel, on the host."""
    # kornia looks at the shape, the dtype and the device of the images only.
    stand_in = torch.empty((), dtype=torch.float32).expand(shape)
    matrices: Tensor = module.compute_transformation(
        stand_in, dict(parameters), module.flags
    )
    return matrices


def _projective_scale(matrices: Tensor) -> Tensor:
    """(n, 1, 1): kornia divides a projective matrix by it before it inverts it."""
    magnitudes = matrices.abs()
    largest = magnitudes.amax((1, 2), keepdim=True)
    without_zeros = magnitudes.masked_fill(magnitudes == 0, torch.inf)
    smallest = without_zeros.amin((1, 2), keepdim=True)
    scale = largest.clamp_max(1).clamp_min(smallest)
    is_usable = (scale > 0) & torch.isfinite(scale)
    return torch.where(is_usable, scale, 1)


def _from_output_to_input(matrices: Tensor, size: Size, align_corners: bool) -> Tensor:
    """(n, 3, 3) from input to output pixels -> from output to input places, in [-1, 1] each."""
    from kornia.geometry.conversions import normalize_homography

    to_outputs = normalize_homography(matrices, size, size, align_corners=align_corners)
    # The rows of the inverse are the cross products of the columns, divided by the determinant.
    first, second, third = to_outputs.unbind(2)
    first_row = torch.linalg.cross(second, third)
    second_row = torch.linalg.cross(third, first)
    third_row = torch.linalg.cross(first, second)
    determinant = (first * first_row).sum(1)
    adjugate = torch.stack([first_row, second_row, third_row], dim=1)
    inverse: Tensor = adjugate / determinant[:, None, None]
    return inverse


def _even_places(length: int, align_corners: bool, device: torch.device) -> Tensor:
    """(length,) the places of pixels in [-1, 1], as kornia's affine warp computes them."""
    if align_corners and length == 1:
        return torch.zeros(1, dtype=torch.float32, device=device)
    last = 1.0 if align_corners else 1.0 - 1.0 / length
    return torch.linspace(-last, last, length, dtype=torch.float32, device=device)


def _divided_places(length: int, align_corners: bool, device: torch.device) -> Tensor:
    """(length,) the same as kornia's perspective warp computes them, which rounds otherwise."""
    numbers = torch.arange(length, dtype=torch.float32, device=device)
    if not align_corners:
        return numbers.mul_(2).add_(1).div_(length).sub_(1)
    if length == 1:
        return numbers
    return numbers.div_(length - 1).sub_(0.5).mul_(2)


def _apply(matrices: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Matrices (n, k, 3) times x, y, 1 of all pixels -> (n, k, height, width)."""
    # (n, k, 1) each.
    by_x, by_y, offset = matrices[..., None].unbind(2)
    along_rows = by_x * x  # (n, k, width)
    along_columns = by_y * y  # (n, k, height)
    products = along_rows[:, :, None, :] + along_columns[:, :, :, None]
    # kornia adds the offset last.
    return products.add_(offset[..., None])


def _sample(images: Tensor, places: Tensor, sampling: Sampling) -> Tensor:
    """Images at places (n, x and y, height, width)."""
    grid = places.permute(0, 2, 3, 1)
    return functional.grid_sample(
        images,
        grid,
        mode=sampling.mode,
        padding_mode=sampling.padding_mode,
        align_corners=sampling.align_corners,
    )


def _resize_one_by_one(
    images: Tensor, boxes_tlbr: Tensor, size: Size, mode: str, align_corners: bool
) -> Tensor:
    """Resizes a box of each image, on a CPU, where the host knows the boxes."""
    corners: bool | None = align_corners
    if mode == "nearest":
        mode = "nearest-exact"
        corners = None
    resized = []
    for image, box in zip(torch.split(images, 1), boxes_tlbr.tolist(), strict=True):
        top, left, bottom, right = box
        crop = image[:, :, top:bottom, left:right]
        resized.append(
            functional.interpolate(crop, size, mode=mode, align_corners=corners)
        )
    return torch.cat(resized)


def _resize_along(
    images: Tensor,
    dimension: int,
    starts: Tensor,
    ends: Tensor,
    length: int,
    align_corners: bool,
) -> Tensor:
    """Resizes the pixels [start, end) of each image to `length`, between neighbours.

    torch's rule: the places of pixels are those of `torch.nn.functional.interpolate`.
    """
    lengths = (ends - starts).to(torch.float32)[:, None]
    numbers = torch.arange(length, dtype=torch.float32, device=images.device)
    if align_corners:
        places = numbers * ((lengths - 1) / max(1, length - 1))
    else:
        places = ((numbers + 0.5) * (lengths / length) - 0.5).clamp_min_(0)
    # (n, length): the pixel before each place, counted from the start of the box, and the next.
    before = places.floor()
    after = torch.minimum(before + 1, lengths - 1)
    shares = places - before

    def take(numbers_in_box: Tensor) -> Tensor:
        pixel_numbers = numbers_in_box.to(torch.int64) + starts[:, None]
        return _take_along(images, dimension, pixel_numbers)

    shape = [len(images), 1, 1, 1]
    shape[dimension] = length
    return torch.lerp(take(before), take(after), shares.view(shape))


def _take_nearest_along(
    images: Tensor,
    dimension: int,
    starts: Tensor,
    ends: Tensor,
    length: int,
    align_corners: bool,
) -> Tensor:
    """Resizes the pixels [start, end) of each image to `length`, by the nearest pixel."""
    lengths = (ends - starts).to(torch.float32)[:, None]
    numbers = torch.arange(length, dtype=torch.float32, device=images.device)
    places = ((numbers + 0.5) * (lengths / length)).floor_()
    nearest = torch.minimum(places, lengths - 1)
    pixel_numbers = nearest.to(torch.int64) + starts[:, None]
    return _take_along(images, dimension, pixel_numbers)


def _take_along(images: Tensor, dimension: int, pixel_numbers: Tensor) -> Tensor:
    """The rows or columns of each image with these numbers, (n, length)."""
    count, length = pixel_numbers.shape
    shape = list(images.shape)
    shape[dimension] = length
    index_shape = [count, 1, 1, 1]
    index_shape[dimension] = length
    index = pixel_numbers.view(index_shape).expand(shape)
    return images.gather(dimension, index)
