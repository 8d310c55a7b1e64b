"""Images of any shape -> whole images of about one size, in batches of similar shape.

Note [grouped batches]
Some batches that follow one another form a window: as many as a window of the shuffled order fills,
at least 16. The samples of a window are sorted by shape and dealt out again: each batch gets one
stretch of the sorted samples, and a draw decides which. So every batch is full, no sample is left
over, reads stay inside the window, and any batch can be planned without the windows before it.
The samples of each sequence of Note [partition] are sorted on their own, because a node may read
its own only. A batch's samples and size depend on the global batch, not on the number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import numpy as np

from fastpipe.arguments import refusing_unknown_fields
from fastpipe.arrays import Int64s
from fastpipe.errors import ConfigError, whole
from fastpipe.plan.crops import MAX_OUTPUT_PIXELS, PaddedCrop, Size
from fastpipe.plan.draws import bits
from fastpipe.plan.order import CHUNKS_PER_WINDOW, cache_recent
from fastpipe.plan.partition import Partition

_DEFAULT_AREA = 224 * 224
# The longest side, in sides of a square of the same area. Only images more elongated than 4:1
# become smaller.
_LONGEST_SIDE_RATIO = 2
_MIN_WINDOW_BATCHES = 16  # fewer batches would leave much padding
_MAX_WINDOW_SAMPLES = 1 << 18  # sorted at once, unless one global batch has more
_WINDOWS_KEPT = 4  # the current one, and those that are fetched ahead


@refusing_unknown_fields("fastpipe.Buckets")
@dataclass(frozen=True, kw_only=True)
class Buckets(PaddedCrop):
    """Whole images in their own aspect ratio, in batches of similar shape:
    fastpipe.loader(size=Buckets(...)).

    Each image is resized by its own width and height only, put at the top left of its row, and
    padded at the right and below. A batch is as high and as wide as its largest image, rounded up
    to a multiple of `size_divisible`.

    Args:
        area: pixels of each resized image; sides are rounded down. None: 224 * 224, unless
            `min_size` is given.
        min_size: instead of the area: length of the shorter side in pixels, as in torchvision's
            detection models.
        max_size: longest side in pixels; an image that would be longer becomes smaller. None: with
            min_size 5 / 3 of it, with an area twice its root.
        size_divisible: height and width of batches are multiples of this.
        fill, padding_mode: of the padding; see RandomCrop.
        interpolation, antialias: of the resize; they and mask_fill: see RandomResizedCrop.

    Example:
        >>> size = fastpipe.Buckets(area=48 * 48)
        >>> loader = fastpipe.loader("data/train", batch_size=4, size=size)
        >>> batch = next(iter(loader))
        >>> batch.pixel_mask.shape == batch[0].shape[:1] + batch[0].shape[2:]
        True
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

        # max_size may not be smaller than `side`.
        if self.min_size is not None:
            side = whole("min_size", self.min_size, least=1, most=MAX_OUTPUT_PIXELS)
            default_max_size = side * 5 // 3
        else:
            area = self.area
            if area is None:
                area = _DEFAULT_AREA
            area = whole("area", area, least=1, most=MAX_OUTPUT_PIXELS**2)
            object.__setattr__(self, "area", area)
            side = math.isqrt(area)
            default_max_size = _LONGEST_SIDE_RATIO * side

        if self.max_size is None:
            max_size = min(default_max_size, MAX_OUTPUT_PIXELS)
            object.__setattr__(self, "max_size", max_size)
            return
        max_size = whole("max_size", self.max_size, least=1, most=MAX_OUTPUT_PIXELS)
        if max_size < side:
            limit = "the sides of a square of that area"
            if self.area is None:
                limit = "min_size"
            raise ConfigError(
                f"Buckets: max_size={self.max_size} is shorter than {limit}, {side}; pass a larger "
                "one, or leave it out"
            )

    @classmethod
    def _hint(cls, size: object) -> str:
        side = size if isinstance(size, int) else 800
        return (
            f"For a shorter side of {side} pixels: "
            f"fastpipe.loader(..., size=fastpipe.Buckets(min_size={side}))"
        )

    @property
    def largest(self) -> Size:
        """(height, width) of a batch that holds any single image of usual shape.

        The first memory has this size.
        """
        if self.area is not None:
            square_side = math.isqrt(self.area)
            side = self.rounded_up(square_side + self.size_divisible)
            return side, side
        assert self.min_size is not None
        assert self.max_size is not None
        return self.rounded_up(self.min_size), self.rounded_up(self.max_size)

    @property
    def identity(self) -> list[int | None]:
        """The options that decide which samples share a batch. A loader's state compares them."""
        return [self.area, self.min_size, self.max_size, self.size_divisible]

    def rounded_up(self, side: int) -> int:
        """The side of a batch that holds an image with this side."""
        num_steps = -(-side // self.size_divisible)  # rounded up
        return num_steps * self.size_divisible

    def resized(self, widths: Int64s, heights: Int64s) -> Int64s:
        """(n, 2) int64: width and height of each image in its row."""
        assert self.max_size is not None
        # (n,) each: the sides of the image, and those of its row, of which the longer one may still
        # be too long.
        shorter = np.minimum(widths, heights)
        longer = np.maximum(widths, heights)
        if self.area is not None:
            # Of width w and height h, an area A in the same ratio has the sides sqrt(A * w / h) and
            # sqrt(A * h / w). float64 has the exact root of a square below 2**52.
            short_squared = self.area * shorter // longer
            short = np.sqrt(short_squared).astype(np.int64)
            long_squared = self.area * longer // shorter
            long = np.sqrt(long_squared).astype(np.int64)
            short_if_too_long = self.max_size * shorter // longer
        else:
            # The rule of torchvision's Resize(min_size, max_size=max_size).
            assert self.min_size is not None
            short = np.full_like(shorter, self.min_size)
            long = self.min_size * longer // shorter
            short_if_too_long = self.max_size * self.min_size // long

        too_long = long > self.max_size
        short = np.where(too_long, short_if_too_long, short)
        short = np.maximum(short, 1)
        long = np.where(too_long, self.max_size, long)
        is_wide = widths >= heights
        resized_widths = np.where(is_wide, long, short)
        resized_heights = np.where(is_wide, short, long)
        return np.stack([resized_widths, resized_heights], axis=1)

    def shape(self, resized: Int64s) -> Size:
        """(height, width) of a batch that holds images of these widths and heights, (n, 2)."""
        width, height = resized.max(axis=0).tolist()
        return self.rounded_up(height), self.rounded_up(width)

    def likeness(self, resized: Int64s) -> Int64s:
        """(n,) numbers to sort images by: equal for one rounded shape, near for similar ones.

        Ascending by width and, within one width, descending by height.
        """
        # (n, 2) width and height in steps of size_divisible, rounded up.
        steps: Int64s = -(-resized // self.size_divisible)
        # width * weight - height. A height is below the weight, so the width decides first.
        weight = 2 * MAX_OUTPUT_PIXELS
        return steps @ (weight, -1)


@dataclass(frozen=True)
class _Window:
    """Some batches that follow one another, after their samples were dealt out again."""

    sizes: list[Size]  # (height, width) of each batch
    # Number of a sequence -> (n,) for each place of the window, the position of its sample, counted
    # from the window's start.
    positions: dict[int, Int64s]


@dataclass(frozen=True, eq=False)
class Grouping:
    """Deals the samples of each window of batches out by shape; see Note [grouped batches]."""

    # It has the sequences of all nodes, so that all ranks agree on a batch's size.
    partition: Partition
    # (sequence, start, stop) -> (n, 2) width and height in the row.
    resized: Callable[[int, int, int], Int64s]
    buckets: Buckets
    _: KW_ONLY
    batches: int  # of a window
    # The key of the draws by which batches get their stretches; None: a window goes from narrow to
    # wide images.
    key: int | None

    @staticmethod
    def batches_of(chunk: int, global_batch_size: int) -> int:
        """The number of batches in a window, if the order is read in chunks of `chunk` samples."""
        batches_per_window = CHUNKS_PER_WINDOW * chunk // global_batch_size
        wanted = max(_MIN_WINDOW_BATCHES, batches_per_window)
        most = _MAX_WINDOW_SAMPLES // global_batch_size
        return max(1, min(wanted, most))

    def size(self, batch: int) -> Size:
        """(height, width) of a batch."""
        window, batch_in_window = divmod(batch, self.batches)
        return self._window(window).sizes[batch_in_window]

    def positions(
        self, sequence: int, batch: int, start: int, stop: int
    ) -> tuple[int, Int64s]:
        """The samples at the places [start, stop) of a sequence, which lie in `batch`.

        Returns:
            The first position of the batch's window, and (stop - start,) positions counted from it.
        """
        # A node that has no sample left for this batch repeats its last one, of the batch before.
        if self.partition.edge(sequence, batch) > start:
            batch -= 1
        window = batch // self.batches
        begin = self.partition.edge(sequence, window * self.batches)
        positions = self._window(window).positions[sequence]
        return begin, positions[start - begin : stop - begin]

    def grouped(self, sequence: int, positions: Int64s) -> Int64s:
        """The inverse: the places of the samples at these positions after they were dealt out.

        Positions after the last batch stay as they are.
        """
        places = positions.copy()
        last_edge = self.partition.edge(sequence, self.partition.batches)
        is_in_batch = positions < last_edge
        if not is_in_batch.any():
            return places
        windows = np.full(len(positions), -1, dtype=np.int64)
        batches = self.partition.batches_of(sequence, positions[is_in_batch])
        windows[is_in_batch] = batches // self.batches
        for window in np.unique(windows[is_in_batch]).tolist():
            begin = self.partition.edge(sequence, window * self.batches)
            in_window = windows == window
            position_of_place = self._window(window).positions[sequence]
            # argsort inverts a permutation.
            place_of_position = np.argsort(position_of_place)
            positions_in_window = positions[in_window] - begin
            places[in_window] = begin + place_of_position[positions_in_window]
        return places

    def due(self, sequence: int, batch: int, *, is_first: bool) -> tuple[int, int]:
        """The positions [start, stop) to request before `batch`, one window ahead of their use.

        `is_first`: it is the first batch of an iteration, which needs its own window as well. Any
        batch of a window may need any of the window's samples.
        """
        window_batch = batch // self.batches * self.batches
        start_batch = window_batch if is_first else batch + self.batches
        stop_batch = batch + self.batches + 1
        last = self.partition.batches
        start = self.partition.edge(sequence, min(start_batch, last))
        stop = self.partition.edge(sequence, min(stop_batch, last))
        return start, stop

    @cache_recent(_WINDOWS_KEPT)
    def _window(self, window: int) -> _Window:
        """Deals out the samples of a window; see Note [grouped batches]."""
        first = window * self.batches
        end = min(first + self.batches, self.partition.batches)
        count = end - first
        # (count,) which stretch of the sorted samples each batch gets, and the inverse.
        stretch_of_batch = np.arange(count)
        if self.key is not None:
            batches = np.arange(first, end, dtype=np.int64)
            draws = bits(self.key, batches)
            stretch_of_batch = np.argsort(draws, kind="stable")
        batch_of_stretch = np.argsort(stretch_of_batch)

        # (count, 2) width and height that hold all images of each batch.
        largest = np.ones((count, 2), dtype=np.int64)
        positions = {}
        for sequence, _ in self.partition.sequences:
            # (count + 1,) the positions at which the batches begin, and the end of the last one.
            edges = []
            for batch in range(first, end + 1):
                edges.append(self.partition.edge(sequence, batch))
            # (samples of the window, 2) their sizes, and (samples,) their order by shape.
            resized = self.resized(sequence, edges[0], edges[-1])
            likeness = self.buckets.likeness(resized)
            by_shape = np.argsort(likeness, kind="stable")
            # Batches may differ in length by one sample, so each stretch is as long as its batch.
            batch_lengths = np.diff(edges)
            stretch_lengths = batch_lengths[batch_of_stretch]
            stretch_ends = np.cumsum(stretch_lengths)
            stretches = np.split(by_shape, stretch_ends[:-1])
            dealt = [stretches[stretch] for stretch in stretch_of_batch]
            for batch, rows in enumerate(dealt):
                # A node may have no row in a batch; then the sides stay.
                sides = resized[rows].max(axis=0, initial=1)
                largest[batch] = np.maximum(largest[batch], sides)
            positions[sequence] = np.concatenate(dealt)
        sizes = [self.buckets.shape(sides[None]) for sides in largest]
        return _Window(sizes, positions)
