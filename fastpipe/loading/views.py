"""The argument `views` of fastpipe.loader() -> how a picture becomes a row of each view, and what augments it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral

import torch

from fastpipe.augment import Augment, as_augment
from fastpipe.checks import whole
from fastpipe.errors import ConfigError
from fastpipe.loading.impossible import impossible
from fastpipe.loading.options import checked_crop, fitting, flip_probability, output_size
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.crops import Crop
from fastpipe.plan.recipe import Recipe
from fastpipe.plan.views import ViewRecipe, view_seed

MOST_VIEWS = 64
_EXPECTED = (
    "views: expected a number, such as 2, or fastpipe.View objects: [fastpipe.View(224, count=2), fastpipe.View(96, "
    "count=6)]"
)


@dataclass(frozen=True)
class View:
    """One view of each image, or several of one kind: for `fastpipe.loader(views=[...])`.

    Args:
        size: of the view in pixels: a number for a square, or (height, width). None: that of the loader, which may
            change from batch to batch or from epoch to epoch.
        count: how many views of this kind, each with random crops of its own.
        crop, hflip, augment: as in `fastpipe.loader`. None: that of the loader. Soft labels (mixup, cutmix, label
            smoothing) have to be the same in all views.
    """

    size: int | tuple[int, int] | None = None
    count: int = 1
    crop: Crop | None = None
    hflip: bool | float | None = None
    augment: Augment | torch.nn.Module | Sequence[torch.nn.Module] | None = None


def recipe_of_views(
    views: object, recipe: Recipe, augment: Augment | None, *, train: bool
) -> tuple[Recipe, tuple[Augment | None, ...]]:
    """The recipe of a loader with these views, and what augments each of them.

    Args:
        views: as a user passed them.
        recipe: of the loader, without them.
        augment: of the loader.
        train: of the loader.

    Raises:
        ConfigError: a view is wrong, or does not go with the others.
    """
    given = list(_each(views))
    if not 2 <= len(given) <= MOST_VIEWS:
        raise ConfigError(
            f"views: expected 2 to {MOST_VIEWS} views of each image, got {len(given)}; for one, leave views out"
        )
    recipes, augments, sizes = [], [], recipe.sizes
    for number, view in enumerate(given):
        size = None if view.size is None else output_size(view.size)
        crop: Crop | Buckets = recipe.crop
        if not isinstance(crop, Buckets):
            crop = checked_crop(crop if view.crop is None else view.crop, size or recipe.size, train=train)
            sizes = sizes if sizes is None or size is not None else fitting(sizes, crop, train=train)
        elif view.size is not None or view.crop is not None:
            raise impossible("crops of buckets", repr(view))
        if crop.rows > 1:
            raise impossible("crops of views", type(crop).__name__)
        flip = recipe.flip if view.hflip is None else flip_probability(view.hflip, train=train)
        recipes.append(ViewRecipe(size, crop, flip, view_seed(recipe.seed, number)))
        augments.append(augment if view.augment is None else as_augment(view.augment))
    labelling = [None if each is None else each.labelling for each in augments]
    if any(each != labelling[0] for each in labelling):
        raise impossible("labels of views")
    first, more = recipes[0], tuple(recipes[1:])
    recipe = replace(recipe, sizes=sizes, crop=first.crop, flip=first.flip, first_size=first.size, more=more)
    return recipe, tuple(augments)


def _each(views: object) -> Iterator[View]:
    """Each view by itself."""
    if isinstance(views, Integral) and not isinstance(views, bool):
        views = [View(count=whole("views", views, least=2, most=MOST_VIEWS, hint="for one view, leave views out"))]
    if not isinstance(views, (tuple, list)) or not views:
        raise ConfigError(f"{_EXPECTED}, got {views!r}")
    for view in views:
        if not isinstance(view, View):
            raise ConfigError(f"{_EXPECTED}, got {view!r} among them")
        for _ in range(whole("View(count=)", view.count, least=1, most=MOST_VIEWS)):
            yield view
