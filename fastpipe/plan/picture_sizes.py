"""Index records -> the widths and heights of their images."""

from __future__ import annotations

import numpy as np

from fastpipe.arrays import Int64s, Records
from fastpipe.plan.crops import MAX_OUTPUT_PIXELS


def sides_of(records: Records) -> tuple[Int64s, Int64s]:
    """(n,) widths and heights. Of a sample without an image they are so large that any crop fits:
    nothing is cut out. A damaged record raises when its sample's batch is planned.
    """
    sides = []
    for name in ("width", "height"):
        lengths = records[name].astype(np.int64)
        sides.append(np.where(lengths > 0, lengths, MAX_OUTPUT_PIXELS))
    return sides[0], sides[1]


def picture_sizes(records: Records) -> Int64s:
    """(n, 2) widths and heights of the images of samples."""
    widths, heights = sides_of(records)
    return np.stack([widths, heights], axis=1)
