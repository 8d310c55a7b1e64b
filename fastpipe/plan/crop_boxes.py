"""Kinds of crops, image sizes and draws -> the part of each image that becomes its row.

A crop is two rectangles, the box and the bounds: see `Crops`. Both are x, y, width, height
("xywh"), in pixels of the stored image. Sizes of rows are (height, width); widths and heights of n
images are two arrays, or one of (n, 2) in this order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar, assert_never

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Bools, Float64s, Int64s
from fastpipe.dataset.format.columns import Ragged
from fastpipe.errors import ConfigError, format_share
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.crops import (
    CenterCrop,
    Crop,
    CropAt,
    FiveCrop,
    Grid,
    Letterbox,
    RandomCrop,
    RandomResizedCrop,
    Rendering,
    Resize,
    Size,
    TenCrop,
    shorter_side,
)
from fastpipe.plan.draws import (
    Stream,
    between,
    bits,
    key,
    keys,
    uniform,
    uniform_one,
    up_to,
)
from fastpipe.plan.native import Native
from fastpipe.plan.objects import (
    boxes_of_rows,
    cut_boxes,
    draw_middles,
    pixels_around,
)
from fastpipe.plan.patches import Patches, PatchLayout
from fastpipe.plan.whole_images import WholeImages

# The engine counts the pixels of a slot in 32 bits.
_MAX_SLOT_PIXELS = 2**32 - 1
_TRIES = 10  # as torchvision's RandomResizedCrop

T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True)
class Crops:
    """The crops of n rows, in pixels of each row's image."""

    # (n, 4) x, y, width, height of the part that becomes the row, with fractional edges. It lies
    # inside the bounds or, with padding, anywhere. In float64, so that edges are exact at any size.
    boxes: Float64s
    # (n, 4) x, y, width, height of the pixels that the row may use. They are the box if an image is
    # cropped and then resized, and the whole image if it is resized and then cropped.
    bounds: NDArray[np.int32]
    size: Size  # (height, width) of the rows
    rendering: Rendering = field(default_factory=Rendering)
    # (n,) True: the row is mirrored, whatever the flips are; None: the flips decide.
    mirrored: Bools | None = None
    # (n, 2) height and width of the image at the row's top left; the rest is padding.
    image_sizes: Int64s | None = None
    # (n, 2) height and width of each row, if they have sizes of their own; `size` is then (1, 1).
    row_sizes: Int64s | None = None
    # How the rows are cut into patches; None: they are not.
    layout: PatchLayout | None = None
    # (n, 2) the number of each patch of a Grid in its image, and how many patches the image has; the
    # same of the boxes of CropAt.
    patches: Int64s | None = None

    def size_of_row(self, row: int) -> Size:
        """(height, width) of a row."""
        if self.row_sizes is None:
            return self.size
        height, width = self.row_sizes[row].tolist()
        return height, width

    def slot_shape(self) -> tuple[int, int, int]:
        """The shape of the memory of all rows, without the axis of channels.

        Rows with sizes of their own lie one behind the other, pixel by pixel: (pixels, 1, 1).
        """
        if self.row_sizes is None:
            return len(self.boxes), *self.size
        if self.layout is not None:
            patch_count = self.layout.total(self.row_sizes)
            pixel_count = patch_count * self.layout.pixels
        else:
            row_pixels = self.row_sizes.prod(axis=1)
            pixel_count = int(row_pixels.sum())
        if pixel_count > _MAX_SLOT_PIXELS:
            raise ConfigError(
                f"size: a batch of {len(self.row_sizes):,} images at sizes of their own has "
                f"{pixel_count:,} pixels; expected at most {_MAX_SLOT_PIXELS:,}. Pass a smaller "
                "batch_size, or a smaller max_pixels to fastpipe.Native, or max_tokens to "
                "fastpipe.Patches"
            )
        return pixel_count, 1, 1

    def row_starts(self) -> Int64s:
        """(n,) the pixel at which each row begins, if they have sizes of their own."""
        assert self.row_sizes is not None
        if self.layout is not None:
            first_patches = self.layout.starts(self.row_sizes)
            return first_patches * self.layout.pixels
        pixels = self.row_sizes.prod(axis=1)
        ends = np.cumsum(pixels)
        starts: Int64s = ends - pixels
        return starts

    def part(self, rows: slice) -> Crops:
        """The crops of some rows."""
        return replace(
            self,
            boxes=self.boxes[rows],
            bounds=self.bounds[rows],
            mirrored=_rows_of(self.mirrored, rows),
            image_sizes=_rows_of(self.image_sizes, rows),
            row_sizes=_rows_of(self.row_sizes, rows),
            patches=_rows_of(self.patches, rows),
        )


def _rows_of(array: NDArray[T] | None, rows: slice) -> NDArray[T] | None:
    """Some rows of an array, where there is one."""
    if array is None:
        return None
    return array[rows]


def plan_crops(
    crop: Crop | WholeImages,
    size: Size,
    widths: Int64s,
    heights: Int64s,
    *,
    seed: int,
    epoch: int,
    samples: Int64s,
    flips: Bools | None = None,
    patches: Int64s | None = None,
    objects: Ragged | None = None,
    name: Callable[[int], str] = lambda image: f"image {image} of these",
) -> Crops:
    """Plans the crops of n images: crop.rows for each, one image after the other.

    Args:
        crop: the kind of crop.
        size: (height, width) of the rows.
        widths, heights: (n,) of the images, at least 1.
        seed, epoch, samples: names of the draws; samples is (n,).
        flips: (n,) which images are mirrored; needed by Buckets.
        patches: (n, 2) of Crops; needed by Grid and CropAt.
        objects: the boxes of the images, of the field that the crop names; needed by CropAt.
        name: position of an image -> its name, for the error.

    Raises:
        ConfigError: an image is too small for a random crop.
    """
    match crop:
        case CenterCrop() | Resize() | Letterbox() | FiveCrop():
            if len(widths) == 1:
                width = int(widths[0])
                height = int(heights[0])
                return _fixed_crop_of_one(crop, size, width, height)
            return _fixed_crops(crop, size, widths, heights)
        case RandomResizedCrop():
            (boxes,) = random_resized(
                [(crop, seed)], widths, heights, epoch=epoch, samples=samples
            )
            return crops_at(boxes, crop, size)
        case RandomCrop():
            canvas = canvas_of(crop, size, widths, heights)
            check_room(canvas, size, name)
            room = np.repeat(canvas.room, crop.count, axis=0)
            names = names_of_rows(crop, samples)
            left_top = _draw_left_top(room, seed, epoch, names)
            if objects is not None:
                around = _draw_around(
                    objects, canvas, crop.count, size, seed, epoch, names
                )
                left_top[around.rows] = around.left_top
            return _crops_of_canvas(crop, size, canvas, left_top)
        case Buckets() if crop.covers:
            canvas = canvas_of(crop, size, widths, heights)
            left_top = _centre(canvas.room)
            if crop.random_crop:
                left_top = _draw_left_top(canvas.room, seed, epoch, samples)
            return _crops_of_canvas(crop, size, canvas, left_top)
        case Buckets():
            assert flips is not None
            canvas = canvas_of(crop, size, widths, heights)
            # An image has to be at the left of its row after mirroring, so one that is mirrored is
            # at the right before: the crop begins by the missing width further left.
            width_and_height = size[::-1]
            missing = canvas.resized - width_and_height  # (n, 2) x and y, 0 or less
            missing_width = missing[:, 0]
            left_top = np.zeros_like(missing)
            left_top[flips, 0] = missing_width[flips]
            crops = _crops_of_canvas(crop, size, canvas, left_top)
            heights_and_widths = canvas.resized[:, ::-1]
            return replace(crops, image_sizes=heights_and_widths.copy())
        case Grid():
            assert patches is not None
            canvas = canvas_of(crop, size, widths, heights)
            patch_numbers = patches[:, 0]
            left_top = crop.left_tops(patch_numbers, canvas.image_sizes, size)
            crops = _crops_of_canvas(crop, size, canvas, left_top)
            return replace(crops, patches=patches)
        case CropAt():
            assert patches is not None
            assert objects is not None
            pictures = np.stack([widths, heights], axis=1)
            box_numbers = patches[:, 0]
            boxes_of_images = boxes_of_rows(objects, box_numbers)
            cut = cut_boxes(crop, boxes_of_images, pictures)
            return Crops(
                boxes=cut,
                bounds=pixels_around(cut),
                size=size,
                rendering=crop.rendering,
                patches=patches,
            )
        case Native() | Patches():
            pictures = np.stack([widths, heights], axis=1)
            boxes_xywh = _whole_images(pictures)
            crops = crops_at(boxes_xywh, crop, size)
            widths_and_heights = crop.resized(widths, heights)
            row_sizes = widths_and_heights[:, ::-1]
            layout = None
            if isinstance(crop, Patches):
                layout = crop.layout
            return replace(crops, row_sizes=row_sizes, layout=layout)
        case _:
            assert_never(crop)


def names_of_rows(crop: Crop | WholeImages, samples: Int64s) -> Int64s:
    """(n * crop.rows,) names of the draws of each row, of n samples' names.

    The rows of a random crop have draws of their own. Those of a fixed one share their sample's.
    """
    if crop.rows == 1:
        return samples
    if not crop.is_random:
        return np.repeat(samples, crop.rows)
    # (rows,) a key for each row of a sample, the same for all samples.
    numbers = np.arange(crop.rows)
    crop_key = key(0, 0, Stream.CROP_OF_IMAGE)
    row_keys = bits(crop_key, numbers)
    # (n, rows) -> (n * rows,)
    names = bits(row_keys, samples[:, None])
    signed_names = names.view(np.int64)
    return signed_names.ravel()


def _draw_left_top(room: Int64s, seed: int, epoch: int, samples: Int64s) -> Int64s:
    """(n, 2) x and y, each drawn from 0 to the room (n, 2)."""
    x_key = key(seed, epoch, Stream.CROP_X)
    y_key = key(seed, epoch, Stream.CROP_Y)
    x = uniform(x_key, samples)
    y = uniform(y_key, samples)
    draws = np.stack([x, y], axis=1)
    return up_to(draws, room)


class _Around(NamedTuple):
    """Crops around objects."""

    rows: Int64s  # (m,) the rows whose image has objects
    left_top: Int64s  # (m, 2) x and y, in pixels of the canvas


def _draw_around(
    objects: Ragged,
    canvas: Canvas,
    count: int,
    size: Size,
    seed: int,
    epoch: int,
    names: Int64s,
) -> _Around:
    """Crops that have the middle of an object in them, of the images that have objects.

    Args:
        objects, canvas: of n images.
        count: rows of each image.
        size: (height, width) of the rows.
        seed, epoch, names: names of the draws; names is (n * count,).
    """
    object_key = key(seed, epoch, Stream.OBJECT)
    draws = uniform(object_key, names)
    rows, middles = draw_middles(objects, draws)
    images = rows // count
    # All (m, 2), x and y. The middles are first in pixels of the image and then of the canvas.
    resized = canvas.resized[images]
    pictures = canvas.image_sizes[images]
    before = canvas.padding_before[images]
    room = canvas.room[images]
    scales = resized / pictures
    middles_on_canvas = middles * scales + before
    pixels = np.floor(middles_on_canvas).astype(np.int64)
    # Each pixel of the crop is as likely to have the middle in it.
    width_and_height = np.array(size[::-1])
    last_pixel = width_and_height - 1
    last_pixels = np.broadcast_to(last_pixel, room.shape)
    row_names = names[rows]
    places = _draw_left_top(last_pixels, seed, epoch, row_names)
    # A crop that would reach beyond the canvas is moved inside.
    left_top = np.clip(pixels - places, 0, room)
    return _Around(rows, left_top)


def _centre(room: Int64s) -> Int64s:
    """(n, 2) the left top of crops in the middle.

    Halves are rounded to even, as by torchvision's CenterCrop.
    """
    half_room = room / 2.0
    return np.rint(half_room).astype(np.int64)


# numpy is slow for single images, and most images of a dataset have one of few sizes.
@functools.lru_cache(maxsize=1024)
def _fixed_crop_of_one(crop: Crop, size: Size, width: int, height: int) -> Crops:
    widths = np.array([width])
    heights = np.array([height])
    return _fixed_crops(crop, size, widths, heights)


def _fixed_crops(crop: Crop, size: Size, widths: Int64s, heights: Int64s) -> Crops:
    """The crops of a kind without draws."""
    canvas = canvas_of(crop, size, widths, heights)
    if isinstance(crop, Resize):
        boxes = _whole_images(canvas.image_sizes)
        return crops_at(boxes, crop, size)
    centre = _centre(canvas.room)  # a Letterbox has no room
    if not isinstance(crop, FiveCrop):
        return _crops_of_canvas(crop, size, canvas, centre)

    # (n, crops, x and y): those at the corners, and then the centre.
    room = canvas.room[:, None]
    centre = centre[:, None]
    shares_of_room = [
        (0, 0),  # top left
        (1, 0),  # top right
        (0, 1),  # bottom left
        (1, 1),  # bottom right
    ]
    corners = room * shares_of_room
    left_tops = np.concatenate([corners, centre], axis=1)
    if isinstance(crop, TenCrop):
        # Crops six to ten are those of the mirrored image, so x counts from the right: it is the
        # room's width minus x.
        room_width = room * (1, 0)
        minus_x_and_y = left_tops * (-1, 1)
        mirrored = room_width + minus_x_and_y
        left_tops = np.concatenate([left_tops, mirrored], axis=1)
    left_tops = left_tops.reshape(-1, 2)  # (n * crops, x and y)
    return _crops_of_canvas(crop, size, canvas, left_tops)


def crops_at(
    boxes_xywh: Int64s | NDArray[np.int32], crop: Crop | Native | Patches, size: Size
) -> Crops:
    """The crops that are cut out at these boxes, (n, 4), and then resized."""
    # Pixels outside the box have no part in the row, so the bounds are the box.
    return Crops(
        boxes=boxes_xywh.astype(np.float64),
        bounds=boxes_xywh.astype(np.int32),
        size=size,
        rendering=crop.rendering,
    )


class Canvas(NamedTuple):
    """The resized and padded forms of n images, from which a crop of the output's size is cut.

    All (n, 2), x and y.
    """

    image_sizes: Int64s  # widths and heights of the images
    resized: Int64s  # widths and heights after the resize
    padding_before: Int64s  # pixels of padding left and above
    # By how many pixels the canvas, with all padding, is wider and higher than the crop.
    room: Int64s


def canvas_of(
    crop: Crop | WholeImages, size: Size, widths: Int64s, heights: Int64s
) -> Canvas:
    """The canvas that a crop of (height, width) is cut from.

    CenterCrop, FiveCrop and RandomCrop follow torchvision's rules. `room` is below 0 where the
    canvas is smaller than the output, and means nothing for crops that are cut out of the image as
    it is.
    """
    output = np.array(size[::-1])  # width, height
    # (n, 2) x and y: the image's size, the same resized, and the padding before and after it.
    image_sizes = np.stack([widths, heights], axis=1)
    resized = image_sizes
    padding_before = np.zeros_like(image_sizes)
    padding_after = padding_before
    match crop:
        case Buckets() if crop.covers:
            resized = _cover(output, image_sizes)
        case Buckets() if crop.listed_sizes:
            resized = _fit_inside(output, image_sizes)
            padding_after = output - resized
        case Buckets():
            resized = crop.resized(widths, heights)
            # An image that replaces a damaged sample of another shape may be larger than the batch.
            has_longer_side = resized > output
            is_larger = has_longer_side.any(axis=1)
            too_large = image_sizes[is_larger]
            resized[is_larger] = _fit_inside(output, too_large)
            padding_after = output - resized
        case Letterbox():
            if crop.rounded:
                resized = _fit_inside_rounded(output, image_sizes)
            else:
                resized = _fit_inside(output, image_sizes)
            missing = output - resized
            if crop.centered:
                padding_before = missing // 2
            padding_after = missing - padding_before
        case CenterCrop() | FiveCrop():
            length = shorter_side(crop, size)
            resized = _resize_shorter_side(length, image_sizes)
        case RandomCrop():
            if crop.resize is not None:
                resized = _resize_shorter_side(crop.resize, image_sizes)
            padding = np.reshape(crop.padding, (2, 2))
            left_top, right_bottom = padding
            padding_before = np.broadcast_to(left_top, image_sizes.shape)
            padding_after = np.broadcast_to(right_bottom, image_sizes.shape)
            if crop.pad_if_needed:
                padded = resized + padding_before + padding_after
                missing = np.maximum(output - padded, 0)
                # As torchvision does: the whole of the missing size on each side.
                padding_before = padding_before + missing
                padding_after = padding_after + missing
        case Grid():
            missing = output - image_sizes
            padding_after = np.maximum(missing, 0)
        case (
            RandomResizedCrop() | Resize() | CropAt() | Native() | Patches()
        ):  # cut out of the image as it is
            pass
        case _:
            assert_never(crop)
    padded = resized + padding_before + padding_after
    room = padded - output
    return Canvas(
        image_sizes=image_sizes,
        resized=resized,
        padding_before=padding_before,
        room=room,
    )


def check_room(canvas: Canvas, size: Size, name: Callable[[int], str]) -> None:
    """Raises ConfigError if images are smaller than a random crop; `name` gives the name of the
    first of them.
    """
    has_short_side = canvas.room < 0
    is_too_small = has_short_side.any(axis=1)
    too_small = np.flatnonzero(is_too_small)
    if not len(too_small):
        return
    first = int(too_small[0])
    width, height = canvas.image_sizes[first].tolist()
    crop_height, crop_width = size
    leave_out = "leave these out with data.select"
    # Of images that are resized first, the width and height decide otherwise.
    if np.array_equal(canvas.resized, canvas.image_sizes):
        is_wide_enough = f"(c['width'] >= {crop_width})"
        is_high_enough = f"(c['height'] >= {crop_height})"
        leave_out += f"(lambda c: {is_wide_enough} & {is_high_enough})"
    share = format_share(len(too_small), len(canvas.room), "image")
    verb = "is" if len(too_small) == 1 else "are"
    raise ConfigError(
        f"crop: {share}, resized and padded, {verb} smaller than the output, {crop_width} x "
        f"{crop_height}. The first is {name(first)}: "
        f"{width} x {height} pixels. Pass RandomCrop(pad_if_needed=True), a smaller size=, or a larger "
        f"resize= or padding=; or {leave_out}"
    )


def _advise_smaller(buckets: Buckets) -> str:
    if buckets.sizes is None:
        return "Pass a smaller area="
    return "Add smaller sizes="


def check_covered(
    buckets: Buckets, pictures: Int64s, name: Callable[[int], str]
) -> None:
    """Raises ConfigError if images, (n, 2), would be enlarged though `no_upscale` forbids it;
    `name` gives the name of the first of them.
    """
    if not buckets.no_upscale:
        return
    covers_one = buckets.covers_listed(pictures)
    too_small = np.flatnonzero(~covers_one)
    if not len(too_small):
        return
    first = int(too_small[0])
    width, height = pictures[first].tolist()
    share = format_share(len(too_small), len(pictures), "image")
    verb = "is" if len(too_small) == 1 else "are"
    raise ConfigError(
        f"Buckets: {share} {verb} smaller than each of the sizes, and no_upscale=True forbids "
        f"enlarging images. The first is {name(first)}: {width} "
        f"x {height} pixels. {_advise_smaller(buckets)}, leave no_upscale out, or leave these "
        "images out with data.select(lambda c: (c['width'] >= ...) & (c['height'] >= ...))"
    )


def _crops_of_canvas(
    crop: Crop | WholeImages, size: Size, canvas: Canvas, left_top: Int64s
) -> Crops:
    """Crops of the output's size; left_top is (n * crop.rows, 2), from the canvas's corner on.

    The boxes are mapped back to the pixels of the image before its resize.
    """
    image_of_row: Int64s | slice = slice(None)
    if crop.rows > 1:
        images = np.arange(len(canvas.image_sizes))
        image_of_row = np.repeat(images, crop.rows)
    # (n * crop.rows, 2) each, x and y: pixels of the image for one of the canvas, the left top of
    # the box, and its width and height.
    scale_of_image = canvas.image_sizes / canvas.resized
    scale = scale_of_image[image_of_row]
    before = canvas.padding_before[image_of_row]
    left_top_resized = left_top - before
    corners = left_top_resized * scale
    width_and_height = size[::-1]
    sides = width_and_height * scale
    boxes_xywh: Float64s = np.concatenate([corners, sides], axis=1)

    mirrored = None
    if isinstance(crop, TenCrop):
        # Crops six to ten of each image.
        is_mirrored = np.arange(10) >= 5
        mirrored = np.tile(is_mirrored, len(canvas.image_sizes))
    # The image is resized first, so a pixel at the edge of the box may use pixels outside of it.
    pictures_of_rows = canvas.image_sizes[image_of_row]
    bounds = _whole_images(pictures_of_rows)
    return Crops(
        boxes=boxes_xywh,
        bounds=bounds,
        size=size,
        rendering=crop.rendering,
        mirrored=mirrored,
    )


def _whole_images(pictures: Int64s) -> NDArray[np.int32]:
    """(n, 2) widths and heights -> (n, 4) boxes of the whole images."""
    sides = pictures.astype(np.int32)
    left_top = np.zeros_like(sides)
    return np.concatenate([left_top, sides], axis=1)


def _resize_shorter_side(length: int, pictures: Int64s) -> Int64s:
    """torchvision's Resize(length)."""
    widths = pictures[:, 0]
    heights = pictures[:, 1]
    square = np.array([length, length])
    is_width_shorter = widths <= heights
    return _scaled(square, pictures, by_width=is_width_shorter)


def _fit_inside(output: Int64s, pictures: Int64s) -> Int64s:
    """The largest size in the image's aspect ratio that fits the output."""
    # The width limits if output width / image width is the smaller ratio. Multiplied out, this is
    # compared in whole numbers, without rounding.
    other_sides = pictures[:, ::-1]
    products = output * other_sides
    product_of_width, product_of_height = products.T
    width_limits = product_of_width <= product_of_height
    scaled = _scaled(output, pictures, width_limits)
    return np.maximum(scaled, 1)


def _cover(output: Int64s, pictures: Int64s) -> Int64s:
    """The smallest size in the image's aspect ratio that covers the output.

    One side is the output's, the other is rounded to a whole pixel, halves up.
    """
    other_sides = pictures[:, ::-1]
    products = output * other_sides
    product_of_width, product_of_height = products.T
    # The width decides if output width / image width is the larger ratio.
    width_decides = product_of_width >= product_of_height
    height_decides = ~width_decides
    is_output_side = np.stack([width_decides, height_decides], axis=1)
    # The length of each side, if the other side has the output's length.
    other_output_sides = output[::-1]
    # numerator / denominator + 1 / 2, rounded down, with both sides doubled.
    doubled_numerator = 2 * other_output_sides * pictures
    doubled_denominator = 2 * other_sides
    in_ratio = (doubled_numerator + other_sides) // doubled_denominator
    in_ratio = np.maximum(in_ratio, output)
    return np.where(is_output_side, output, in_ratio)


def _fit_inside_rounded(output: Int64s, pictures: Int64s) -> Int64s:
    """The same, rounded to whole pixels, halves to even.

    Source: timm's ResizeKeepRatio with longest=1.
    """
    # (n, 1) by how much the side that limits is too long.
    ratios_of_sides = pictures / output
    ratio = ratios_of_sides.max(axis=1, keepdims=True)
    exact_sides = pictures / ratio
    resized = np.rint(exact_sides).astype(np.int64)
    return np.asarray(np.maximum(resized, 1))


def _scaled(output: Int64s, pictures: Int64s, by_width: Bools) -> Int64s:
    """One side is the output's.

    The other keeps the image's aspect ratio, rounded down to a whole pixel.
    """
    by_height = ~by_width
    is_output_side = np.stack([by_width, by_height], axis=1)
    # The length of each side, if the other side has the output's length.
    other_output_sides = output[::-1]
    other_sides = pictures[:, ::-1]
    numerators = other_output_sides * pictures
    in_ratio = numerators // other_sides
    return np.where(is_output_side, output, in_ratio)


def random_resized(
    crops: Sequence[tuple[RandomResizedCrop, int]],
    widths: Int64s,
    heights: Int64s,
    *,
    epoch: int,
    samples: Int64s,
) -> Int64s:
    """Boxes as of torchvision's get_params: ten tries at a fitting area and ratio, or the middle.

    Args:
        crops: the options and the seed of each view.
        widths, heights: (n,) of the images.
        epoch, samples: names of the draws; samples is (n,).

    Returns:
        (crops, n, 4) int64: x, y, width, height.
    """
    if len(crops) == len(samples) == 1:
        ((crop, seed),) = crops
        image_width = int(widths[0])
        image_height = int(heights[0])
        sample = int(samples[0])
        box = _random_resized_one(crop, image_width, image_height, seed, epoch, sample)
        box_xywh = np.array(box)
        return box_xywh.reshape(1, 1, 4)

    # One row for each crop and image, the crops one after the other.
    crop_count = len(crops)
    crop_numbers = np.arange(crop_count)
    crop_of_row = np.repeat(crop_numbers, len(samples))
    row_count = len(crop_of_row)
    names = np.tile(samples, crop_count)
    widths = np.tile(widths, crop_count)
    heights = np.tile(heights, crop_count)
    options = [crop for crop, _ in crops]
    seeds = [seed for _, seed in crops]
    # (crops, 2) each: minimum and maximum.
    scales = np.array([crop.scale for crop in options])
    ratios = np.array([crop.ratio for crop in options])
    log_ratios = np.array([_log_limits(crop) for crop in options])

    def draw(stream: int, rows: Int64s) -> Float64s:
        key_of_crop = keys(seeds, epoch, stream)
        crop_numbers = crop_of_row[rows]
        key_of_row = key_of_crop[crop_numbers]
        return uniform(key_of_row, names[rows])

    def draw_between(limits: Float64s, stream: int, rows: Int64s) -> Float64s:
        crop_numbers = crop_of_row[rows]
        low, high = limits[crop_numbers].T
        draws = draw(stream, rows)
        return between(draws, low, high)

    todo = np.arange(row_count)  # rows without a box
    x_draws = draw(Stream.CROP_X, todo)
    y_draws = draw(Stream.CROP_Y, todo)
    boxes_xywh = np.empty((row_count, 4), dtype=np.int64)
    # Each try draws only for the rows without a box. Draws are named, so no other draw changes.
    for attempt in range(_TRIES):
        if not len(todo):
            break
        width = widths[todo]
        height = heights[todo]
        area_stream = Stream.CROP_AREA + attempt
        ratio_stream = Stream.CROP_RATIO + attempt
        # The share of the image's area is drawn evenly, the ratio evenly in its logarithm.
        share = draw_between(scales, area_stream, todo)
        log_ratio = draw_between(log_ratios, ratio_stream, todo)
        ratio = np.exp(log_ratio)
        image_area = width * height
        area = image_area * share
        w, h = sides_of(area, ratio)
        has_area = (w > 0) & (h > 0)
        fits_width = w <= width
        fits_height = h <= height
        fits = has_area & fits_width & fits_height
        last_x = width - w
        last_y = height - h
        x = up_to(x_draws[todo], last_x)
        y = up_to(y_draws[todo], last_y)
        tried_boxes = np.stack([x, y, w, h], axis=1)
        done = todo[fits]
        boxes_xywh[done] = tried_boxes[fits]
        todo = todo[~fits]

    # No try fitted these.
    crops_of_todo = crop_of_row[todo]
    limits = ratios[crops_of_todo].T
    widths_todo = widths[todo]
    heights_todo = heights[todo]
    boxes_xywh[todo] = _middle_box(limits, widths_todo, heights_todo)
    return boxes_xywh.reshape(crop_count, len(samples), 4)


def sides_of(areas: Float64s, ratios: Float64s) -> tuple[Int64s, Int64s]:
    """(n,) each: sides a and b of about these areas, where a / b is about the ratio."""
    # a * b = area and a / b = ratio, so a = sqrt(area * ratio) and b = sqrt(area / ratio).
    a = np.sqrt(areas * ratios)
    b = np.sqrt(areas / ratios)
    rounded_a = np.rint(a).astype(np.int64)
    rounded_b = np.rint(b).astype(np.int64)
    return rounded_a, rounded_b


def _log_limits(crop: RandomResizedCrop) -> tuple[float, float]:
    """The logarithms of the least and of the greatest ratio."""
    min_ratio, max_ratio = crop.ratio
    min_log = math.log(min_ratio)
    max_log = math.log(max_ratio)
    return min_log, max_log


def _random_resized_one(
    crop: RandomResizedCrop, width: int, height: int, seed: int, epoch: int, sample: int
) -> tuple[int, int, int, int] | Int64s:
    """The same box for one image in a tenth of the time: numpy is slow for arrays of one."""

    def draw(stream: int) -> float:
        draw_key = key(seed, epoch, stream)
        return uniform_one(draw_key, sample)

    min_scale, max_scale = crop.scale
    min_log, max_log = _log_limits(crop)
    scale_span = max_scale - min_scale
    log_span = max_log - min_log
    for attempt in range(_TRIES):
        area_draw = draw(Stream.CROP_AREA + attempt)
        share = min_scale + scale_span * area_draw
        area = width * height * share
        ratio_draw = draw(Stream.CROP_RATIO + attempt)
        log_ratio = min_log + log_span * ratio_draw
        # numpy's exp, because Python's may differ in the last bit.
        ratio = float(np.exp(log_ratio))
        exact_w = math.sqrt(area * ratio)
        exact_h = math.sqrt(area / ratio)
        w = round(exact_w)
        h = round(exact_h)
        fits_width = 0 < w <= width
        fits_height = 0 < h <= height
        if fits_width and fits_height:
            x_count = width - w + 1
            y_count = height - h + 1
            x_draw = draw(Stream.CROP_X)
            y_draw = draw(Stream.CROP_Y)
            x = int(x_draw * x_count)
            y = int(y_draw * y_count)
            return x, y, w, h
    widths = np.array([width])
    heights = np.array([height])
    return _middle_box(crop.ratio, widths, heights)


def _middle_box(
    ratio: tuple[float, float] | Float64s, widths: Int64s, heights: Int64s
) -> Int64s:
    """(n, 4) x, y, width, height in the middle of the images, as large as the ratio's limits allow.

    `ratio` is its minimum and maximum, a number each or (n,).
    """
    min_ratio, max_ratio = ratio
    image_ratio = widths / heights
    # The sides at the limits of the ratio.
    exact_widest = heights * max_ratio
    exact_tallest = widths / min_ratio
    widest = np.rint(exact_widest).astype(np.int64)
    tallest = np.rint(exact_tallest).astype(np.int64)
    is_too_wide = image_ratio > max_ratio
    is_too_high = image_ratio < min_ratio
    w = np.where(is_too_wide, widest, widths)
    h = np.where(is_too_high, tallest, heights)
    w = np.clip(w, 1, widths)
    h = np.clip(h, 1, heights)
    x = (widths - w) // 2
    y = (heights - h) // 2
    return np.stack([x, y, w, h], axis=1)
