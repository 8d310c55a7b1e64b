"""The classes of two datasets -> those that both have, with different numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# If fewer of the classes are in the other dataset, that is about something else.
_MIN_COMMON_SHARE = 0.5


class Renumbered(NamedTuple):
    """A class with another number in another dataset."""

    name: str
    number: int
    other_number: int

    def __str__(self) -> str:
        return f"{self.name!r} was {self.number} and is {self.other_number}"


def find_renumbered(
    classes: Sequence[str], other_classes: Sequence[str]
) -> list[Renumbered]:
    """The classes with another number in `other_classes`; none if most are not in it at all."""
    other_numbers = {name: number for number, name in enumerate(other_classes)}
    num_common = 0
    renumbered = []
    for number, name in enumerate(classes):
        # Classes that are called by numbers may be numbers without names.
        if not name or name.isdigit() or name not in other_numbers:
            continue
        num_common += 1
        if other_numbers[name] != number:
            renumbered.append(Renumbered(name, number, other_numbers[name]))
    if num_common < _MIN_COMMON_SHARE * len(classes):
        return []
    return renumbered
