"""Names of classes, one for each sample -> numbers and all names; the log says what is doubtful."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from fastpipe.arrays import Int64s
from fastpipe.dataset.several_labels import WAYS_OF_SEVERAL_LABELS
from fastpipe.errors import ConfigError
from fastpipe.warnings_once import warn_once

# Longer lists of classes come from programs, so looking at their names would only take time.
_MAX_COMPARED = 100_000


def number_names(
    sample_names: Sequence[str], classes: Sequence[str] | None
) -> tuple[Int64s, Sequence[str]]:
    """The label of each sample, and the names of all classes.

    Spaces around a name do not count, as in `fastpipe.pack`.

    Args:
        sample_names: of the class of each sample.
        classes: all of them; None: those that occur, sorted.

    Raises:
        ConfigError: a name is not among `classes`.
    """
    if classes is None:
        stripped_names = {name.strip() for name in sample_names}
        names = sorted(stripped_names)
        _warn_of_doubtful_classes(names)
    else:
        names = list(classes)
    label_by_name = {name: label for label, name in enumerate(names)}
    labels = []
    for name in sample_names:
        label = label_by_name.get(name)
        if label is None:
            label = label_by_name.get(name.strip())
        if label is None:
            raise ConfigError(
                f"with_labels: expected names of {names[:5]!r}, got {name!r}"
            )
        labels.append(label)
    return np.array(labels, dtype=np.int64), names


def _warn_of_doubtful_classes(names: Sequence[str]) -> None:
    if len(names) > _MAX_COMPARED:
        return
    for message in (
        _describe_numbers_as_texts(names),
        _describe_similar(names),
        _describe_joined(names),
    ):
        if message:
            warn_once(message, message)


def _describe_numbers_as_texts(names: Sequence[str]) -> str:
    """Says if names are whole numbers in the order of texts, where "10" comes before "2"."""
    if not all(name.isascii() and name.isdigit() for name in names):
        return ""
    # Most programs give no names.
    from fastpipe.sources.tables.likely import out_of_place

    moved = out_of_place(names)
    if not moved:
        return ""
    return (
        f"with_labels: these labels are whole numbers as texts, and sorted as texts: {moved[0]!r} is "
        f"label {names.index(moved[0])}. Pass numbers: [int(label) for label in labels]; or classes= in "
        "the order that you want"
    )


def _describe_similar(names: Sequence[str]) -> str:
    """Says if names, such as Cat and cat, may mean one class."""
    # Most programs give no names.
    from fastpipe.sources.folders.doubtful_classes import similar_classes

    texts = [assumption.text for assumption in similar_classes(names, "with_labels")]
    return texts[0] if texts else ""


def _describe_joined(names: Sequence[str]) -> str:
    """Says if a name, such as "cat|dog", is made of names that stand in others, too."""
    counts: Counter[str] = Counter()
    for name in names:
        parts = {part.strip() for part in name.split("|")}
        counts.update(parts)
    for name in names:
        if "|" not in name:
            continue
        if any(counts[part.strip()] > 1 for part in name.split("|")):
            return f"with_labels: {name!r} is one class. {WAYS_OF_SEVERAL_LABELS}"
    return ""
