"""What the warnings about a program know of a loader, besides its recipe."""

from __future__ import annotations

from dataclasses import dataclass

from fastpipe.dataset.dataset import Dataset
from fastpipe.device.augment import Augment
from fastpipe.plan.recipe import Recipe, Size


@dataclass(frozen=True, eq=False)
class LoaderFacts:
    """It refers neither to the loader nor to its threads, so that it may outlive them.

    Attributes:
        dataset: what the loader reads.
        train: as the user passes it to fastpipe.loader.
        with_images: batches have images.
        normalising: how images are normalised, in words.
        size: of all images, (height, width); None if there are several.
        random_by_default: what is random though the user has not asked for it, such as "random
            crops"; "": nothing.
    """

    dataset: Dataset
    train: bool
    with_images: bool
    normalising: str
    size: Size | None
    random_by_default: str


def describe_normalising(augment: Augment | None) -> str:
    if augment is None or augment.mean is None:
        return "not normalised"
    return f"normalised with mean={augment.mean} and std={augment.std}"


def only_size(recipe: Recipe) -> Size | None:
    """The size of all images of a loader; None if there are several."""
    if recipe.sizes is not None or recipe.crop.has_own_sizes or recipe.other_views:
        return None
    return recipe.size
