"""Options that a dataset was packed with -> those of `fastpipe add` that the user leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastpipe.dataset.format.fields import SPATIAL_KINDS
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import option_name
from fastpipe.packing.shard.options import BY_RULE
from fastpipe.sources.files import SourcePath
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.recognition import options_of

# They decide labels and boxes. The other options of a source, such as its format, do not fit
# another source.
_INHERITED = (
    "label_column",
    "label_pattern",
    "separator",
    "box_format",
    "run_order",
    "coordinates",
    "first_label",
    "first_pixel",
    "bad_boxes",
)


def with_inherited(
    source: SourcePath, given: SourceOptions, index: PackedIndex
) -> tuple[SourceOptions, list[Assumption]]:
    """The options for a source that is added, and what is assumed.

    An option that the user does not pass is that of the dataset's first pack.
    """
    first_pack = index.info["packs"][0]
    recorded: Mapping[str, Any] = first_pack["options"]["source"]
    inherited = {}
    for name in _INHERITED:
        if name in recorded:
            inherited[name] = recorded[name]
    # Without the list of splits, a source would be added with the images of all splits.
    if "split_list" in recorded and given.split is None and given.split_list is None:
        inherited |= _list_of_splits(recorded)
    # `getattr` gives None for an option that the user leaves out.
    is_any_missing = any(getattr(given, name) is None for name in inherited)
    # To recognise the source takes time, so it is done only if there is something to inherit.
    allowed = options_of(source, given) if is_any_missing else ()

    options = {}
    assumed = _boxes_as_stored(index)
    for name, value in inherited.items():
        option = option_name(name)
        given_value = getattr(given, name)
        # --split is that of the list, which any source may have.
        is_split_of_list = name == "split" and "split_list" in allowed
        is_allowed = name in allowed or is_split_of_list
        if given_value is None and is_allowed:
            options[name] = value
            text = f"{option} {value}: as the dataset was packed"
            assumed.append(Assumption(text, f"{option} VALUE"))
        elif given_value is not None and given_value != value:
            text = (
                f"{option} {given_value}: as given; the dataset was packed with {value}"
            )
            assumed.append(Assumption(text))
    return replace(given, **options), assumed


def _list_of_splits(recorded: Mapping[str, Any]) -> dict[str, Any]:
    names = ("split_list", "split")
    return {name: recorded[name] for name in names if name in recorded}


def _boxes_as_stored(index: PackedIndex) -> list[Assumption]:
    """An assumption about datasets that old versions packed with fields of images as stored.

    Note [frames]
    """
    packed_with = index.info["packs"][0]["options"]
    is_by_rule = BY_RULE in packed_with or BY_RULE in packed_with["source"]
    num_turned = index.info["counts"]["exif_oriented"]
    moving = [
        field.name for field in index.fields.values() if field.kind in SPATIAL_KINDS
    ]
    if is_by_rule or not moving or not num_turned:
        return []
    return [
        Assumption(
            f"{', '.join(moving)}: an older version packed {num_turned:,} images that EXIF turns, "
            "and took their fields as those of the image as stored; if they are of the image as "
            "shown, pack the dataset anew"
        )
    ]
