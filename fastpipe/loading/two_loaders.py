"""A loader for training and one for evaluation -> what hardly is meant about them, in words.

Images are normalised in one of them and not in the other, or in another way; they have another size;
or the datasets do not belong together as these two. A program may mean it, so the log says it, once,
and it is no error. Loaders whose datasets have no class in common are not compared: they belong to
different models.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastpipe.loading.loader_facts import LoaderFacts
from fastpipe.loading.two_datasets import describe_datasets

_MANY_TIMES = 2  # so many times as many pixels a side
_DEFAULT_SIZE = (224, 224)


def describe_two_loaders(
    training: LoaderFacts, evaluation: LoaderFacts
) -> Iterator[str]:
    """Messages for the log, if there is anything to say."""
    training_classes = {*training.dataset.classes}
    evaluation_classes = {*evaluation.dataset.classes}
    have_classes = training_classes and evaluation_classes
    is_same = training.dataset.index.content == evaluation.dataset.index.content
    if have_classes and not is_same and not training_classes & evaluation_classes:
        return  # they belong to different models
    yield from describe_datasets(training.dataset, evaluation.dataset)
    if training.with_images and evaluation.with_images:
        normalising = _describe_normalising(training, evaluation)
        if normalising is not None:
            yield normalising
        sizes = _describe_sizes(training, evaluation)
        if sizes is not None:
            yield sizes


def _describe_sizes(training: LoaderFacts, evaluation: LoaderFacts) -> str | None:
    """Says that one of two loaders has a size, and the other one the default, which is far from it."""
    sizes = [training.size, evaluation.size]
    if training.size is None or evaluation.size is None or _DEFAULT_SIZE not in sizes:
        return None
    training_side = max(training.size)
    evaluation_side = max(evaluation.size)
    larger = max(training_side, evaluation_side)
    if larger < _MANY_TIMES * min(training_side, evaluation_side):
        return None
    training_name = " x ".join(map(str, training.size))
    evaluation_name = " x ".join(map(str, evaluation.size))
    return (
        f"images for training are {training_name}, and those for evaluation {evaluation_name}; 224 x 224 is the "
        "default of size=. A model sees objects at a different scale than in training. Pass the same "
        "size= to both"
    )


def _describe_normalising(training: LoaderFacts, evaluation: LoaderFacts) -> str | None:
    """Says that images are normalised otherwise in training; None if they are not."""
    if training.normalising == evaluation.normalising:
        return None
    return (
        f"images for training, {training.dataset.path}, are {training.normalising}, and those for "
        f"evaluation, {evaluation.dataset.path}, are {evaluation.normalising}: a model sees other "
        "numbers than it has learned from. Pass the same mean and std in augment= to both; for "
        "evaluation fastpipe.Augment(mean=..., std=...) without random modules"
    )
