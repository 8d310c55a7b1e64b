"""The interface of an augmentation operation, and how it is applied to some rows of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastpipe.augment.plan import Draws, Step

Function = Callable[..., Tensor]


class Operation(torch.nn.Module, ABC):
    """One stage between uint8 and normalising: images float32 in [0, 1] in, the same out.

    `moves` are the kinds of what `move` changes: of fields, "mask", "boxes", "keypoints" and "image", of second
    pictures; "shown", of what says where rows have an image.
    """

    by_rows = True  # a batch may be given in parts; False: only whole
    fresh = True  # what it returns may be overwritten; False: it may be its maker's
    moves: frozenset[str] = frozenset()
    could_move: frozenset[str] = frozenset()  # those that it would move in a container that names them
    mixes = False  # images, so it also has `mixed_labels`, and labels become soft
    in_pairs = False  # it mixes each image with one other image
    compiles = False  # functions, before they run

    @property
    def name(self) -> str:
        """What its user passed, for messages."""
        return type(getattr(self, "module", self)).__name__

    @property
    def mirrors(self) -> bool:
        """Whether it is there to make mirror images."""
        return self.name in ("RandomHorizontalFlip", "RandomVerticalFlip")

    @abstractmethod
    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Draws what this operation, the one at `position`, does to a batch of images of `size` (height, width)."""

    @abstractmethod
    def run(self, images: Tensor, first: int, host: Any, tensors: Mapping[str, Tensor]) -> Tensor:
        """Does that to images (n, c, height, width) float32 in [0, 1], the batch's rows from `first` on; may overwrite
        them. The host's part and the tensors, on the images' device, are the whole batch's.
        """

    def size_after(self, size: tuple[int, int], channels: int) -> tuple[int, int]:
        """(height, width) of what it returns for images of `size`, with so many channels."""
        return size

    def move(self, kind: str, values: Tensor, host: Any, tensors: Mapping[str, Tensor]) -> Tensor:
        """Moves float32 values of the whole batch, of a kind in `moves`, as `run` moves pixels; may overwrite them:
        planes (N, c, height, width), in which "shown" is 1 for pixels of the image and 0 for padding; or points (N, P,
        2) x, y of boxes and keypoints, from the centre of the first pixel, on the CPU as the tensors.
        """
        return values

    def mixed_labels(self, labels: Tensor, host: Any, tensors: Mapping[str, Tensor]) -> Tensor:
        """Mixes soft labels, (n, classes) float32, as `run` mixes images."""
        raise NotImplementedError(f"{type(self).__name__} mixes no labels")

    def fast(self, function: Function) -> Function:
        """The function, or its compiled form."""
        return compiled(function) if self.compiles else function


class Apart(Operation):
    """Has a module that is no child of it, and so stays where it is when the operation is moved."""

    by_rows = False
    module: Any

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "module", module)

    def extra_repr(self) -> str:
        return repr(self.module)


@cache
def compiled(function: Function) -> Function:
    """torch.compile's form of a function of images; it serves any number of rows."""
    return torch.compile(function, dynamic=True)


def on_colour(function: Function) -> Function:
    """The function, of all channels but alpha, which stays as it is: only what moves pixels changes it."""

    def changed(images: Tensor, *parameters: Tensor) -> Tensor:
        if images.shape[1] < 4:
            return function(images, *parameters)
        images[:, :3] = function(images[:, :3], *parameters)
        return images

    return changed


def on_rows(
    function: Function, images: Tensor, first: int, rows: NDArray[np.int64], index: Tensor, *parameters: Tensor
) -> Tensor:
    """Applies a function of images, which it may overwrite, and parameters, one a row, to some rows of a batch.

    The images are its rows from `first` on. `rows` (m,) are numbers in the batch, ascending; `index` the same on the
    device, which the host need not ask for sizes.
    """
    count = len(images)
    low, high = bisect_left(rows, first), bisect_left(rows, first + count)
    if low == high:
        return images
    mine = [parameter[low:high] for parameter in parameters]
    if high - low == count:
        return function(images, *mine)
    places = index[low:high] - first if first else index[low:high]
    return images.index_copy_(0, places, function(images.index_select(0, places), *mine))
