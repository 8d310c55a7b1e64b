"""A folder of images beside a folder of masks -> rows with a mask each, where the names say which belong together.

Note [names of masks]
The mask of a.jpg is called a.png, or has something behind the name: a_mask.gif of Carvana, a_segmentation.png of ISIC.
Some tools call the two image_7 and mask_7, or a_leftImg8bit and a_gtFine_labelIds. What is behind the name has to be
the same for nearly all images; where there are several of these, as in Cityscapes, a user says which one is the mask.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from fastpipe.errors import PackError, readable
from fastpipe.native import _engine
from fastpipe.sources.annotation_files import colour_list
from fastpipe.sources.files import SourcePath, files_below, names_in, open_binary
from fastpipe.sources.listing import Assumption, Listing, SourceField
from fastpipe.sources.options import FieldColumn, SourceOptions, is_picture
from fastpipe.sources.rows import Row, list_rows
from fastpipe.sources.splits import FEW, some

_MASK = "mask"
_LEAST_SHARE = 0.95  # of the images that have a mask
_MOST_LOOKED_AT = 16  # masks whose pixels are read while listing
_COLOR_AT = 25  # byte of a PNG's header
_GRAY, _PALETTE = 0, 3  # colour types of PNG
_OF_IMAGES = re.compile(
    r"^(?:image|img|photo)[-_ ]?(?=\d)|[-_ ](?:leftImg8bit|image|img|im|sat|rgb)$", re.IGNORECASE
)
_OF_MASKS = re.compile(r"^(?:mask|label|seg|gt|annotation|trimap)[-_ ]?(?=\d)", re.IGNORECASE)
_SEPARATOR = re.compile(r"[-_. ]")


class Folders(NamedTuple):
    """Where images and their masks are; paths are relative to `root`."""

    root: SourcePath
    images: str
    masks: str


def list_masks(folders: Folders, how: SourceOptions) -> Listing:
    """Lists the images of a folder with their masks, in no order. PackError: names do not say which belong together."""
    images = sorted(_pictures(folders.root, folders.images))
    masks = sorted(_pictures(folders.root, folders.masks))
    kinds = paired(folders, images, masks)
    fields = tuple(_fields(folders, kinds, images, how.fields))
    assumed: list[Assumption] = []
    for field in fields:
        if field.kind == _MASK:
            assumed += _checked(folders, field, sorted(kinds[field.column].values()))
    taken = {mask for field in fields for mask in kinds[field.column].values()}
    rows = (_row(folders, image, fields, kinds) for image in images)
    beside = [mask for mask in masks if mask not in taken]
    return replace(list_rows(folders.root, rows, fields, beside=beside), assumed=tuple(assumed))


def _pictures(root: SourcePath, folder: str) -> Iterator[str]:
    return filter(is_picture, files_below(root, folder, hidden=False))


def paired(
    folders: Folders, images: Sequence[str], masks: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Kind of mask -> image -> mask. The kind is what is behind the image's name; see Note [names of masks]"""
    by_name: dict[tuple[str, str], str] = {}
    for image in images:
        folder, stem = _below(image, folders.images)
        by_name[folder, _OF_IMAGES.sub("", stem)] = image
    found: dict[str, dict[str, str]] = {}
    for mask in masks:
        folder, stem = _below(mask, folders.masks)
        stem = _OF_MASKS.sub("", stem)
        ends = [len(stem), *(each.start() for each in reversed([*_SEPARATOR.finditer(stem)]))]
        for end in ends:  # the longest name that an image has
            if (folder, stem[:end]) in by_name:
                kind = stem[end:].lstrip("-_. ") or _MASK
                found.setdefault(kind, {})[by_name[folder, stem[:end]]] = mask
                break
    return found


def _below(path: str, folder: str) -> tuple[str, str]:
    """The folders of a path below a folder, and its name without the ending."""
    below = PurePosixPath(path).relative_to(folder)
    return str(below.parent), below.stem


def _fields(
    folders: Folders,
    kinds: Mapping[str, Mapping[str, str]],
    images: Sequence[str],
    asked: Sequence[FieldColumn] | None,
) -> Iterator[SourceField]:
    """The masks that are packed: those that a user asks for, or the only kind that nearly all images have."""
    where = f"{readable(str(folders.root / folders.images))} and {readable(str(folders.root / folders.masks))}"
    for each in asked or ():
        if each.column not in kinds:
            raise PackError(
                f"{each}: {where} have the kinds of masks {some(sorted(kinds)) or '(none)'}"
            )
        if each.kind not in (None, _MASK, "image"):
            raise PackError(f"{each}: expected the kind mask or image")
        yield SourceField(each.name, each.kind or _MASK, column=each.column)
    if asked is not None:
        return
    whole = [kind for kind, found in kinds.items() if len(found) >= _LEAST_SHARE * len(images)]
    if len(whole) != 1:
        counts = (
            ", ".join(
                f"{readable(kind)} ({len(found):,})" for kind, found in sorted(kinds.items())[:5]
            )
            or "none"
        )
        what = (
            "one kind of mask by its name"
            if whole
            else "a mask of the same name for nearly each image"
        )
        raise PackError(
            f"{where}: expected {what}; there are {len(images):,} images, and masks called after them: {counts}. "
            "--field mask=KIND packs one of these kinds, --format imagefolder takes the two folders as classes. Other "
            "pairs can be listed in a CSV file: --field mask=COLUMN:mask"
        )
    yield SourceField(_MASK, _MASK, column=whole[0])


def _row(
    folders: Folders,
    image: str,
    fields: Sequence[SourceField],
    kinds: Mapping[str, Mapping[str, str]],
) -> Row:
    values = {field.name: kinds[field.column].get(image) for field in fields}
    missing = [name for name, mask in values.items() if mask is None]
    problem = f"no {missing[0]} of this name in {folders.masks}" if missing else None
    return Row(image, values, problem, image)


def _checked(folders: Folders, field: SourceField, masks: Sequence[str]) -> Iterator[Assumption]:
    """What is assumed of masks, by a few of them. PackError: their pixels are no numbers of classes."""
    values: set[int] = set()
    for mask in masks[:: -(-len(masks) // _MOST_LOOKED_AT)]:
        where = readable(str(folders.root / mask))
        try:
            with open_binary(folders.root / mask) as file:
                data = file.read()
        except OSError:
            continue  # packing lists it with the reason
        if data.startswith(b"\xff\xd8\xff"):
            raise _no_numbers(where, "a JPEG, whose values are not exact", field)
        if not data.startswith(b"\x89PNG"):
            continue  # packing takes it if it holds numbers
        if data[_COLOR_AT : _COLOR_AT + 1] and data[_COLOR_AT] not in (_GRAY, _PALETTE):
            what = "a PNG with colours, not with numbers of classes"
            colours = colour_list(folders.root, names_in(folders.root, FEW).files)
            if colours is not None:
                what += f", which {readable(colours)} names"
            raise _no_numbers(where, what, field)
        with suppress(_engine.StatusError):
            values.update(np.unique(_engine.decode_mask(data)).tolist())
    if values in ({0, 255}, {255}):
        yield Assumption(
            f"field {field.name}: the masks hold the values 0 and 255, which stay; losses that take numbers of classes "
            "expect 0 and 1"
        )


def _no_numbers(where: str, what: str, field: SourceField) -> PackError:
    return PackError(
        f"{where} is {what}; expected masks of one channel, or with a palette, as PNG or GIF. Convert them (a "
        f"number for each colour), or store them as pictures with --field {field.name}={field.column}:image"
    )
