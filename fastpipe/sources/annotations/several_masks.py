"""Several masks of one image: a_mask.png, a_mask_1.png, a_mask_2.png of BUSI.

Note [several masks]
Masks that are called alike, with a number behind, are of one kind, and each shows another object.
They become one mask: a pixel has the value of the last mask that is not 0 there. --field
mask=instances:mask gives it the number of the file in place of its value.
Where all masks have numbers alone, as a_0.png and a_1.png, these may be objects or classes, so the
user has to choose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastpipe.errors import readable
from fastpipe.sources.listing import Assumption, SourceField

INSTANCES = "instances"
_NUMBERED = re.compile(r"(.+?)[-_. ]?(\d+)")
# The kind of masks that are called like their images.
_MASK = "mask"

# Kind of mask -> image -> mask, as of `masks`.
_Pairs = Mapping[str, Mapping[str, str]]


def group_numbered_kinds(pairs: _Pairs) -> dict[str, list[str]]:
    """Kind -> the kinds that are called like it, with a number behind, in order.

    None of their masks is of an image without a mask of that kind.
    """
    by_kind: dict[str, list[tuple[int, str]]] = {}
    for numbered in pairs:
        kind = _MASK
        number = numbered
        match = _NUMBERED.fullmatch(numbered)
        if not numbered.isdecimal():
            if match is None:
                continue
            kind, number = match.groups()
        if kind not in pairs:
            continue
        if pairs[numbered].keys() <= pairs[kind].keys():
            by_kind.setdefault(kind, []).append((int(number), numbered))
    groups: dict[str, list[str]] = {}
    for kind, entries in by_kind.items():
        groups[kind] = [numbered for _, numbered in sorted(entries)]
    return groups


def are_numbers_alone(pairs: _Pairs) -> bool:
    """Whether all masks have a number behind the name of their image, and nothing else."""
    return len(pairs) > 1 and all(map(str.isdecimal, pairs))


def join_numbers(pairs: _Pairs) -> dict[str, dict[str, str]]:
    """Masks with numbers alone as masks of one kind, of which the first of an image has no number."""
    joined: dict[str, dict[str, str]] = {_MASK: {}}
    for number in sorted(pairs, key=int):
        for image, mask in pairs[number].items():
            is_first = image not in joined[_MASK]
            kind = _MASK if is_first else f"{_MASK}_{number}"
            joined.setdefault(kind, {})[image] = mask
    return joined


def without_numbered_kinds(pairs: _Pairs) -> dict[str, Mapping[str, str]]:
    """The kinds of masks but those that are called like another one, with a number behind."""
    numbered: set[str] = set()
    for kinds in group_numbered_kinds(pairs).values():
        numbered.update(kinds)
    return {kind: pairs[kind] for kind in pairs if kind not in numbered}


def find_further_masks(
    pairs: _Pairs, fields: Sequence[SourceField]
) -> dict[str, dict[str, list[str]]]:
    """Name of a field -> image -> its masks, of the images that have several of its kind.

    A kind that is a field of its own is none of another field.
    """
    columns = {field.column for field in fields}
    groups = group_numbered_kinds(pairs)
    masks_of_fields: dict[str, dict[str, list[str]]] = {}
    for field in fields:
        masks_of_image: dict[str, list[str]] = {}
        for kind in groups.get(field.column, []):
            if kind in columns:
                continue
            for image, mask in pairs[kind].items():
                first = pairs[field.column][image]
                masks_of_image.setdefault(image, [first]).append(mask)
        masks_of_fields[field.name] = masks_of_image
    return masks_of_fields


def value_of_masks(masks: Sequence[str], field: SourceField) -> dict[str, Any]:
    """The value of a field of several masks, given their paths."""
    value: dict[str, Any] = {"objects": list(masks)}
    if not field.has_object_numbers:
        value["united"] = True
    return value


def assume_united(
    field: SourceField, masks_of_image: Mapping[str, Sequence[str]]
) -> list[Assumption]:
    """Says that several masks of an image became one; nothing if no image has several."""
    if field.has_object_numbers or not masks_of_image:
        return []
    images = "1 image has"
    if len(masks_of_image) > 1:
        images = f"{len(masks_of_image):,} images have"
    first, second = next(iter(masks_of_image.values()))[:2]
    text = (
        f"field {field.name}: {images} several masks, such as {readable(first)} and "
        f"{readable(second)}, which become one; the option numbers them"
    )
    return [Assumption(text, f"--field {field.name}={INSTANCES}:mask")]
