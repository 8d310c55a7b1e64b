"""The classes of a state's datasets and of the open ones -> which have other numbers, in words."""

from __future__ import annotations

from collections.abc import Sequence

from fastpipe.dataset.format.index import Index
from fastpipe.dataset.renumbered import find_renumbered

_MAX_SHOWN = 3


def describe_other_numbers(
    saved_classes: Sequence[Sequence[str]], indexes: Sequence[Index]
) -> str:
    """Says that classes have other numbers than in a state, and what to do; "" if they have not.

    Args:
        saved_classes: of each stored dataset of the state, its first classes.
        indexes: of the stored datasets that are open, as many.
    """
    for classes, index in zip(saved_classes, indexes, strict=True):
        renumbered = find_renumbered(classes, index.classes)
        if not renumbered:
            continue
        moved = []
        for name, old_number, number in renumbered[:_MAX_SHOWN]:
            moved.append(f"{name!r} was {old_number} and is {number}")
        if len(renumbered) > _MAX_SHOWN:
            moved.append("...")
        return (
            f"Classes have other numbers now: {', '.join(moved)}. So a model that was trained with the "
            "state takes one class for another: first give them their old numbers, with classes_from= "
            "of fastpipe.pack or fastpipe.open, which takes a file with a class on each line, the old "
            "ones first, in their order; or add the new images to the old dataset: fastpipe.add. "
        )
    return ""
