"""Masks of a table that are pictures with colours -> the class of each colour, by a list beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from fastpipe.dataset.format.folder import scheme_of
from fastpipe.sources.annotations.colour_list import find_colours
from fastpipe.sources.annotations.masks import (
    assume_names,
    has_colours,
    refuse_colours,
)
from fastpipe.sources.files import SourcePath
from fastpipe.sources.listing import Listing, SourceField, add_assumptions

_NUM_CHECKED = 16


def settle_colours(listing: Listing, table_folder: SourcePath) -> Listing:
    """The listing of a table, with the colours of masks from a list such as class_dict.csv.

    The list lies with the masks, in a folder around them, or beside the table.

    Raises:
        PackError: masks have colours, and no list says which class each colour is.
    """
    fields = list(listing.fields)
    for index, field in enumerate(fields):
        if field.kind != "mask":
            continue
        masks = _some_masks(listing, field)
        if not masks or not all(has_colours(listing.root / mask) for mask in masks):
            continue
        colours = find_colours(_folders_of_lists(listing.root, masks, table_folder))
        if colours is None:
            raise refuse_colours(listing.root / masks[0], field)
        fields[index] = field._replace(names=colours.names, colours=colours.colours)
        listing = add_assumptions(
            listing, assume_names(field, colours.names, colours.file.name)
        )
    return replace(listing, fields=tuple(fields))


def _some_masks(listing: Listing, field: SourceField) -> list[str]:
    """The paths of a few masks of a field, from all over the listing."""
    noted = [source for source in listing.sources if source.note is not None]
    step = max(1, len(noted) // _NUM_CHECKED)
    masks = []
    for source in noted[::step][:_NUM_CHECKED]:
        values = listing.values_of_row(source) or {}
        value = values.get(field.name)
        if isinstance(value, dict) and "file" in value:
            masks.append(value["file"])
    return masks


def _folders_of_lists(
    root: SourcePath, masks: Sequence[str], table_folder: SourcePath
) -> Iterator[SourcePath]:
    """The folders that may have the list of colours."""
    for mask in masks:
        if scheme_of(mask) or PurePosixPath(mask).is_absolute():
            continue
        for folder in PurePosixPath(mask).parents:
            yield root / str(folder) if folder.name else root
    yield table_folder
