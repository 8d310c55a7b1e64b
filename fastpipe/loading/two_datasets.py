"""The datasets of a loader for training and of one for evaluation -> what hardly is meant about them.

Two parts of a dataset share samples, are swapped, or have other classes; or two datasets have the same
pictures.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastpipe.arrays import Int64s, Uint64s
from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.divided_groups import warn_of_divided_groups
from fastpipe.errors import first_names, format_count
from fastpipe.plan.spread import spread

_MAX_SAMPLES_COMPARED = 1 << 21
_MAX_PICTURES_COMPARED = 4096
_LEAST_COPIED = 2  # pictures
# Of the pictures that were compared. Some photos are in a dataset twice.
_SHARE_COPIED = 0.05
_FEW_TIMES = 2  # so many times as many samples for evaluation
_MAX_CLASSES_SHOWN = 3


def describe_datasets(training: Dataset, evaluation: Dataset) -> Iterator[str]:
    """Messages for the log, if there is anything to say."""
    if training.index.content != evaluation.index.content:
        copies = _describe_copies(training, evaluation)
        if copies is not None:
            yield copies
        return
    overlap = _describe_overlap(training, evaluation)
    if overlap is not None:
        yield overlap
        return
    untrained = _describe_untrained(training, evaluation)
    if untrained is not None:
        yield untrained
    are_parts = training.content.samples is not None
    if are_parts and evaluation.content.samples is not None and not training.fold_level:
        warn_of_divided_groups(training, evaluation)


def _describe_overlap(training: Dataset, evaluation: Dataset) -> str | None:
    """Says that two parts of a dataset share samples; None if they do not.

    Who evaluates on all samples, or trains on all of them, knows it.
    """
    training_samples = training.content.samples
    evaluation_samples = evaluation.content.samples
    if training_samples is None or evaluation_samples is None:
        return None
    if max(len(training_samples), len(evaluation_samples)) > _MAX_SAMPLES_COMPARED:
        return None
    count = int(np.isin(evaluation_samples, training_samples).sum())
    if not count:
        return _describe_swapped(training, evaluation)
    # The same part twice is meant, too.
    if np.array_equal(training_samples, evaluation_samples):
        return None
    samples = format_count(len(evaluation_samples), "sample")
    if training.fold_level and evaluation.fold_level:
        remedy = "Take both from one call of fold"
    else:
        remedy = "Of take, the smaller part is in the larger one. To divide a dataset"
    return (
        f"{count:,} of the {samples} for evaluation are also among those for training: both are parts "
        f"of {training.path}. {remedy}: train, val = data.fold(0, of=5)"
    )


def _describe_copies(training: Dataset, evaluation: Dataset) -> str | None:
    """Says that two datasets have the same pictures, as where files were copied and not moved."""
    if not training.index.packed or not evaluation.index.packed:
        return None  # a scan may not know the pictures
    num_training = len(training)
    num_evaluation = len(evaluation)
    if num_training > _MAX_SAMPLES_COMPARED or not num_evaluation:
        return None
    some_ids = spread(num_evaluation, _MAX_PICTURES_COMPARED)
    evaluation_ids = np.array(some_ids, dtype=np.int64)
    training_ids = np.arange(num_training, dtype=np.int64)
    pictures = _identities(evaluation, evaluation_ids)
    is_copied = np.isin(pictures, _identities(training, training_ids))
    num_copied = int(is_copied.sum())
    if num_copied < max(_LEAST_COPIED, _SHARE_COPIED * len(pictures)):
        return None
    compared = format_count(len(pictures), "image")
    return (
        f"{num_copied:,} of {compared} of {evaluation.path}, for evaluation, are in the data for training, "
        f"{training.path}, too, so its figures show how well the model remembers them. "
        f"fastpipe.duplicates({str(training.path)!r}, {str(evaluation.path)!r}) lists them"
    )


def _identities(data: Dataset, ids: Int64s) -> Uint64s:
    """(n,) a hash of the file of each sample's picture."""
    numbers = data.content.numbers(ids)
    return data.index.hashes(numbers, "identity")


def _describe_swapped(training: Dataset, evaluation: Dataset) -> str | None:
    """Says that training has the smaller part of a dataset, and evaluation all the rest."""
    num_all = len(training.index)
    is_whole = len(training) + len(evaluation) == num_all
    if not is_whole or len(training) * _FEW_TIMES > len(evaluation):
        return None
    samples = format_count(len(training), "sample")
    return (
        f"training reads {samples} of {training.path}, and evaluation the other {len(evaluation):,}. If "
        "the two are swapped: data.fold gives the part that it names second: train, val = data.fold(0, "
        "of=5)"
    )


def _describe_untrained(training: Dataset, evaluation: Dataset) -> str | None:
    """Says that one part of a dataset has classes that the other part for training lacks.

    So have select(range(800)) and select(range(800, 1000)) of a dataset in the order of its classes.
    Who leaves classes out with `only` has fewer classes.
    """
    if training.classes != evaluation.classes or training.content.samples is None:
        return None
    if training.fold_level and evaluation.fold_level:
        return None  # fold has logged it
    if max(len(training), len(evaluation)) > _MAX_SAMPLES_COMPARED:
        return None
    untrained = []
    counts = zip(
        training.classes, training.class_counts, evaluation.class_counts, strict=True
    )
    for name, training_count, evaluation_count in counts:
        if evaluation_count and not training_count:
            untrained.append(name)
    if not untrained:
        return None
    return (
        f"the part of {training.path} for training has no sample of "
        f"{format_count(len(untrained), 'class')} that the part for evaluation has: "
        f"{first_names(untrained, _MAX_CLASSES_SHOWN)}. Numbers of neighbours are no random part where "
        "samples lie class by class. To divide a dataset: train, val = data.fold(0, of=5)"
    )
