"""The classes of loaders for training and for evaluation in one process -> words where their numbers differ.

Note [classes of two loaders]
A label is a number. If the data of a training and of an evaluation number their classes differently, the accuracy is
wrong, and nothing fails. So a loader with train=False is compared, by name, with the loaders with train=True that are
there, and the other way round. `fastpipe.loader` logs a warning and raises no error, because a program may well load
two datasets that have nothing to do with each other; datasets without a common name are not compared for this reason.
The loaders of `fastpipe.timm` belong to one model, so there it is an error.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fastpipe.samples.dataset import Dataset

if TYPE_CHECKING:
    from fastpipe.loading.loader import Loader

_LOG = logging.getLogger("fastpipe")
_FIELDS = ("boxes", "classes", "mask")  # kinds whose values are numbers of classes
_told: set[str] = set()


class _Made(NamedTuple):
    """A loader of this process."""

    loader: weakref.ref[Loader]
    train: bool


_loaders: list[_Made] = []


def warn_of_other_classes(made: Loader, *, train: bool) -> None:
    """Compares a new loader with those of the other kind, and logs what differs, once."""
    for words in other_classes(made.dataset, train=train):
        if words not in _told:
            _told.add(words)
            _LOG.warning("%s", words)
    _loaders.append(_Made(weakref.ref(made), train))


def other_classes(data: Dataset, *, train: bool) -> Iterator[str]:
    """How the classes of a dataset differ from those of the loaders of the other kind that are in use.

    See Note [classes of two loaders]
    """
    _loaders[:] = [made for made in _loaders if made.loader() is not None]
    for made in _loaders:
        loader = made.loader()
        if loader is None or made.train == train:
            continue
        training, evaluation = (data, loader.dataset) if train else (loader.dataset, data)
        for field, ours, theirs in _names_of_both(training, evaluation):
            problem = _difference(ours, theirs)
            if problem is not None:
                yield _words(training, evaluation, field, problem)


def _words(training: Dataset, evaluation: Dataset, field: str, problem: str) -> str:
    what = f"of the field {field!r} " if field else ""
    text = (
        f"the classes {what}of the data for evaluation, {evaluation.path}, have other numbers than those of the data "
        f"for training, {training.path}: {problem}. "
    )
    packed = f"pack it with --classes-from {training.path}"
    if field:
        return f"{text}Give it the same ones: {packed}"
    return f"{text}Give it the same ones: fastpipe.open(..., classes_from={str(training.path)!r}), or {packed}"


def _names_of_both(training: Dataset, evaluation: Dataset) -> Iterator[tuple[str, Sequence[str], Sequence[str]]]:
    """The names of classes that two datasets have: of labels, called "", and of fields."""
    yield "", training.classes, evaluation.classes
    theirs = evaluation.index.fields
    for name, field in training.index.fields.items():
        if name in theirs and field.kind == theirs[name].kind and field.kind in _FIELDS:
            yield name, field.names, theirs[name].names


def _difference(training: Sequence[str], evaluation: Sequence[str]) -> str | None:
    """The first name with another number, or that training does not have; None: there is none, or no common name."""
    if list(training) == list(evaluation) or (_are_digits(training) and _are_digits(evaluation)):
        return None
    numbers = {name: number for number, name in enumerate(training) if name}  # "" in a gap
    places = {name: number for number, name in enumerate(evaluation) if name}
    if not numbers.keys() & places.keys():
        return None
    moved = [name for name, number in places.items() if numbers.get(name, number) != number]
    if moved:
        more = f", and so are {len(moved) - 1:,} more" if len(moved) > 1 else ""
        return f"{moved[0]!r} is {places[moved[0]]} in evaluation and {numbers[moved[0]]} in training{more}"
    unknown = [name for name in places if name not in numbers]
    if unknown:
        return f"{unknown[0]!r} is {places[unknown[0]]} in evaluation, and training has no such class"
    return None


def _are_digits(names: Sequence[str]) -> bool:
    """Whether names are nothing but the numbers, as of labels without names."""
    return list(names) == [str(number) for number in range(len(names))]
