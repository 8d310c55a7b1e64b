"""The classes of each split -> one list of classes for all splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from fastpipe.errors import readable
from fastpipe.sources.folders.splits import first_paths, meaning_of_split
from fastpipe.sources.listing import Assumption


def join_classes(splits: Sequence[Sequence[str]]) -> list[str]:
    """The classes of all splits, from those of each, sorted by name.

    If all splits have the same order, and some of them only lack the last classes, it is kept. So
    "10" stays behind "9" where the names of classes are their numbers.
    """
    lists = [list(classes) for classes in splits]
    longest = max(lists, key=len)
    if all(classes == longest[: len(classes)] for classes in lists):
        return longest
    return sorted(set(chain.from_iterable(lists)))


def are_own_numbers(classes: list[str]) -> bool:
    """Whether the name of each class is its number: "0", "1", "2". Also True for no classes."""
    return classes == [str(number) for number in range(len(classes))]


def assume_other_order(splits: Mapping[str, Sequence[str]]) -> list[Assumption]:
    """Says if splits list the same classes in different orders, so that each has numbers of its own."""
    orders = {split: list(classes) for split, classes in splits.items() if classes}
    if len(orders) < 2:
        return []
    first, *others = orders.values()
    for classes in others:
        if classes != first and sorted(classes) == sorted(first):
            text = (
                f"classes: {first_paths(orders)} list the same ones in different orders; they have the "
                f"numbers of the sorted names in all of them, {readable(sorted(first)[0])} is 0"
            )
            return [Assumption(text, "--classes-from FILE")]
    return []


def classes_outside_training(
    splits: Mapping[str, Sequence[str]],
) -> Iterator[Assumption]:
    """Warns of classes that another split has and the training split lacks.

    They shift the numbers of the classes behind them, in the training split as well.
    """
    training: set[str] = set()
    others = {}
    for split, classes in splits.items():
        if meaning_of_split(split) == "train":
            training.update(classes)
        else:
            others[split] = classes
    if not training:
        return

    for split, classes in others.items():
        new_classes = sorted(set(classes) - training)
        if new_classes:
            yield Assumption(
                f"classes: those of all splits; {readable(split)} has "
                f"{first_paths(new_classes)}, which the training split lacks",
                "--classes-from FILE",
            )
