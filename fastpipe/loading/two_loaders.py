"""The loaders for training and for evaluation of one process -> warnings about what hardly is meant.

Images are normalised in one of them and not in the other, or in another way; they have another size;
or the datasets do not belong together as these two. A program may mean it, so the log says it, once,
and it is no error. Loaders whose datasets have no class in common are not compared: they belong to
different models.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastpipe.loading.classes import living_loaders
from fastpipe.loading.two_datasets import describe_datasets
from fastpipe.warnings_once import warn_once

if TYPE_CHECKING:
    from fastpipe.device.augment import Augment
    from fastpipe.loading.loader import Loader

_MANY_TIMES = 2  # so many times as many pixels a side
_DEFAULT_SIZE = (224, 224)


def warn_of_two_loaders(loader: Loader, *, train: bool) -> None:
    """Compares a new loader with the living ones of the other kind; logs each difference once."""
    for other in living_loaders(train=not train):
        training = loader if train else other
        evaluation = other if train else loader
        for message in _describe_differences(training, evaluation):
            warn_once(message, message)


def _describe_differences(training: Loader, evaluation: Loader) -> Iterator[str]:
    training_classes = {*training.dataset.classes}
    evaluation_classes = {*evaluation.dataset.classes}
    have_classes = training_classes and evaluation_classes
    is_same = training.dataset.index.content == evaluation.dataset.index.content
    if have_classes and not is_same and not training_classes & evaluation_classes:
        return  # they belong to different models
    yield from describe_datasets(training.dataset, evaluation.dataset)
    if training.maker.with_images and evaluation.maker.with_images:
        normalising = _describe_normalising(training, evaluation)
        if normalising is not None:
            yield normalising
        sizes = _describe_sizes(training, evaluation)
        if sizes is not None:
            yield sizes


def _describe_sizes(training: Loader, evaluation: Loader) -> str | None:
    """Says that one of two loaders has a size, and the other one the default, which is far from it."""
    sizes = []
    for loader in (training, evaluation):
        recipe = loader.recipe
        if recipe.sizes is not None or recipe.crop.has_own_sizes or recipe.other_views:
            return None
        sizes.append(recipe.size)
    if _DEFAULT_SIZE not in sizes:
        return None
    training_side = max(sizes[0])
    evaluation_side = max(sizes[1])
    larger = max(training_side, evaluation_side)
    if larger < _MANY_TIMES * min(training_side, evaluation_side):
        return None
    names = [f"{height} x {width}" for height, width in sizes]
    return (
        f"images for training are {names[0]}, and those for evaluation {names[1]}; 224 x 224 is the "
        "default of size=. A model sees objects of another size than it has learned from. Pass the same "
        "size= to both"
    )


def _describe_normalising(training: Loader, evaluation: Loader) -> str | None:
    """Says that images are normalised otherwise in training; None if they are not."""
    moments_of_training = _describe_moments(training.augments[0])
    moments_of_evaluation = _describe_moments(evaluation.augments[0])
    if moments_of_training == moments_of_evaluation:
        return None
    return (
        f"images for training, {training.dataset.path}, are {moments_of_training}, and those for "
        f"evaluation, {evaluation.dataset.path}, are {moments_of_evaluation}: a model sees other "
        "numbers than it has learned from. Pass the same mean and std in augment= to both; for "
        "evaluation fastpipe.Augment(mean=..., std=...) without random modules"
    )


def _describe_moments(augment: Augment | None) -> str:
    if augment is None or augment.mean is None:
        return "not normalised"
    return f"normalised with mean={augment.mean} and std={augment.std}"
