"""What the views of a loader are: how each picture becomes a row of each of them.

Note [views]
The first view of a loader is what the loader would be without views=. View k, from 1 on, draws its crops, mirroring and
augmentation with a seed of its own, `view_seed(seed, k)`: so it has the rows that a loader of this seed has, in the
order of the loader's seed. Nothing else of a plan depends on a view.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastpipe.plan.buckets import Buckets
from fastpipe.plan.crops import Crop
from fastpipe.plan.draws import Stream, key


@dataclass(frozen=True)
class ViewRecipe:
    """How a picture becomes its row of one view."""

    size: tuple[int, int] | None  # (height, width) in pixels; None: that of the loader, which may change
    crop: Crop | Buckets
    flip: float  # probability of mirroring left and right
    seed: int


def view_seed(seed: int, view: int) -> int:
    """The seed of a view's draws; of the first view, 0, it is the loader's own."""
    return seed if view == 0 else key(seed, view, Stream.VIEW)
