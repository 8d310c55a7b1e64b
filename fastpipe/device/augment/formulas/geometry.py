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
        padding_mode = _flag_name(flags["padding_mode"])
    # torch fills with 0, the border or a reflection only.
    if padding_mode == "fill":
        return None
    mode = _flag_name(flags["resample"])
    sampling = Sampling(mode, padding_mode, flags["align_corners"])

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        matrices = _matrices_of(module, parameters, shape)
        size = (shape[2], shape[3])
        to_inputs = _from_output_to_input(matrices, size, sampling.align_corners)
        # The last row is 0, 0, 1.
        first_rows = to_inputs[:, :2]
        return Prepared({"matrices": first_rows})

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
    mode = _flag_name(flags["resample"])
    sampling = Sampling(mode, "zeros", flags["align_corners"])

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        unscaled = _matrices_of(module, parameters, shape)
        scale = _projective_scale(unscaled)
        matrices = unscaled / scale
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
    numerators = numerators_and_divisor[:, :2]
    divisor = numerators_and_divisor[:, 2:]
    places = numerators / divisor
    return _sample(images, places, sampling)


def resized_crop(module: Any) -> Formula | None:
    """RandomResizedCrop, which cuts boxes of whole pixels out and resizes them."""
    flags = module.flags
    mode = _flag_name(flags["resample"])
    cuts_whole_pixels = flags["cropping_mode"] == "slice"
    if not cuts_whole_pixels or mode not in ("nearest", "bilinear"):
        return None
    align_corners = flags["align_corners"]
    height, width = flags["size"]
    size = (int(height), int(width))

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        # (n, 4, 2): x, y of the corners, clockwise from the left top. The bottom right corner is a
        # pixel of the box.
        corners = parameters["src"].to(torch.int64)
        left_top = corners[:, 0]
        last_pixel = corners[:, 2]
        right_bottom = last_pixel + 1
        # x, y -> y, x
        top_left = left_top.flip(1)
        bottom_right = right_bottom.flip(1)
        boxes_tlbr = torch.cat([top_left, bottom_right], dim=1)
        return Prepared({"boxes": boxes_tlbr})

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        if pixels.on_cpu(images.device):
            return _resize_one_by_one(
                images, tensors["boxes"], size, mode, align_corners
            )
        top, left, bottom, right = tensors["boxes"].unbind(1)
        resize = _resize_along
        if mode == "nearest":
            resize = _take_nearest_along
        new_height, new_width = size
        images = resize(images, 2, top, bottom, new_height, align_corners)
        return resize(images, 3, left, right, new_width, align_corners)

    return Formula(prepare, change, changes_size=True, memory_format=None)


def resize(module: Any) -> Formula | None:
    """Resize, LongestMaxSize and SmallestMaxSize, without a filter against aliasing."""
    flags = module.flags
    if flags["antialias"]:
        return None
    mode = _flag_name(flags["resample"])
    align_corners = flags["align_corners"]
    if mode == "nearest":
        mode = "nearest-exact"
        align_corners = None

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        # (n, 2): all images get one size.
        first_size = parameters["output_size"][0]
        height, width = first_size.tolist()
        return Prepared({}, host=(height, width))

    def change(images: Tensor, tensors: Tensors, host: Size) -> Tensor:
        return functional.interpolate(
            images, host, mode=mode, align_corners=align_corners
        )

    return Formula(prepare, change, changes_size=True, memory_format=None)


def _flag_name(flag: Any) -> str:
    """One of kornia's enumerations -> its member's name, as torch has it."""
    return str(flag.name.lower())


def _matrices_of(module: Any, parameters: Parameters, shape: torch.Size) -> Tensor:
    """(n, 3, 3) kornia's matrices, from an input pixel x, y to an output pixel, on the host."""
    # kornia looks at the shape, the dtype and the device of the images only.
    one_number = torch.empty((), dtype=torch.float32)
    stand_in = one_number.expand(shape)
    matrices: Tensor = module.compute_transformation(
        stand_in, dict(parameters), module.flags
    )
    return matrices


def _projective_scale(matrices: Tensor) -> Tensor:
    """(n, 1, 1): kornia divides a projective matrix by it before it inverts it."""
    magnitudes = matrices.abs()
    largest = magnitudes.amax((1, 2), keepdim=True)
    is_zero = magnitudes == 0
    without_zeros = magnitudes.masked_fill(is_zero, torch.inf)
    smallest = without_zeros.amin((1, 2), keepdim=True)
    at_most_1 = largest.clamp_max(1)
    scale = at_most_1.clamp_min(smallest)
    is_positive = scale > 0
    is_usable = is_positive & torch.isfinite(scale)
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
    products = first * first_row
    determinant = products.sum(1)  # (n,)
    adjugate = torch.stack([first_row, second_row, third_row], dim=1)
    divisor = determinant[:, None, None]
    inverse: Tensor = adjugate / divisor
    return inverse


def _even_places(length: int, align_corners: bool, device: torch.device) -> Tensor:
    """(length,) the places of pixels in [-1, 1], as kornia's affine warp computes them."""
    if align_corners and length == 1:
        return torch.zeros(1, dtype=torch.float32, device=device)
    last = 1.0
    if not align_corners:
        # The middle of the last pixel is half a pixel before the edge.
        last -= 1.0 / length
    return torch.linspace(-last, last, length, dtype=torch.float32, device=device)


def _divided_places(length: int, align_corners: bool, device: torch.device) -> Tensor:
    """(length,) the same as kornia's perspective warp computes them, which rounds otherwise."""
    numbers = torch.arange(length, dtype=torch.float32, device=device)
    if not align_corners:
        numbers.mul_(2)
        numbers.add_(1)
        numbers.div_(length)
        return numbers.sub_(1)
    if length == 1:
        return numbers
    numbers.div_(length - 1)
    numbers.sub_(0.5)
    return numbers.mul_(2)


def _apply(matrices: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Matrices (n, k, 3) times x, y, 1 of all pixels -> (n, k, height, width)."""
    # (n, k, 1) each.
    columns = matrices[..., None]
    by_x, by_y, offset = columns.unbind(2)
    along_rows = by_x * x  # (n, k, width)
    along_columns = by_y * y  # (n, k, height)
    # (n, k, 1, width) and (n, k, height, 1)
    term_of_x = along_rows[:, :, None, :]
    term_of_y = along_columns[:, :, :, None]
    products = term_of_x + term_of_y
    # kornia adds the offset last.
    offset_of_pixels = offset[..., None]
    return products.add_(offset_of_pixels)


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
    # (1, c, height, width) each
    single_images = torch.split(images, 1)
    for image, box in zip(single_images, boxes_tlbr.tolist(), strict=True):
        top, left, bottom, right = box
        crop = image[:, :, top:bottom, left:right]
        resized_crop = functional.interpolate(
            crop, size, mode=mode, align_corners=corners
        )
        resized.append(resized_crop)
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
    lengths = _float_lengths(starts, ends)
    last_pixels = lengths - 1
    numbers = torch.arange(length, dtype=torch.float32, device=images.device)
    if align_corners:
        # The first and the last pixel of the result are those of the box.
        num_steps = max(1, length - 1)
        steps = last_pixels / num_steps
        places = numbers * steps
    else:
        steps = lengths / length
        middles = numbers + 0.5
        places = middles * steps - 0.5
        places.clamp_min_(0)
    # (n, length): the pixel before each place, counted from the start of the box, and the next.
    before = places.floor()
    after = torch.minimum(before + 1, last_pixels)
    shares = places - before

    def take(numbers_in_box: Tensor) -> Tensor:
        whole_numbers = numbers_in_box.to(torch.int64)
        pixel_numbers = whole_numbers + starts[:, None]
        return _take_along(images, dimension, pixel_numbers)

    shape = [len(images), 1, 1, 1]
    shape[dimension] = length
    pixels_before = take(before)
    pixels_after = take(after)
    shares_of_pixels = shares.view(shape)
    return torch.lerp(pixels_before, pixels_after, shares_of_pixels)


def _float_lengths(starts: Tensor, ends: Tensor) -> Tensor:
    """(n,) starts and ends of ranges of pixels -> (n, 1) float32 lengths."""
    lengths = ends - starts
    return lengths.to(torch.float32)[:, None]


def _take_nearest_along(
    images: Tensor,
    dimension: int,
    starts: Tensor,
    ends: Tensor,
    length: int,
    align_corners: bool,
) -> Tensor:
    """Resizes the pixels [start, end) of each image to `length`, by the nearest pixel."""
    lengths = _float_lengths(starts, ends)
    numbers = torch.arange(length, dtype=torch.float32, device=images.device)
    steps = lengths / length
    middles = numbers + 0.5
    places = middles * steps  # (n, length)
    places.floor_()
    nearest = torch.minimum(places, lengths - 1)
    whole_numbers = nearest.to(torch.int64)
    pixel_numbers = whole_numbers + starts[:, None]
    return _take_along(images, dimension, pixel_numbers)


def _take_along(images: Tensor, dimension: int, pixel_numbers: Tensor) -> Tensor:
    """The rows or columns of each image with these numbers, (n, length)."""
    count, length = pixel_numbers.shape
    shape = list(images.shape)
    shape[dimension] = length
    index_shape = [count, 1, 1, 1]
    index_shape[dimension] = length
    numbers_along = pixel_numbers.view(index_shape)
    index = numbers_along.expand(shape)
    return images.gather(dimension, index)
