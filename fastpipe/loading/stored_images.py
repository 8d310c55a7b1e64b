"""A field of kind mask or image -> memory for a batch of them, and the records of where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.columns import RowColumn

_AT_ONCE = 1 << 16  # records


class StoredImages:
    """Masks or second pictures.

    Args:
        column: their records.
        samples: in the dataset.
        picture: they are pictures, not masks.

    Attributes:
        column: as given.
        picture: as given.

    Raises:
        DatasetError: the records cannot be read.
    """

    def __init__(self, column: RowColumn, samples: int, *, picture: bool) -> None:
        self.column = column
        self.picture = picture
        self._dtype = np.int32 if not picture and _any_wide(column, samples) else np.uint8

    def slot(self, rows: int, size: tuple[int, int]) -> NDArray[Any]:
        """Memory for a batch: (rows, height, width) of ids, int32 if any mask of the dataset has 16 bits, else uint8;
        (rows, height, width, 3) uint8 for pictures.
        """
        return np.empty((rows, *size, 3) if self.picture else (rows, *size), dtype=self._dtype)


def _any_wide(column: RowColumn, samples: int) -> bool:
    """Whether a mask has 16 bits. All batches of a loader have to be of one type, so all records are looked at."""
    starts = range(0, samples, _AT_ONCE)
    parts = (column.take(np.arange(start, min(start + _AT_ONCE, samples))) for start in starts)
    return any(bool((part["bits"] > 8).any()) for part in parts)
