"""A listing -> the assumptions on the values of its masks, where they may be no numbers of classes.

A listing cannot say it by itself: masks in other formats than PNG need Pillow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fastpipe.dataset.format.layout import MAX_SAMPLE_BYTES
from fastpipe.errors import ImageError
from fastpipe.packing.fields.mask import mask_of_png
from fastpipe.sources.files import open_binary
from fastpipe.sources.listing import Assumption, Listing, SourceField, add_assumptions
from fastpipe.sources.picture import mask_file

# So many masks are read: enough to see their kind, and quick.
_NUM_CHECKED = 16
# The note of a mask that is a file of numbers; see `_RowLister._describe_file`. Other masks are
# drawn, or have numbers of objects or of segments.
_KEYS_OF_FILE = {"file", "size_bytes"}
# Masks of VOC have this number around objects, and where nobody can tell the class.
_BORDER = 255
_WHITE_16_BIT = 65535
# Such masks have few classes with small numbers. Soft masks have grey levels up to 255 at edges.
_MAX_BORDERED_CLASS = 127
_MAX_BORDERED_VALUES = 64


def assume_mask_values(listing: Listing) -> Listing:
    """The listing with the assumptions on the values of its masks, if there are any."""
    assumptions: list[Assumption] = []
    for field in listing.fields:
        has_classes = not (
            field.colours or field.has_object_numbers or field.has_two_levels
        )
        if field.kind == "mask" and has_classes:
            values = _read_values(listing, field)
            assumptions += _assume_values(field, values)
    return add_assumptions(listing, assumptions) if assumptions else listing


def _read_values(listing: Listing, field: SourceField) -> set[int]:
    """The values of a few masks that are files."""
    values: set[int] = set()
    step = max(1, math.ceil(len(listing.sources) / _NUM_CHECKED))
    for source in listing.sources[::step]:
        values_of_row = listing.values_of_row(source) or {}
        value = values_of_row.get(field.name)
        if not isinstance(value, dict) or value.keys() != _KEYS_OF_FILE:
            continue
        if value["size_bytes"] > MAX_SAMPLE_BYTES:
            continue
        try:
            with open_binary(listing.root / value["file"]) as file:
                data = file.read()
            pixels = mask_of_png(mask_file.as_png(data))
        except (OSError, ImageError):
            continue  # the pack reports it with the reason
        values.update(np.unique(pixels).tolist())
    return values


def _assume_values(field: SourceField, values: set[int]) -> Iterator[Assumption]:
    """The assumptions on a field of masks. `values`: all that some of its masks have."""
    max_class = max(values - {_BORDER}, default=0)
    are_classes = (
        max_class <= _MAX_BORDERED_CLASS and len(values) <= _MAX_BORDERED_VALUES
    )
    if _BORDER in values and max_class > 0 and not are_classes:
        yield Assumption(
            f"field {field.name}: the masks hold {len(values)} values up to 255, which look like "
            "grey levels (probabilities), not like numbers of classes. If they are, write numbers "
            "before packing, such as 1 where a value is over 127; if 255 is a border, give losses "
            "ignore_index=255"
        )
    elif _BORDER in values and max_class > 0:
        yield Assumption(
            f"field {field.name}: the masks hold 255, as VOC's have it for borders, beside numbers "
            f"up to {max_class}; give losses ignore_index=255"
        )
    # White is the largest number of 8 or of 16 bits.
    white = max(values, default=0)
    if white in (_BORDER, _WHITE_16_BIT) and values <= {0, white}:
        text = (
            f"field {field.name}: the masks hold the values 0 and {white}, which stay; losses that "
            "take numbers of classes expect 0 and 1. In the training loop, write masks = "
            f"(batch[{field.name!r}] > {white // 2}).long()"
        )
        if white == _BORDER:
            text += ". Where ignore_index=255, as it often is, a loss leaves out all objects"
        yield Assumption(text)
