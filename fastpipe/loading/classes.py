"""The classes of loaders for training and for evaluation in one process -> warnings if they differ.

Note [classes of two loaders]
A label is a number. If the data for training and for evaluation number their classes differently,
the accuracy is wrong, and nothing fails. So a loader with train=False is compared, by name, with
the living loaders with train=True, and the other way round. `fastpipe.loader` logs a warning and
raises no error, because a program may well load two datasets that have nothing to do with each
other. For the same reason, datasets without a common name are not compared. The loaders of
`fastpipe.timm` belong to one model, so there it is an error.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.format.fields import CLASS_KINDS
from fastpipe.errors import format_count
from fastpipe.warnings_once import warn_once

if TYPE_CHECKING:
    from fastpipe.loading.loader import Loader


class _LiveLoader(NamedTuple):
    loader: weakref.ref[Loader]
    train: bool


_loaders: list[_LiveLoader] = []


def warn_of_other_classes(loader: Loader, *, train: bool) -> None:
    """Compares a new loader with those of the other kind; logs each difference once."""
    for message in describe_other_classes(loader.dataset, train=train):
        warn_once(message, message)
    _loaders.append(_LiveLoader(weakref.ref(loader), train))


def living_loaders(*, train: bool) -> Iterator[Loader]:
    """The loaders for training, or for evaluation, that the program has not dropped."""
    _loaders[:] = [live for live in _loaders if live.loader() is not None]
    for live in _loaders:
        loader = live.loader()
        if loader is not None and live.train == train:
            yield loader


def describe_other_classes(data: Dataset, *, train: bool) -> Iterator[str]:
    """Describes how a dataset's classes differ from those of the living loaders of the other kind.

    See Note [classes of two loaders]
    """
    for loader in living_loaders(train=not train):
        training = data if train else loader.dataset
        evaluation = loader.dataset if train else data
        for field, training_names, evaluation_names in _common_names(
            training, evaluation
        ):
            difference = _describe_difference(training_names, evaluation_names)
            if difference is not None:
                yield _message(training, evaluation, field, difference)


def _message(
    training: Dataset, evaluation: Dataset, field: str, difference: str
) -> str:
    of_field = f"of the field {field!r} " if field else ""
    new_classes = set(evaluation.classes) - {*training.classes, ""}
    if field:
        # Labels can be numbered when a dataset is opened, and fields only when it is packed.
        remedy = f"Give it the same ones: pack it with --classes-from {training.path}"
    elif new_classes:
        remedy = (
            "Leave out the images of classes that training does not have, and number the others "
            "alike: data.only([name for name in data.classes if name in training.classes])"
            ".with_classes(training.classes)"
        )
    elif _is_one_dataset(training, evaluation):
        remedy = (
            "Both are parts of one dataset: pass the same list to only() for both, or give the classes "
            "of the one to the other: val.with_classes(train.classes)"
        )
    else:
        remedy = (
            f"Give it the same ones: fastpipe.open(..., classes_from={str(training.path)!r}), or "
            f"pack it with --classes-from {training.path}"
        )
    return (
        f"the classes {of_field}of the data for evaluation, {evaluation.path}, have other numbers "
        f"than those of the data for training, {training.path}: {difference}. {remedy}"
    )


def _is_one_dataset(training: Dataset, evaluation: Dataset) -> bool:
    """Whether the samples of both are stored in the same datasets."""
    fingerprints = [stored.index.fingerprint for stored in training.stored]
    return fingerprints == [stored.index.fingerprint for stored in evaluation.stored]


def _common_names(
    training: Dataset, evaluation: Dataset
) -> Iterator[tuple[str, Sequence[str], Sequence[str]]]:
    """(field, names in training, names in evaluation) of all that both have; "" means labels."""
    yield "", training.classes, evaluation.classes
    evaluation_fields = evaluation.index.fields
    for name, field in training.index.fields.items():
        other = evaluation_fields.get(name)
        if other is None or field.kind not in CLASS_KINDS:
            continue
        if field.kind == other.kind:
            yield name, field.names, other.names


def _describe_difference(
    training: Sequence[str], evaluation: Sequence[str]
) -> str | None:
    """The first name with another number, or that training does not have.

    None if there is none, or if the datasets have no common name.
    """
    if list(training) == list(evaluation):
        return None
    # Without names there is nothing to compare by, and a dataset may have fewer of the numbers.
    if _are_digits(training) and _are_digits(evaluation):
        return None
    training_numbers = _numbers_by_name(training)
    evaluation_numbers = _numbers_by_name(evaluation)
    common = [name for name in evaluation_numbers if name in training_numbers]
    if not common:
        return None  # two datasets that have nothing to do with each other

    # A name with another number is worse than a new name, so it is reported first.
    moved = []
    for name in common:
        if training_numbers[name] != evaluation_numbers[name]:
            moved.append(name)
    if moved:
        name = moved[0]
        num_others = len(moved) - 1
        others = ""
        if num_others:
            verb = "has" if num_others == 1 else "have"
            others = f"; {format_count(num_others, 'other class')} {verb} another number, too"
        return (
            f"{name!r} is {evaluation_numbers[name]} in evaluation and {training_numbers[name]} in "
            f"training{others}"
        )
    for name, number in evaluation_numbers.items():
        if name not in training_numbers:
            return f"{name!r} is {number} in evaluation, and training has no such class"
    return None


def _numbers_by_name(names: Sequence[str]) -> dict[str, int]:
    """Numbers of classes, without the gaps, whose name is ""."""
    return {name: number for number, name in enumerate(names) if name}


def _are_digits(names: Sequence[str]) -> bool:
    """Whether the names are the numbers themselves, as for labels without names."""
    numbers = [str(number) for number in range(len(names))]
    return list(names) == numbers
