"""What a user says of fields of boxes and points; and their values in a batch, each with the row that it is on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError
from fastpipe.errors.checks import choice, real_number, whole

_MOST_POINTS = 2**31
_PAIRS_HINT = "pass pairs of points' numbers, counted from 0: flip_pairs=[(1, 2), (3, 4)]"


@dataclass(frozen=True)
class Boxes:
    """A field of boxes, in `fields=` of fastpipe.loader, or in `data.with_fields`. Its name alone means these defaults.

    Args:
        name: of the field.
        form: how boxes come: "list", one tensor (M, 4) for each sample; "flat", one tensor (all, 4), and NAME_offsets;
            "pad", one tensor (N, most, 4), and NAME_counts. Labels of boxes come as NAME_labels.
        min_size: boxes are dropped, with their labels, if their width or height in the output is smaller, in pixels.
            With 0, and min_area=0, no box is dropped: a box outside the crop has no area.
        min_area: boxes are dropped if their area in the output is smaller, in pixels.
    """

    name: str
    _: KW_ONLY
    form: str = "list"
    min_size: float = 1.0
    min_area: float = 0.0

    def __post_init__(self) -> None:
        choice("Boxes(form=)", self.form, ("list", "flat", "pad"))
        for option in ("min_size", "min_area"):
            number = real_number(given := getattr(self, option))
            if number is None or not 0 <= number < float("inf"):
                raise ConfigError(f"Boxes({option}=): expected a number of pixels, 0 or more, got {given!r}")


@dataclass(frozen=True)
class Points:
    """A field of points, in `fields=` of fastpipe.loader, or in `data.with_fields`.

    Args:
        name: of the field.
        flip_pairs: the points of an object that change places in a mirrored image, in pairs: [(1, 2)] for a left and a
            right eye with the numbers 1 and 2; []: there are none. Mirrored points need it. None: the pairs that the
            field has itself, as a dataset packed from COCO has.
    """

    name: str
    _: KW_ONLY
    flip_pairs: Sequence[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        if (given := self.flip_pairs) is None:
            return
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ConfigError(f"Points(flip_pairs=): got {given!r}; {_PAIRS_HINT}")
        for pair in (pairs := tuple(given)):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise ConfigError(f"Points(flip_pairs=): got {pair!r} as a pair; {_PAIRS_HINT}")
        flat = [check_point(point, _MOST_POINTS) for pair in pairs for point in pair]
        if len(set(flat)) < len(flat):
            raise ConfigError(f"Points(flip_pairs=): got {given!r}, in which a point is there twice; {_PAIRS_HINT}")
        object.__setattr__(self, "flip_pairs", tuple(zip(flat[::2], flat[1::2], strict=True)))


def check_point(number: object, points: int) -> int:
    """Checks the number of a point, of an object of so many."""
    return whole("Points(flip_pairs=)", number, least=0, most=points - 1, hint=_PAIRS_HINT)


@dataclass(frozen=True)
class Placed:
    """Boxes, or objects of K points each, on the rows of a batch, in pixels of the row."""

    values: NDArray[np.float32]  # boxes (M, 4) x0, y0, x1, y1; points (M, K, 3) x, y, and a visibility
    rows: NDArray[np.int64]  # (M,) ascending: which row each is on
    labels: NDArray[np.int64] | None = None  # (M,) of boxes
    flip_pairs: Sequence[tuple[int, int]] = ()  # of points that change places in a mirrored picture

    @property
    def are_boxes(self) -> bool:
        return self.values.ndim == 2

    def take(self, chosen: NDArray[np.bool_]) -> Placed:
        labels = None if self.labels is None else self.labels[chosen]
        return Placed(self.values[chosen], self.rows[chosen], labels, self.flip_pairs)


def places_in_row(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """(M,) which of its row's things each is; the rows are ascending, below `count`."""
    sizes = np.bincount(rows, minlength=count)
    return np.asarray(np.arange(len(rows)) - (np.cumsum(sizes) - sizes)[rows])
