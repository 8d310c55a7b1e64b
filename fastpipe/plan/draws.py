"""(seed, epoch, stream, number) -> a random value, by a stateless hash.

There is no generator and no order of calls: any draw can be made at any time, on any rank, alone or
with others.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from fastpipe.arrays import Float64s, Int64s, Uint64s

_MASK = 2**64 - 1
# 2**64 divided by the golden ratio, odd: splitmix64's increment.
_GOLDEN = 0x9E3779B97F4A7C15


class Stream(IntEnum):
    """The purpose of a draw. The streams are independent of each other.

    The numbers decide what a seed draws: changing one changes the batches of every user. Where the
    comment says nothing else, a draw is named by (seed, epoch, sample or position).
    """

    ROTATE = 1
    CHUNKS = 2
    WINDOW = 3
    FLIP = 4
    CROP_X = 5
    CROP_Y = 6
    REPLACE = 7
    SEQUENCE = 8
    DRAW = 9  # a sampler's draws by weight
    LUCK = 10
    LIMIT = 11  # without seed and epoch
    FOLD = 12
    DATASET = 13  # rows of a mixture
    VIEW = 14  # by number of the view, in place of the epoch
    CLASS = 15  # by round, without epoch
    MEMBER = 16  # by class, without epoch
    LIST = 17  # of a sampler
    SIZE = 24  # by batch
    GROUP = 25  # by batch
    CROP_AREA = 32  # to 41: one a try
    CROP_RATIO = 48  # to 57
    JITTER = 64
    BRIGHTNESS = 65
    CONTRAST = 66
    SATURATION = 67
    HUE = 68
    JITTER_ORDER = 69  # by batch
    GRAYSCALE = 70
    BLUR = 71
    BLUR_SIGMA = 72
    ERASE = 73
    ERASE_X = 74
    ERASE_Y = 75
    MIX_OR_CUT = 76
    MIX_RADIUS = 77
    MIX_ANGLE = 78
    CUT_X = 79
    CUT_Y = 80
    MODULE = 81  # modules of other libraries: by sample, by group or by batch
    CALL = 82  # by call, for an Augment without a loader
    MODULE_GROUP = 83
    ERASE_COUNT = 84
    ERASE_NOISE = 85
    MIX = 86
    CUT_HEIGHT = 87
    CUT_WIDTH = 88
    UPSIDE_DOWN = 89
    ERASE_AREA = 96  # to 105: one a try
    ERASE_RATIO = 112  # to 121
    OPERATION = 128  # to 143: one a layer
    MAGNITUDE = 144  # to 159
    SIGN = 160  # to 175
    TEXT_CHOICE = 192
    TEXT_DROP = 193
    TEXT_TAGS = 194
    PREPARE = 195  # seeds for the program's own draws
    PICTURE = 196  # of a list: by its number, without seed and epoch
    CROP_OF_IMAGE = 197  # one of several: by its number, without seed and epoch
    OBJECT = 198  # the box that a crop is around


def mix(value: Uint64s) -> Uint64s:
    """Spreads each bit of 64 over all of them; a bijection.

    Source: Stafford's variant 13 of the MurmurHash3 finaliser, as in splitmix64 (Steele, Lea and
    Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
    """
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _mix_one(value: int) -> int:
    """`mix` for one number, in Python's integers."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


@functools.lru_cache(maxsize=1024)
def key(seed: int, epoch: int, stream: int) -> int:
    """The 64-bit key of one stream of one epoch."""
    hashed = 0
    for part in (seed, epoch, stream):
        mixed_in = (hashed + _GOLDEN) ^ (part & _MASK)
        hashed = _mix_one(mixed_in & _MASK)
    return hashed


def keys(seeds: Sequence[int], epoch: int, stream: int) -> Uint64s:
    """(n,) the keys of one stream for several seeds."""
    stream_keys = [key(seed, epoch, stream) for seed in seeds]
    return np.array(stream_keys, dtype=np.uint64)


def bits(stream_key: int | Uint64s, numbers: Int64s) -> Uint64s:
    """64 random bits for each number. Numbers and keys are broadcast against each other."""
    stream_keys = np.asarray(stream_key, dtype=np.uint64)
    hashed = numbers.astype(np.uint64) * np.uint64(_GOLDEN)
    hashed = hashed + stream_keys
    return mix(mix(hashed))


def uniform(stream_key: int | Uint64s, numbers: Int64s) -> Float64s:
    """A float64 in [0, 1) for each number: the upper 53 bits of its 64."""
    if isinstance(stream_key, int) and numbers.shape == (1,):
        # Numpy is slow for arrays of one.
        return np.array([uniform_one(stream_key, int(numbers[0]))])
    upper_bits = bits(stream_key, numbers) >> np.uint64(11)
    return upper_bits.astype(np.float64) * 2.0**-53


def between(
    draws: Float64s, least: float | Float64s, most: float | Float64s
) -> Float64s:
    """Draws in [0, 1) -> numbers from `least` to `most`, evenly."""
    return least + (most - least) * draws


def up_to(draws: Float64s, most: int | Int64s) -> Int64s:
    """Draws in [0, 1) -> whole numbers from 0 to `most`, each equally often."""
    # A draw is below 1, so its product with most + 1 is rounded down to at most `most`.
    return (draws * (most + 1)).astype(np.int64)


def uniform_one(stream_key: int, number: int) -> float:
    """`uniform` for one number, without numpy."""
    hashed = (number * _GOLDEN + stream_key) & _MASK
    hashed = _mix_one(_mix_one(hashed))
    return (hashed >> 11) * 2.0**-53
