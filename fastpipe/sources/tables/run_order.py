"""Run lengths of masks, and the sizes of their images -> the order of the pixels.

See Note [order of runs].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.errors import ImageError, PackError
from fastpipe.native import _engine
from fastpipe.sources.annotations.run_lengths import COLUMNS, ROWS, parse_runs
from fastpipe.sources.jpeg_segments import read_header
from fastpipe.sources.listing import (
    Assumption,
    Listing,
    Source,
    SourceField,
    add_assumptions,
)
from fastpipe.sources.source_bytes import LARGE_BYTES, read_source

# So many images are looked at, and so many of these whose masks tell the order.
_MAX_IMAGES = 64
_MAX_TELLING = 8
# Neighbouring lines of an object cover one another: most of its pixels have one in the next line. In
# the wrong order they have it by chance. A few pixels say nothing.
_MIN_PIXELS = 16
_MIN_SHARE = 0.5
_MIN_RATIO = 1.25

_JPEG_START = b"\xff\xd8\xff"
_PNG_START = b"\x89PNG"
_PNG_EXIF = b"eXIf"  # the chunk that may say that a PNG is shown turned


def settle_run_order(
    listing: Listing, field: SourceField, run_order: str | None
) -> Listing:
    """The listing whose masks of run lengths have an order: the user's, or else the likely one.

    Args:
        listing: the images.
        field: with the masks.
        run_order: of the user, one of RUN_ORDERS; None: the sizes of the images show it.
    """
    assumed = []
    if run_order is None:
        likely = _find_order(listing, field)
        run_order = likely or COLUMNS
        is_certain = likely is not None
        assumed.append(
            _describe_run_order(field.column, run_order, is_certain=is_certain)
        )
    fields = []
    for other in listing.fields:
        if other.name == field.name:
            other = other._replace(run_order=run_order)
        fields.append(other)
    return add_assumptions(replace(listing, fields=tuple(fields)), assumed)


def _describe_run_order(column: str, run_order: str, *, is_certain: bool) -> Assumption:
    """The assumption on the order of pixels in run lengths. Note [order of runs]"""
    direction = {"columns": "down the columns", "rows": "along the rows"}[run_order]
    reason = "as the sizes of the images show"
    if not is_certain:
        reason = "as in most contests; the sizes of the images do not show it"
    text = (
        f"masks: made of the run lengths in column {column!r}, which number the pixels {direction}, "
        f"{reason}"
    )
    return Assumption(text, "--run-order columns or rows")


def _find_order(listing: Listing, field: SourceField) -> str | None:
    """The order in which neighbouring lines of the masks cover one another; None: both may be."""
    pixel_count = 0
    # The pixels that have one in the next line, if lines are columns, or if they are rows.
    column_count = 0
    row_count = 0
    telling_count = 0
    for source in listing.samples(_MAX_IMAGES):
        texts = list(_run_lengths_of(listing, source, field))
        size = _upright_size(listing, source) if texts else None
        # In a square image, both orders look alike.
        if size is None or size[0] == size[1]:
            continue
        width, height = size
        # (pixels,) whether a pixel, by its number, is in a mask.
        is_inside = np.zeros(width * height, dtype=bool)
        for text in texts:
            for start, end in parse_runs(text).tolist():
                is_inside[start:end] = True
        pixel_count += int(np.count_nonzero(is_inside))
        column_count += int(np.count_nonzero(is_inside[:-height] & is_inside[height:]))
        row_count += int(np.count_nonzero(is_inside[:-width] & is_inside[width:]))
        telling_count += 1
        if telling_count == _MAX_TELLING:
            break
    if max(column_count, row_count) < max(_MIN_PIXELS, _MIN_SHARE * pixel_count):
        return None
    if column_count > _MIN_RATIO * row_count:
        return COLUMNS
    if row_count > _MIN_RATIO * column_count:
        return ROWS
    return None


def _run_lengths_of(
    listing: Listing, source: Source, field: SourceField
) -> Iterator[str]:
    """The texts with the run lengths of an image."""
    if source.problem is not None:
        return
    values = listing.values_of_row(source)
    if values is None:
        return
    for _, shape in values[field.name]["shapes"]:
        yield shape["runs"]


def _upright_size(listing: Listing, source: Source) -> tuple[int, int] | None:
    """Width and height of a JPEG or PNG; None if it is turned by EXIF, damaged or very large."""
    if source.size_bytes > LARGE_BYTES:
        return None
    try:
        data = read_source(listing.root, source)
        if data.startswith(_JPEG_START):
            header = read_header(data)
            return header.size if header.orientation == 1 else None
        if data.startswith(_PNG_START) and _PNG_EXIF not in data:
            return _engine.picture_size(data, MAX_PIXELS)
    except (_engine.StatusError, ImageError, OSError, PackError):
        pass  # the pack reports it with the reason
    return None
