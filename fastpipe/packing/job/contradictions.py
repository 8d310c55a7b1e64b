"""A packed dataset -> what to know if it has a picture several times, with different labels."""

from __future__ import annotations

import numpy as np

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import format_count

# Sorting takes some seconds for so many samples. fastpipe.duplicates compares more.
_MAX_SAMPLES = 10_000_000


def describe_contradictions(index: PackedIndex) -> str:
    """Says that samples with the same picture have different labels; "" if none have.

    A class folder that is a link to another one, or a photo that was copied into a second class,
    teaches a network both.
    """
    if len(index) > _MAX_SAMPLES:
        return ""
    records = index.records
    labels = np.array(records["label"])
    is_labelled = (labels >= 0) & (np.array(records["width"]) > 0)
    rows = np.flatnonzero(is_labelled)
    hashes = np.array(records["xxh3_64"])[rows]
    labels = labels[rows]
    order = np.lexsort((labels, hashes))
    sorted_hashes = hashes[order]
    sorted_labels = labels[order]
    # (n - 1,) whether a sample has the picture of the one before it, and another label.
    has_same_picture = sorted_hashes[1:] == sorted_hashes[:-1]
    has_other_label = sorted_labels[1:] != sorted_labels[:-1]
    positions = np.flatnonzero(has_same_picture & has_other_label)
    if not len(positions):
        return ""
    num_pictures = len(np.unique(sorted_hashes[positions]))
    first, second = rows[order[[positions[0], positions[0] + 1]]].tolist()
    verb = "is" if num_pictures == 1 else "are"
    return (
        f"{format_count(num_pictures, 'image')} {verb} in the source several times with different "
        f"labels, such as {index.source_path_of(first)} and {index.source_path_of(second)}; all of "
        f"these samples are kept. fastpipe.duplicates({str(index.path)!r}) lists them"
    )
