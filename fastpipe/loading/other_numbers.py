"""The classes of a state and those of the open dataset -> which have other numbers, in words."""

from __future__ import annotations

from collections.abc import Sequence

from fastpipe.dataset.renumbered import find_renumbered
from fastpipe.errors import first_names

_MAX_SHOWN = 3


def describe_other_numbers(saved_classes: Sequence[str], classes: Sequence[str]) -> str:
    """Says that classes have other numbers than in a state, and what to do; "" if they have not.

    Args:
        saved_classes: the first classes of the dataset that the state was saved with.
        classes: of the open dataset. `fastpipe.open(classes_from=)` and `with_classes` number them.
    """
    renumbered = find_renumbered(saved_classes, classes)
    if not renumbered:
        return ""
    moved = first_names(list(map(str, renumbered)), _MAX_SHOWN)
    return (
        f"Classes have other numbers now: {moved}. So a model that was trained with the "
        "state takes one class for another: first give them their old numbers, with classes_from= "
        "of fastpipe.pack or fastpipe.open, which takes a file with a class on each line, the old "
        "ones first, in their order; or add the new images to the old dataset: fastpipe.add. "
    )
