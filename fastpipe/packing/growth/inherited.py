"""The options that a dataset was packed with -> those of `fastpipe add` which the user does not pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fastpipe.format.packed_index import PackedIndex
from fastpipe.packing.fields.placement import MOVING
from fastpipe.packing.shard.options import BY_RULE
from fastpipe.sources.files import SourcePath
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.recognition import options_of

# They decide labels and boxes. What else a user says of a source, such as its format, does not fit another source.
_DECIDING = ("label_column", "separator", "box_format", "coordinates", "first_label")


def with_inherited(
    source: SourcePath, given: SourceOptions, index: PackedIndex
) -> tuple[SourceOptions, list[Assumption]]:
    """The options for a source that is added, with those of the dataset's first pack where the user says nothing; and
    how both were read.
    """
    recorded: Mapping[str, Any] = index.info["packs"][0]["options"]["source"]
    deciding = {name: recorded[name] for name in _DECIDING if name in recorded}
    assumed = list(_boxes_as_stored(index))
    missing = {name: value for name, value in deciding.items() if getattr(given, name) is None}
    if missing:
        allowed = options_of(source, given)
        missing = {name: value for name, value in missing.items() if name in allowed}
    for name, value in deciding.items():
        if name in missing:
            assumed.append(
                Assumption(
                    f"{_option(name)} {value}: as the dataset was packed", f"{_option(name)} VALUE"
                )
            )
        elif getattr(given, name) not in (None, value):
            assumed.append(
                Assumption(
                    f"{_option(name)} {getattr(given, name)}: as given; the dataset was packed with {value}"
                )
            )
    return replace(given, **missing), assumed


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _boxes_as_stored(index: PackedIndex) -> Iterator[Assumption]:
    """Tells of datasets that were packed before fields were of images as shown. See Note [frames]"""
    packed_with = index.info["packs"][0]["options"]
    is_by_rule = BY_RULE in packed_with or BY_RULE in packed_with["source"]
    num_turned = index.info["counts"]["exif_oriented"]
    moving = [field.name for field in index.fields.values() if field.kind in MOVING]
    if moving and num_turned and not is_by_rule:
        yield Assumption(
            f"{', '.join(moving)}: an older version packed {num_turned:,} images that EXIF turns, and took their "
            "fields as those of the image as stored; if they are of the image as shown, pack the dataset anew"
        )
