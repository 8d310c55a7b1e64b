"""The classes of data for training and for evaluation -> how they differ, in words.

Note [classes of two loaders]
A label is a number. If the data for training and for evaluation number their classes differently,
the accuracy is wrong, and nothing fails. So a loader with train=False is compared, by name, with
the one with train=True that it belongs to; see Note [pairs of loaders]. The log says it, and it is
no error, because a program may well load two datasets that have nothing to do with each other. For
the same reason, datasets without a common name are not compared. Two loaders with train=False that
the program makes one after the other may be query and gallery. The loaders of `fastpipe.timm`
belong to one model, so there it is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.format.fields import CLASS_KINDS
from fastpipe.errors import format_count


def describe_other_classes(training: Dataset, evaluation: Dataset) -> Iterator[str]:
    """Describes how the classes of two datasets differ. See Note [classes of two loaders]"""
    for field, training_names, evaluation_names in _common_names(training, evaluation):
        difference = _describe_difference(training_names, evaluation_names)
        if difference is not None:
            yield _message(training, evaluation, field, difference)


def describe_two_evaluations(first: Dataset, second: Dataset) -> str | None:
    """Says that two datasets for evaluation number their classes differently.

    As query and gallery of a retrieval: their labels are compared. Those of one have to be among
    those of the other. Others are benchmarks that have some names in common.
    """
    larger, smaller = sorted((first, second), key=lambda data: -len({*data.classes}))
    if not {*smaller.classes} <= {*larger.classes}:
        return None
    if _are_digits(larger.classes) and _are_digits(smaller.classes):
        return None
    larger_numbers = _numbers_by_name(larger.classes)
    smaller_numbers = _numbers_by_name(smaller.classes)
    moved = _list_moved(larger_numbers, smaller_numbers)
    if not moved:
        return None
    name = moved[0]
    if any(
        _has_own_classes(data) or _are_numbered_here(data) for data in (first, second)
    ):
        remedy = (
            "give the one the classes of the other: data.with_classes(other.classes)"
        )
    else:
        remedy = (
            f"give both the same ones: fastpipe.open({str(smaller.path)!r}, "
            f"classes_from={str(larger.path)!r})"
        )
    return (
        f"the classes of {smaller.path} and {larger.path}, both for evaluation, have other numbers: "
        f"{name!r} is {smaller_numbers[name]} in the first and {larger_numbers[name]} in the second"
        f"{_describe_others(moved)}. If labels of the two are compared, as of query and gallery, "
        f"{remedy}"
    )


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
    elif _has_own_classes(training) or _has_own_classes(evaluation):
        remedy = (
            "Labels or classes were given in the program, so give both the same list: "
            "val.with_classes(train.classes), or with_labels(..., classes=train.classes)"
        )
    elif _is_one_dataset(training, evaluation):
        remedy = (
            "Both are parts of one dataset: pass the same list to only() for both, or give the classes "
            "of the one to the other: val.with_classes(train.classes)"
        )
    elif _are_numbered_here(training) or _are_numbered_here(evaluation):
        # The files may well agree, so packing them again would not help.
        remedy = (
            "only(), with_classes() and classes_from= number classes in the order of their list: pass "
            "the same list for both, or give the classes of the one to the other: "
            "val.with_classes(train.classes)"
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


def _has_own_classes(data: Dataset) -> bool:
    """Whether the labels or the classes are those of the program, and not those of the files."""
    return data.content.labels is not None


def _are_numbered_here(data: Dataset) -> bool:
    """Whether the program has given the classes other numbers than the files have."""
    return _has_classes_of_program(data.content.identity)


def _has_classes_of_program(identity: Mapping[str, Any]) -> bool:
    """Of a joined dataset: whether one of its parts has them."""
    parts = identity.get("parts", ())
    return "classes" in identity or any(map(_has_classes_of_program, parts))


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
    moved = _list_moved(training_numbers, evaluation_numbers)
    if moved:
        name = moved[0]
        return (
            f"{name!r} is {evaluation_numbers[name]} in evaluation and {training_numbers[name]} in "
            f"training{_describe_others(moved)}"
        )
    for name, number in evaluation_numbers.items():
        if name not in training_numbers:
            return f"{name!r} is {number} in evaluation, and training has no such class"
    return None


def _list_moved(
    numbers: Mapping[str, int], other_numbers: Mapping[str, int]
) -> list[str]:
    """The names that have another number in the other dataset, in its order."""
    moved = []
    for name, other_number in other_numbers.items():
        if name in numbers and numbers[name] != other_number:
            moved.append(name)
    return moved


def _describe_others(moved: Sequence[str]) -> str:
    """How many classes have another number besides the first one."""
    num_others = len(moved) - 1
    if not num_others:
        return ""
    verb = "has" if num_others == 1 else "have"
    return f"; {format_count(num_others, 'other class')} {verb} another number, too"


def _numbers_by_name(names: Sequence[str]) -> dict[str, int]:
    """Numbers of classes, without the gaps, whose name is ""."""
    return {name: number for number, name in enumerate(names) if name}


def _are_digits(names: Sequence[str]) -> bool:
    """Whether the names are the numbers themselves, as for labels without names."""
    numbers = [str(number) for number in range(len(names))]
    return list(names) == numbers
