"""Boxes and points of a batch, each with the row that it is on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Boxes:
    """Boxes on the rows of a batch.

    Attributes:
        edges: (M, 4) float32 x0, y0, x1, y1 in pixels of the row.
        rows: (M,) int64, ascending: which row each is on.
        labels: (M,) int64, where boxes have labels.
    """

    edges: NDArray[np.float32]
    rows: NDArray[np.int64]
    labels: NDArray[np.int64] | None = None

    def take(self, chosen: NDArray[np.bool_]) -> Boxes:
        """Some of them, with their labels."""
        return Boxes(self.edges[chosen], self.rows[chosen], None if self.labels is None else self.labels[chosen])


@dataclass(frozen=True)
class Points:
    """Objects of K points each on the rows of a batch.

    Attributes:
        values: (M, K, 3) float32: x, y in pixels of the row, and a visibility.
        rows: (M,) int64, ascending: which row each is on.
        flip_pairs: of points that change places in a mirrored picture.
    """

    values: NDArray[np.float32]
    rows: NDArray[np.int64]
    flip_pairs: tuple[tuple[int, int], ...] = ()


def places_in_row(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """(M,) which of its row's things each is; the rows are ascending, below `count`."""
    sizes = np.bincount(rows, minlength=count)
    places: NDArray[np.int64] = np.arange(len(rows)) - (np.cumsum(sizes) - sizes)[rows]
    return places
