"""Pictures of any shape -> whole pictures of about one size, in batches of like shape.

Note [grouped batches]
The batches of an epoch are taken some at a time: as many as make a window of the shuffled order, at least 16. The
samples of these batches are sorted by shape and dealt out again: each batch gets a stretch of the sorted samples, and
which batch gets which stretch is drawn. So every batch is full, no sample is left over, reading stays in the window,
and any batch is found without the windows before it. Of each sequence of a Note [partition] the samples are sorted by
themselves, since a node may read its own only. Batch and size depend on the global batch, not on ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import numpy as np

from fastpipe.errors import ConfigError, whole
from fastpipe.plan.crops import MAX_OUTPUT_PIXELS, PaddedCrop
from fastpipe.plan.draws import Int64s, bits
from fastpipe.plan.order import CHUNKS_PER_WINDOW, recent
from fastpipe.plan.partition import Partition

_AREA = 224 * 224
_LONGEST = 2  # sides of the square of the same area: only pictures more elongated than 4:1 become smaller
_LEAST_BATCHES = 16  # fewer would leave much padding
_MOST_SAMPLES = 1 << 18  # sorted at once, unless a global batch has more
_MOST_WINDOWS = 4  # in memory: that at hand, and those that are fetched ahead
# Some batches whose samples are dealt out anew: the size of each, (height, width), and of each sequence (n,) the
# position, from the window's first on, that stands at each grouped one.
_Window = tuple[list[tuple[int, int]], dict[int, Int64s]]


@dataclass(frozen=True, kw_only=True)
class Buckets(PaddedCrop):
    """Whole images in their own aspect ratio, in batches of images of like shape: fastpipe.loader(size=Buckets(...)).

    Each image is resized by its own width and height only, put at the top left of its row, and padded at the right and
    below. A batch is as high and as wide as its largest image, rounded up to a multiple of `size_divisible`.

    Args:
        area: pixels of each resized image; sides are rounded down. None: 224 * 224, unless there is min_size.
        min_size: instead of the area: length of the shorter side in pixels, as in torchvision's detection models.
        max_size: longest side in pixels; an image that would be longer becomes smaller. None: with min_size 5 / 3 of
            it, with an area twice its root.
        size_divisible: height and width of batches are multiples of this.
        fill, padding_mode: of the padding; see RandomCrop.
        interpolation, antialias: of the resize; they and mask_fill: see RandomResizedCrop.
    """

    area: int | None = None
    min_size: int | None = None
    max_size: int | None = None
    size_divisible: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.area is not None and self.min_size is not None:
            raise ConfigError(
                f"Buckets: expected one of area= and min_size=, got both, area={self.area!r} and "
                f"min_size={self.min_size!r}; leave one out"
            )
        whole("size_divisible", self.size_divisible, least=1, most=1024)
        if self.min_size is not None:
            side = whole("min_size", self.min_size, least=1, most=MAX_OUTPUT_PIXELS)
            longest = side * 5 // 3
        else:
            area = whole("area", _AREA if self.area is None else self.area, least=1, most=MAX_OUTPUT_PIXELS**2)
            object.__setattr__(self, "area", area)
            side = math.isqrt(area)
            longest = _LONGEST * side
        if self.max_size is None:
            object.__setattr__(self, "max_size", min(longest, MAX_OUTPUT_PIXELS))
        elif whole("max_size", self.max_size, least=1, most=MAX_OUTPUT_PIXELS) < side:
            of = "min_size" if self.area is None else "the sides of a square of that area"
            raise ConfigError(
                f"Buckets: max_size={self.max_size} is shorter than {of}, {side}; pass a larger one, or leave it out"
            )

    @classmethod
    def _hint(cls, size: object) -> str:
        side = size if isinstance(size, int) else 800
        return f"For a shorter side of {side} pixels: fastpipe.loader(..., size=fastpipe.Buckets(min_size={side}))"

    @property
    def largest(self) -> tuple[int, int]:
        """(height, width) of a batch that has room for any single image of usual shape: memory is made for it first."""
        if self.area is not None:
            side = self.rounded_up(math.isqrt(self.area) + self.size_divisible)
            return side, side
        assert self.min_size is not None
        assert self.max_size is not None
        return self.rounded_up(self.min_size), self.rounded_up(self.max_size)

    @property
    def identity(self) -> list[int | None]:
        """What decides which samples are in one batch, for a state."""
        return [self.area, self.min_size, self.max_size, self.size_divisible]

    def rounded_up(self, side: int) -> int:
        """The side of a batch that holds a picture of this side."""
        return -(-side // self.size_divisible) * self.size_divisible

    def resized(self, widths: Int64s, heights: Int64s) -> Int64s:
        """(n, 2) int64: width and height of each picture in its row."""
        assert self.max_size is not None
        shorter, longer = np.minimum(widths, heights), np.maximum(widths, heights)
        if self.area is not None:
            # Roots of whole numbers below 2**52 are exact where they are whole.
            short = np.sqrt(self.area * shorter // longer).astype(np.int64)
            long = np.sqrt(self.area * longer // shorter).astype(np.int64)
            of_longest = self.max_size * shorter // longer
        else:  # torchvision's Resize(min_size, max_size=max_size)
            assert self.min_size is not None
            short, long = np.full_like(shorter, self.min_size), self.min_size * longer // shorter
            of_longest = self.max_size * self.min_size // long
        too_long = long > self.max_size
        short = np.maximum(np.where(too_long, of_longest, short), 1)
        long = np.where(too_long, self.max_size, long)
        wide = widths >= heights
        return np.stack([np.where(wide, long, short), np.where(wide, short, long)], axis=1)

    def shape(self, resized: Int64s) -> tuple[int, int]:
        """(height, width) of a batch that holds pictures of (n, 2) widths and heights, n at least 1."""
        width, height = resized.max(axis=0).tolist()
        return self.rounded_up(height), self.rounded_up(width)

    def likeness(self, resized: Int64s) -> Int64s:
        """(n,) numbers by which pictures of one shape, rounded up, stand together, and like shapes near each other."""
        steps: Int64s = -(-resized // self.size_divisible)
        return steps @ (2 * MAX_OUTPUT_PIXELS, -1)


@dataclass(frozen=True, eq=False)
class Grouping:
    """See Note [grouped batches]."""

    partition: Partition  # with all sequences
    resized: Callable[[int, int, int], Int64s]  # sequence, start, stop -> (n, 2) sides of the pictures in their rows
    buckets: Buckets
    _: KW_ONLY
    batches: int  # that are grouped together
    key: int | None  # of the draws of their order; None: from narrow to wide, window by window

    @staticmethod
    def batches_of(chunk: int, global_batch_size: int) -> int:
        """How many batches are grouped together, where `chunk` samples of the order are read together."""
        wanted = max(_LEAST_BATCHES, CHUNKS_PER_WINDOW * chunk // global_batch_size)
        return max(1, min(wanted, _MOST_SAMPLES // global_batch_size))

    def size(self, batch: int) -> tuple[int, int]:
        return self._window(batch // self.batches)[0][batch % self.batches]

    def positions(self, sequence: int, batch: int, start: int, stop: int) -> tuple[int, Int64s]:
        """The first position of a batch's window, and what stands at [start, stop) of the batch, counted from it."""
        if self.partition.edge(sequence, batch) > start:  # a sample that stands in where a node has none left
            batch -= 1
        begin = self.partition.edge(sequence, batch // self.batches * self.batches)
        _, chosen = self._window(batch // self.batches)
        return begin, chosen[sequence][start - begin : stop - begin]

    def grouped(self, sequence: int, positions: Int64s) -> Int64s:
        """Where positions of the order stand in the batches; those that no batch has stay in place."""
        found = positions.copy()
        inside = positions < self.partition.edge(sequence, self.partition.batches)
        if not inside.any():
            return found
        windows = np.full(len(positions), -1, dtype=np.int64)
        windows[inside] = self.partition.batches_of(sequence, positions[inside]) // self.batches
        for number in np.unique(windows[inside]).tolist():
            begin, mine = self.partition.edge(sequence, number * self.batches), windows == number
            places = np.argsort(self._window(number)[1][sequence])
            found[mine] = begin + places[positions[mine] - begin]
        return found

    def due(self, sequence: int, batch: int, *, first: bool) -> tuple[int, int]:
        """The positions that must be on their way before a batch: a window's first batch may need any of them."""
        begin = batch // self.batches * self.batches if first else batch + self.batches
        start, stop = (min(each, self.partition.batches) for each in (begin, batch + self.batches + 1))
        return self.partition.edge(sequence, start), self.partition.edge(sequence, stop)

    @recent(_MOST_WINDOWS)
    def _window(self, number: int) -> _Window:
        first = number * self.batches
        batches = np.arange(first, min(first + self.batches, self.partition.batches), dtype=np.int64)
        ranks = np.arange(len(batches))  # which stretch of the sorted samples each batch gets
        if self.key is not None:
            ranks = np.argsort(bits(self.key, batches), kind="stable")
        largest = np.ones((len(batches), 2), dtype=np.int64)
        chosen = {}
        for sequence, _ in self.partition.sequences:
            edges = [self.partition.edge(sequence, batch) for batch in range(first, first + len(batches) + 1)]
            resized = self.resized(sequence, edges[0], edges[-1])
            order = np.argsort(self.buckets.likeness(resized), kind="stable")
            stretches = np.split(order, np.cumsum(np.diff(edges)[np.argsort(ranks)])[:-1])
            dealt = [stretches[rank] for rank in ranks]
            for batch, rows in enumerate(dealt):
                largest[batch] = np.maximum(largest[batch], resized[rows].max(axis=0, initial=1))
            chosen[sequence] = np.concatenate(dealt)
        return [self.buckets.shape(each[None]) for each in largest], chosen
