"""Outputs of a model for patches of a Grid -> outputs for whole images: fastpipe.GridAggregator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from fastpipe.errors import ConfigError, choice

_FIELDS = ("id", "patch", "crop_box", "original_size")


class GridAggregator:
    """Puts the outputs for the patches of fastpipe.Grid together to outputs for whole images.

    Where patches overlap, an output is the mean of theirs. Only images some of whose patches have
    not come yet are kept in memory. All patches of an image have to come to one aggregator: on
    several ranks gather the outputs and the fields first.

    Args:
        window: how patches count where they overlap: "mean": equally. "hann": less towards their
            edges, so that no seams are seen.

    Example:
        >>> crop = fastpipe.Grid(stride=12)
        >>> fields = ("image", "id", "patch", "crop_box", "original_size")
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

    def __init__(self, window: str = "mean") -> None:
        self._window = choice("window", window, ("mean", "hann"))
        self._images: dict[int, _WeightedSum] = {}  # by number of the sample

    def add(
        self, outputs: torch.Tensor, batch: Mapping[str, Any]
    ) -> list[tuple[int, torch.Tensor]]:
        """Adds the outputs for a batch of patches.

        Args:
            outputs: (N, C, h, w) of a floating dtype, on any device. h and w are the size of a
                patch, or a fraction of it: a quarter for a model with stride 4.
            batch: of a loader with crop=fastpipe.Grid(...) and the fields "id", "patch", "crop_box"
                and "original_size".

        Returns:
            For each image whose last patch has come, its number in the dataset, and (C, H, W) of
            the outputs' dtype. H and W are the image's height and width, or that fraction of them,
            rounded up.

        Raises:
            ConfigError: a field is missing, the shapes do not fit each other, or a patch begins
                between two outputs.
        """
        _check(outputs, batch)
        valid = batch.get("valid")
        complete = []
        for row, number in enumerate(batch["id"].tolist()):
            # A row that repeats a patch of another rank does not count.
            if valid is not None and not bool(valid[row]):
                continue
            crop_box = batch["crop_box"][row].tolist()
            height, width = batch["original_size"][row].tolist()
            scale = outputs.shape[2] / (crop_box[3] - crop_box[1])
            if number not in self._images:
                shape = (math.ceil(height * scale), math.ceil(width * scale))
                self._images[number] = _WeightedSum(outputs[row], shape)
            image = self._images[number]
            weights = _window(self._window, outputs)
            image.add(outputs[row], weights, _place(crop_box, scale))
            if image.num_patches == int(batch["patch"][row][1]):
                complete.append((number, self._images.pop(number).mean()))
        return complete


def _check(outputs: torch.Tensor, batch: Mapping[str, Any]) -> None:
    missing = [name for name in _FIELDS if name not in batch]
    if missing:
        names = ", ".join(f'"{name}"' for name in ("image", *_FIELDS))
        raise ConfigError(
            f"GridAggregator: the batch has no {', '.join(missing)}; pass fields=({names}) to the "
            "loader"
        )
    count = len(batch["id"])
    if outputs.ndim != 4 or len(outputs) != count:
        raise ConfigError(
            f"GridAggregator: expected outputs (N, C, height, width) for the {count} patches of "
            f"the batch, got {tuple(outputs.shape)}"
        )
    if not outputs.is_floating_point():
        raise ConfigError(
            f"GridAggregator: expected outputs of a floating dtype, got {outputs.dtype}; pass "
            "outputs.float()"
        )


def _place(crop_box: list[float], scale: float) -> tuple[int, int]:
    """The row and the column of the output at which a patch begins. Raises ConfigError if it begins
    between two.
    """
    y = crop_box[1] * scale
    x = crop_box[0] * scale
    top = round(y)
    left = round(x)
    if abs(top - y) > 1e-3 or abs(left - x) > 1e-3:
        raise ConfigError(
            f"GridAggregator: the patch at x={crop_box[0]:g}, y={crop_box[1]:g} begins at x={x:g}, "
            f"y={y:g} of the outputs, between two of them; pass a stride and images whose sizes "
            f"are multiples of {1 / scale:g} pixels, or resize the outputs to the patches first"
        )
    return top, left


def _window(name: str, outputs: torch.Tensor) -> torch.Tensor:
    """(h, w) float32: the weight of each output of a patch."""
    height, width = outputs.shape[2:]
    if name == "mean":
        return torch.ones(height, width, device=outputs.device)
    columns = torch.hann_window(width + 2, periodic=False, device=outputs.device)[1:-1]
    rows = torch.hann_window(height + 2, periodic=False, device=outputs.device)[1:-1]
    return rows[:, None] * columns


class _WeightedSum:
    """The outputs for an image so far: their sum by weight, and the sum of the weights.

    Args:
        output: (C, h, w) of one patch, for the number of channels, the dtype and the device.
        shape: (height, width) of the whole.
    """

    def __init__(self, output: torch.Tensor, shape: tuple[int, int]) -> None:
        self.num_patches = 0
        self._dtype = output.dtype
        # float16 would lose digits in sums of many patches.
        dtype = torch.promote_types(output.dtype, torch.float32)
        self._sum = output.new_zeros((len(output), *shape), dtype=dtype)
        self._weights = output.new_zeros(shape, dtype=dtype)

    def add(
        self, output: torch.Tensor, weights: torch.Tensor, place: tuple[int, int]
    ) -> None:
        top, left = place
        # A patch of an image smaller than itself is padded at the right and below.
        height = min(output.shape[1], self._sum.shape[1] - top)
        width = min(output.shape[2], self._sum.shape[2] - left)
        rows = slice(top, top + height)
        columns = slice(left, left + width)
        weights = weights[:height, :width]
        self._sum[:, rows, columns] += output[:, :height, :width] * weights
        self._weights[rows, columns] += weights
        self.num_patches += 1

    def mean(self) -> torch.Tensor:
        return (self._sum / self._weights).to(self._dtype)
