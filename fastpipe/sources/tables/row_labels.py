"""Labels of rows, as numbers or names -> numbers, and the names of the classes."""

from __future__ import annotations

from collections.abc import Sequence

from fastpipe.dataset.format.layout import MAX_CLASSES, NO_LABEL
from fastpipe.errors import PackError
from fastpipe.sources.listing import Assumption, Source, relabel_sources
from fastpipe.sources.tables.likely import find_number_out_of_place
from fastpipe.sources.tables.row_paths import is_name

# Texts, in small letters, that programs write where a label is missing.
_MISSING = frozenset(("nan", "none", "null", "n/a", "na", "<na>", "nil", "?"))


class Labels:
    """Numbers labels while rows are read; `settle` sorts the classes at the end.

    Args:
        classes: names of all classes, in the order of their numbers; None if the labels say them.
        first_label: the number of the first class, where labels are numbers without names.
        has_first_label: whether the user can pass --first-label for the source.
    """

    def __init__(
        self,
        classes: Sequence[str] | None,
        first_label: int = 0,
        *,
        has_first_label: bool = False,
    ) -> None:
        self._has_first_label = has_first_label
        self._first_label = first_label
        self._known = classes
        self._numbers = {name: number for number, name in enumerate(classes or ())}
        self._are_numbers: bool | None = None  # None before the first label
        # The range of the labels that are numbers.
        self._largest = NO_LABEL
        self._smallest = MAX_CLASSES

    def take(self, label: object, where: str) -> int:
        """The number of a row's label; without given classes it holds only until `settle`.

        Raises:
            ValueError: the label is neither a class number nor a class name.
            PackError: labels are numbers in some rows and names in others.
        """
        if isinstance(label, float) and label.is_integer():
            label = int(label)  # pandas writes 2.0 if a label of the column is missing
        if label in (None, NO_LABEL):
            return NO_LABEL
        if isinstance(label, bool) or not isinstance(label, (int, str)):
            raise ValueError(
                f"label: expected a whole number or the name of a class, got {label!r:.60}"
            )

        is_number = isinstance(label, int)
        if self._known is None and self._are_numbers not in (None, is_number):
            contrast = "a name, those before it are numbers"
            if is_number:
                contrast = "a number, those before it are names"
            raise PackError(
                f"labels are numbers and names: {label!r} in {where} is {contrast}. "
                "Expected only one of both; in JSONL, write all labels as numbers or all as texts"
            )
        self._are_numbers = is_number
        if isinstance(label, int):
            return self._check_number(label)
        return self._number_of(label)

    def _check_number(self, label: int) -> int:
        first = 0
        count = MAX_CLASSES
        if self._known is not None:
            count = len(self._known)
        else:
            first = self._first_label
        if not first <= label < first + count:
            ids = ""
            if self._known is None and label >= MAX_CLASSES:
                ids = "; write ids of classes as texts, which are names"
            raise ValueError(
                f"label: expected -1 (none) or {first} to {first + count - 1:,}, got {label}{ids}"
            )
        label -= first
        self._largest = max(self._largest, label)
        self._smallest = min(self._smallest, label)
        return label

    def _number_of(self, name: str) -> int:
        if self._known is None:
            if name and not is_name(name):
                raise ValueError(
                    f"label: expected the name of a class, got {name[:60]!r}"
                )
            return self._numbers.setdefault(name, len(self._numbers))
        if name not in self._numbers:
            raise ValueError(
                f"label: expected the name of one of the {len(self._known)} classes, got "
                f"{name[:60]!r}"
            )
        return self._numbers[name]

    def settle(self, sources: list[Source]) -> list[str]:
        """Names of the classes. Without given classes they are sorted, and `sources` renumbered."""
        if self._known is not None:
            return list(self._known)
        if not self._numbers:
            return [str(label) for label in range(self._largest + 1)]

        names = sorted(self._numbers)
        sorted_numbers = {name: number for number, name in enumerate(names)}
        # `_numbers` has the names in the order in which they were read, which is the order of the
        # numbers that the sources have.
        new_numbers = [sorted_numbers[name] for name in self._numbers]
        relabel_sources(sources, new_numbers)
        return names

    def assumed(self, classes: Sequence[str]) -> tuple[Assumption, ...]:
        """The assumption on numbers from 1 on, or on numbers that are texts; or none."""
        if self._known is not None:
            return ()
        if self._are_numbers and self._smallest == 1 < self._largest:
            text = (
                f"labels: 1 to {self._largest} stay as they are, so class 0 of {len(classes)} has "
                "no sample"
            )
            if self._has_first_label:
                return (Assumption(text, "--first-label 1"),)
            return (Assumption(text),)
        missing = [name for name in classes if name.lower() in _MISSING]
        if missing:
            text = (
                f"labels: {missing[0]!r} is a class; if it stands for a missing label, leave these "
                "cells empty"
            )
            return (Assumption(text),)
        misplaced = find_number_out_of_place(classes)
        if misplaced is None:
            return ()
        label = list(classes).index(misplaced)
        text = (
            "classes: these numbers are texts, and sorted as texts: "
            f"{misplaced!r} is label {label}"
        )
        return (Assumption(text),)
