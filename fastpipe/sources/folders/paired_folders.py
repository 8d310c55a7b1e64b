"""The pictures of class folders -> an assumption where each folder may have one picture of a pair.

Datasets of pairs have two or three folders whose files have the same names: high and low, rgb and
depth, A, B and label. Some exports number the pictures of each class from 0, so that this holds for
classes, too; they usually have more classes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.sources.folders.doubtful_classes import AS_CLASSES
from fastpipe.sources.folders.splits import first_paths
from fastpipe.sources.listing import Assumption, Source

_MAX_FOLDERS = 3
# Fewer pictures may have the same names by chance.
_MIN_PICTURES = 3


def assume_no_pairs(
    sources: Sequence[Source], classes: Sequence[str]
) -> list[Assumption]:
    """Says that folders are taken as classes, though their pictures have the same names in each.

    Args:
        sources: with labels by their folders.
        classes: the names of the folders, by label.
    """
    # Folders that are called by numbers are classes, and no pictures of pairs: 00000 of GTSRB.
    if all(name.isdigit() for name in classes):
        return []
    if not 2 <= len(classes) <= _MAX_FOLDERS:
        return []
    counts = Counter(source.label for source in sources)
    if NO_LABEL in counts or len(counts) != len(classes):
        return []
    count = counts[0]
    if count < _MIN_PICTURES or any(other != count for other in counts.values()):
        return []

    first_names = set(_names_of_class(sources, classes, 0))
    if len(first_names) != count:
        return []
    for label in range(1, len(classes)):
        # As many names, all of which are among those of the first class.
        if not all(
            name in first_names for name in _names_of_class(sources, classes, label)
        ):
            return []
    text = (
        f"classes: the folders {first_paths(classes)}, whose pictures have the same names in each. "
        "If pictures of one name belong together, list each image with the others in a CSV file, a "
        "column for each folder, with --field target=COLUMN:image or --field mask=COLUMN:mask"
    )
    return [Assumption(text, AS_CLASSES)]


def _names_of_class(
    sources: Sequence[Source], classes: Sequence[str], label: int
) -> Iterator[str]:
    """The paths of the pictures of a class without its folder and endings; "" for other files."""
    for source in sources:
        if source.label == label:
            path, _ = os.path.splitext(source.path)
            # By a pattern, a class may be any folder of the path: high of our485/high/2.png.
            folders = [name for name in path.split("/") if name != classes[label]]
            yield "/".join(folders) if is_picture(source.path) else ""
