"""Run lengths of a mask as a text, as Kaggle's tables have them -> ranges of pixels.

"1 3 10 5" is a start and a length, and again a start and a length: the pixels 1, 2, 3 and 10 to 14.
The first pixel is 1, and starts increase.

Note [order of runs]
The text does not say in which order the pixels are numbered. Most contests number them down the
columns, "from top to bottom, then left to right: 1 is pixel (1,1), 2 is pixel (2,1)" (Airbus,
Severstal, Understanding Clouds). Some number them along the rows, "from left to right, then top to
bottom" (Carvana, Sartorius). A mask in the wrong order has stripes all over the picture. So
`run_order` compares the runs with the sizes of some pictures.
Formats: https://www.kaggle.com/c/airbus-ship-detection/overview/evaluation,
https://www.kaggle.com/c/carvana-image-masking-challenge/overview/evaluation
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

# The pixels of a picture are numbered down the columns, or along the rows.
COLUMNS = "columns"
ROWS = "rows"
RUN_ORDERS = (COLUMNS, ROWS)

_PAIRS = re.compile(r"\d{1,15} +\d{1,15}(?: +\d{1,15} +\d{1,15})*")


def parse_runs(text: str) -> NDArray[np.int64]:
    """(runs, 2): the first pixel of each run, counted from 0, and the one behind its last.

    Raises:
        ValueError: the text is something else.
    """
    if _PAIRS.fullmatch(text.strip()) is None:
        raise ValueError(f"expected pairs of a start and a length, got {text[:60]!r}")
    # (runs, 2): starts, counted from 1, and lengths.
    pairs = np.array(text.split(), dtype=np.int64).reshape(-1, 2)
    starts = pairs[:, 0] - 1
    ends = starts + pairs[:, 1]
    is_in_order = starts[1:] >= ends[:-1]
    if pairs.min() < 1 or not is_in_order.all():
        raise ValueError(
            "expected starts and lengths from 1 on, each run after the previous one; got "
            f"{text[:60]!r}"
        )
    return np.stack([starts, ends], axis=1)


def are_runs(text: str) -> bool:
    """Whether a text has run lengths."""
    try:
        parse_runs(text)
    except ValueError:
        return False
    return True


def count_alternately(text: str, pixel_count: int) -> list[int]:
    """How many pixels are outside, inside, outside, ... the runs, of `pixel_count` in all.

    Raises:
        ValueError: the text has no run lengths, or they are of a larger picture.
    """
    runs = parse_runs(text)
    last_pixel = int(runs[-1, 1])
    if last_pixel > pixel_count:
        raise ValueError(
            f"expected runs in {pixel_count:,} pixels, got a run that ends at pixel {last_pixel:,}"
        )
    borders = np.concatenate([[0], runs.ravel(), [pixel_count]])
    counts: list[int] = np.diff(borders).tolist()
    return counts
