"""The steps that change each pixel by itself: their codes, which a kernel of a device carries out.

A sample has a list of such steps, with a few numbers each, so that neighbouring modules become one
pass over the images, whichever of them a sample gets, and in whichever order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NUM_VALUES = 5  # the most numbers of a step
Array = NDArray[Any]


class Code(IntEnum):
    """What a step does to the red, green and blue of a pixel; in brackets its numbers.

    All but GREY, INVERT and ERASE clamp their input to [0, 1].
    """

    NOTHING = 0
    CLAMP = 1
    ADD = 2  # (factor): adds the factor minus 1
    MULTIPLY = 3  # (factor)
    CONTRAST = 4  # (factor): away from the image's mean grey
    SATURATE = 5  # (factor): away from grey
    SATURATE_IN_HSV = 6  # (factor)
    TURN_HUE = 7  # (turns)
    GREY = 8
    GAMMA = 9  # (exponent, gain)
    SOLARIZE = 10  # (threshold, addition)
    POSTERIZE = 11  # (256 divided by the number of tones)
    INVERT = 12  # (highest)
    ERASE = 13  # (top, left, bottom, right, value)
    FLIP_ACROSS = 14
    FLIP_DOWN = 15


class PixelStep(NamedTuple):
    """A step of n samples.

    Attributes:
        code: what it does.
        values: its numbers, each (n,) or one for all.
    """

    code: Code
    values: tuple[Array | float, ...] = ()


# What `Prepared` has, as arrays -> the same as steps of the samples.
Steps = Callable[[Mapping[str, Array], Any], list[PixelStep]]


def one_step(code: Code, *names: str) -> Steps:
    """A formula that is one step, whose numbers are the arrays of these names."""

    def steps(arrays: Mapping[str, Array], host: Any) -> list[PixelStep]:
        values = tuple(np.asarray(arrays[name]) for name in names)
        return [PixelStep(code, values)]

    return steps
