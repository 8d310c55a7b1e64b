"""A blur along rows and then along columns, each sample with weights of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray

Array = NDArray[Any]


class Blur(NamedTuple):
    """How some images are blurred.

    Attributes:
        across: (n, taps) the weights of neighbours in a row, from the left.
        down: (n, taps) those in a column, from the top.
        border: what lies outside the image: constant (0), reflect, replicate or circular.
    """

    across: Array
    down: Array
    border: str


# What `Prepared` has, as arrays -> the same as a blur.
MakeBlur = Callable[[Mapping[str, Array], Any], Blur]
