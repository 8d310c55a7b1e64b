"""Outputs of a model for patches of a Grid -> outputs for whole images: fastpipe.GridAggregator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from fastpipe.arguments import refusing_unknown
from fastpipe.errors import ConfigError, choice, whole
from fastpipe.plan.crops import MAX_OUTPUT_PIXELS

# Sizes and places, in outputs, count as whole numbers within this.
_TOLERANCE = 1e-3


class GridAggregator:
    """Puts the outputs for the patches of fastpipe.Grid together to outputs for whole images.

    Where patches overlap, an output is the mean of theirs. Outputs for mirrored patches are mirrored
    back. Only images some of whose patches have not come yet are kept in memory. All patches of an
    image have to come to one aggregator: on several ranks gather the outputs and all fields first.
    A patch that comes a second time begins its image anew, as after a loop that was left early.

    Args:
        window: how patches count where they overlap: "mean": equally. "hann": less towards their
            edges, so that seams are hardly seen.
        margin: so many pixels at each edge of a patch do not count, where another patch has them: a
            model that pads sees less of the image there. With half of its receptive field, the
            result is that of the model for the whole image. Patches have to overlap by twice as
            much: Grid(stride=size - 2 * margin) at most. At the edges of the image all outputs
            count.

    Attributes:
        FIELDS: the names in `fields=` of the loader that an aggregator needs, beside "image".

    Example:
        >>> crop = fastpipe.Grid(stride=12)
        >>> fields = ("image", *fastpipe.GridAggregator.FIELDS)
        >>> loader = fastpipe.loader("data/val", 8, size=16, crop=crop, fields=fields, train=False)
        >>> aggregator = fastpipe.GridAggregator()
        >>> count = 0
        >>> for batch in loader:
        ...     outputs = batch["image"].float()  # in place of a model's outputs
        ...     for number, whole in aggregator.add(outputs, batch):
        ...         count += 1
        >>> count == len(loader.dataset)
        True
    """

    FIELDS = ("id", "valid", "patch", "crop_box", "mirrored", "original_size")

    @refusing_unknown("fastpipe.GridAggregator")
    def __init__(self, window: str = "mean", margin: int = 0) -> None:
        self._window = choice("window", window, ("mean", "hann"))
        self._margin = whole("margin", margin, least=0, most=MAX_OUTPUT_PIXELS)
        self._images: dict[int, _WeightedSum] = {}  # by number of the sample

    def add(
        self, outputs: torch.Tensor, batch: Mapping[str, Any]
    ) -> list[tuple[int, torch.Tensor]]:
        """Adds the outputs for a batch of patches.

        Args:
            outputs: (N, C, h, w) of a floating dtype, on any device. h and w are the size of a
                patch, a whole part of it, such as a quarter for a model with stride 4, or a
                multiple.
            batch: a batch of a loader with crop=fastpipe.Grid(...) and the fields of FIELDS.

        Returns:
            For each image whose last patch has come, its number in the dataset, which is its "id"
            in the batch, and (C, H, W) of the outputs' dtype. H and W are the image's height and
            width, or that part of them, rounded up.

        Raises:
            ConfigError: a field is missing, the shapes do not fit each other, or a patch begins
                between two outputs.

        Example:
            >>> fields = ("image", *fastpipe.GridAggregator.FIELDS)
            >>> crop = fastpipe.Grid(stride=12)
            >>> loader = fastpipe.loader("data/val", 8, size=16, crop=crop, fields=fields, train=False)
            >>> aggregator = fastpipe.GridAggregator()
            >>> model = torch.nn.Conv2d(3, 2, 3, padding="same")
            >>> for batch in loader:
            ...     outputs = model(batch["image"].float() / 255)
            ...     for number, output in aggregator.add(outputs, batch):
            ...         key = loader.dataset["key"][number]  # output: (2, height, width) of it
        """
        _check(outputs, batch)
        weights = _make_window(self._window, outputs)
        complete = []
        for row, patch in enumerate(_list_patches(batch)):
            # A row that repeats a patch of another rank does not count.
            if not patch.valid:
                continue
            scale = _find_scale(outputs, patch)
            image = self._images.get(patch.image)
            if image is None or patch.number in image.patches:
                height, width = patch.original_size
                rows_of_image = math.ceil(height * scale)
                columns_of_image = math.ceil(width * scale)
                shape = (rows_of_image, columns_of_image)
                image = _WeightedSum(outputs[row], shape)
                self._images[patch.image] = image
            output = outputs[row]
            if patch.mirrored:
                output = output.flip(2)
            counted = weights
            if self._margin:
                is_counted = _inside_margin(patch, weights, self._margin, scale)
                counted = weights * is_counted
            place = _find_place(patch, scale)
            image.add(output, counted, place)
            image.patches.add(patch.number)
            if len(image.patches) == patch.patch_count:
                del self._images[patch.image]
                if self._margin and not image.is_covered():
                    raise ConfigError(
                        f"GridAggregator: with margin={self._margin} no patch has some of the "
                        "pixels; let patches overlap by twice the margin: "
                        "fastpipe.Grid(stride=size - 2 * margin)"
                    )
                mean = image.mean()
                complete.append((patch.image, mean))
        return complete


class _Patch(NamedTuple):
    """The fields of a row."""

    image: int  # number of the sample
    valid: bool
    number: int  # in its image
    patch_count: int  # of the image
    crop_box: list[float]  # x0, y0, x1, y1
    mirrored: bool
    original_size: list[int]  # height, width


def _list_patches(batch: Mapping[str, Any]) -> list[_Patch]:
    columns = {}
    for name in GridAggregator.FIELDS:
        columns[name] = batch[name].tolist()
    patches = []
    for row, (number, count) in enumerate(columns["patch"]):
        patch = _Patch(
            image=columns["id"][row],
            valid=columns["valid"][row],
            number=number,
            patch_count=count,
            crop_box=columns["crop_box"][row],
            mirrored=columns["mirrored"][row],
            original_size=columns["original_size"][row],
        )
        patches.append(patch)
    return patches


def _check(outputs: Any, batch: Mapping[str, Any]) -> None:
    missing = [name for name in GridAggregator.FIELDS if name not in batch]
    if missing:
        raise ConfigError(
            f"GridAggregator: the batch has no {', '.join(missing)}; pass "
            'fields=("image", *fastpipe.GridAggregator.FIELDS) to the loader'
        )
    count = len(batch["id"])
    if not isinstance(outputs, torch.Tensor):
        raise ConfigError(
            f"GridAggregator: expected a tensor of outputs (N, C, height, width), got a "
            f"{type(outputs).__name__}; use one aggregator for each output of the model"
        )
    is_for_patches = outputs.ndim == 4 and len(outputs) == count
    if not is_for_patches:
        raise ConfigError(
            f"GridAggregator: expected outputs (N, C, height, width) for the {count} patches of "
            f"the batch, got {tuple(outputs.shape)}"
        )
    if not outputs.is_floating_point():
        raise ConfigError(
            f"GridAggregator: expected outputs of a floating dtype, got {outputs.dtype}; pass "
            "outputs.float()"
        )


def _find_scale(outputs: torch.Tensor, patch: _Patch) -> float:
    """Outputs for a pixel of a side. Raises ConfigError if both sides have not the same."""
    left, top, right, bottom = patch.crop_box
    patch_width = right - left
    patch_height = bottom - top
    height, width = outputs.shape[2:]
    scale = height / patch_height
    expected_width = patch_width * scale
    if abs(width - expected_width) > _TOLERANCE:
        raise ConfigError(
            f"GridAggregator: expected outputs with the ratio of the patches, {patch_width:g} x "
            f"{patch_height:g} pixels, got {width} x {height}"
        )
    factor = max(scale, 1 / scale)
    whole_factor = round(factor)
    if abs(factor - whole_factor) > _TOLERANCE:
        raise ConfigError(
            f"GridAggregator: outputs of {width} x {height} are no whole part of patches of "
            f"{patch_width:g} x {patch_height:g} pixels. Does the model cut the edges off? Pad its "
            "convolutions (padding='same') and pass GridAggregator(margin=...), which leaves the "
            "outputs at the edges of patches out; or resize the outputs to the patches"
        )
    return scale


def _inside_margin(
    patch: _Patch, weights: torch.Tensor, margin: int, scale: float
) -> torch.Tensor:
    """(h, w) 1 for the outputs of a patch that count, 0 for those at its edges.

    Edges of the image have no margin.
    """
    left, top, right, bottom = patch.crop_box
    height, width = patch.original_size
    trimmed = math.ceil(margin * scale)
    inside = torch.zeros_like(weights)
    rows, columns = weights.shape
    first_row = 0
    first_column = 0
    end_row = rows
    end_column = columns
    if top > 0:
        first_row = trimmed
    if left > 0:
        first_column = trimmed
    if bottom < height:
        end_row = rows - trimmed
    if right < width:
        end_column = columns - trimmed
    inside[first_row:end_row, first_column:end_column] = 1
    return inside


def _find_place(patch: _Patch, scale: float) -> tuple[int, int]:
    """The row and the column of the output at which a patch begins. Raises ConfigError if it begins
    between two.
    """
    patch_x, patch_y, _, _ = patch.crop_box
    x = patch_x * scale
    y = patch_y * scale
    top = round(y)
    left = round(x)
    distance_y = abs(top - y)
    distance_x = abs(left - x)
    is_between_rows = distance_y > _TOLERANCE
    is_between_columns = distance_x > _TOLERANCE
    if is_between_rows or is_between_columns:
        pixels_per_output = 1 / scale
        raise ConfigError(
            f"GridAggregator: the patch at x={patch_x:g}, y={patch_y:g} begins at x={x:g}, y={y:g} "
            "of the outputs, between two of them; pass a stride and images whose sizes are "
            f"multiples of {pixels_per_output:g} pixels, or resize the outputs to the patches first"
        )
    return top, left


def _make_window(name: str, outputs: torch.Tensor) -> torch.Tensor:
    """(h, w) float32: the weight of each output of a patch."""
    height, width = outputs.shape[2:]
    if name == "mean":
        return torch.ones(height, width, device=outputs.device)
    columns = _inner_hann(width, outputs.device)
    rows = _inner_hann(height, outputs.device)
    weights_of_rows = rows[:, None]
    return weights_of_rows * columns


def _inner_hann(length: int, device: torch.device) -> torch.Tensor:
    """(length,) float32: a Hann window without its ends, which are 0."""
    window = torch.hann_window(length + 2, periodic=False, device=device)
    return window[1:-1]


class _WeightedSum:
    """The outputs for an image so far: their sum by weight, and the sum of the weights.

    Args:
        output: (C, h, w) of one patch, for the number of channels, the dtype and the device.
        shape: (height, width) of the whole.
    """

    def __init__(self, output: torch.Tensor, shape: tuple[int, int]) -> None:
        self.patches: set[int] = set()  # the numbers of those that have come
        self._dtype = output.dtype
        # float16 would lose digits in sums of many patches.
        dtype = torch.promote_types(output.dtype, torch.float32)
        shape_of_sum = (len(output), *shape)  # (C, height, width)
        self._sum = output.new_zeros(shape_of_sum, dtype=dtype)
        self._weights = output.new_zeros(shape, dtype=dtype)

    def add(
        self, output: torch.Tensor, weights: torch.Tensor, place: tuple[int, int]
    ) -> None:
        top, left = place
        # A patch of an image smaller than itself is padded at the right and below.
        _, patch_height, patch_width = output.shape
        _, image_height, image_width = self._sum.shape
        height = min(patch_height, image_height - top)
        width = min(patch_width, image_width - left)
        bottom = top + height
        right = left + width
        rows = slice(top, bottom)
        columns = slice(left, right)
        visible_weights = weights[:height, :width]
        visible = output[:, :height, :width]
        weighted = visible * visible_weights
        self._sum[:, rows, columns] += weighted
        self._weights[rows, columns] += visible_weights

    def is_covered(self) -> bool:
        """Whether each output of the whole has one of a patch."""
        is_covered = self._weights > 0
        return bool(is_covered.all())

    def mean(self) -> torch.Tensor:
        mean = self._sum / self._weights
        return mean.to(self._dtype)
