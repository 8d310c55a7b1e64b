"""What a stage does that only moves pixels: a matrix for each sample, and how images are sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Sampling(NamedTuple):
    """The options of torch.nn.functional.grid_sample."""

    mode: str
    padding_mode: str
    align_corners: bool


class Warp(NamedTuple):
    """How the pixels of some images are moved.

    Attributes:
        matrices: (n, 3, 3), or (3, 3) for all: from a place in the result, x, y, 1 in [-1, 1], to
            the place in the image that it comes from.
        sampling: None: any will do, because places of pixels come from places of pixels.
    """

    matrices: Array
    sampling: Sampling | None


# What `Prepared` has, as arrays -> the same as a warp.
MakeWarp = Callable[[Mapping[str, Array], Any], Warp]


def of_matrices(sampling: Sampling) -> MakeWarp:
    """A formula whose arrays are "matrices", (n, 2, 3) or (n, 3, 3)."""

    def warp(arrays: Mapping[str, Array], host: Any) -> Warp:
        matrices = np.asarray(arrays["matrices"])
        count, num_rows, _ = matrices.shape
        if num_rows == 2:
            last_row = np.array([0, 0, 1], np.float32)
            last_rows = np.broadcast_to(last_row, (count, 1, 3))
            matrices = np.concatenate([matrices, last_rows], axis=1)
        return Warp(matrices, sampling)

    return warp


def of_flip(x_sign: int, y_sign: int) -> MakeWarp:
    """A formula that mirrors images, where a sign is -1."""
    matrix = np.diag([x_sign, y_sign, 1]).astype(np.float32)

    def warp(arrays: Mapping[str, Array], host: Any) -> Warp:
        return Warp(matrix, None)

    return warp
