"""A folder for each sample, with its image and a mask for each object -> rows with one mask each.

Note [folders of samples]
DSB 2018 has stage1_train/ID/images/ID.png, and in stage1_train/ID/masks a PNG for each nucleus. The
mask of a sample gets the number of each object, from 1 on, in the order of the names of the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.sources.annotations.annotation_folders import (
    is_called_images,
    is_called_masks,
)
from fastpipe.sources.files import Names, SourcePath, files_below, names_in
from fastpipe.sources.folders.splits import FEW
from fastpipe.sources.listing import Assumption, Listing, SourceField
from fastpipe.sources.tables.list_rows import list_rows
from fastpipe.sources.tables.rows import Row

_MASK = "mask"
# So many folders show whether each is a sample.
_NUM_CHECKED = 16


def are_samples(root: SourcePath, names: Names) -> bool:
    """Whether the first folders of a source have an image and masks of its objects each.

    See Note [folders of samples].
    """
    if any(map(is_picture, names.files)) or not names.folders:
        return False
    return all(_is_sample(root / name) for name in names.folders[:_NUM_CHECKED])


def _is_sample(folder: SourcePath) -> bool:
    num_images = 0
    num_masks = 0
    for name in names_in(folder, FEW).folders:
        if is_called_images(name):
            num_images += _count_pictures(folder / name)
        elif is_called_masks(name):
            num_masks += _count_pictures(folder / name)
    return num_images == 1 and num_masks > 0


def _count_pictures(folder: SourcePath) -> int:
    return sum(map(is_picture, names_in(folder, FEW).files))


def list_sample_folders(root: SourcePath) -> Listing:
    """Lists the samples of a source, in no order."""
    field = SourceField(_MASK, _MASK, has_object_numbers=True)
    images: dict[str, list[str]] = {}
    masks: dict[str, list[str]] = {}
    for path in sorted(filter(is_picture, files_below(root, hidden=False))):
        parts = PurePosixPath(path).parts
        if len(parts) != 3:
            continue
        sample, folder, _ = parts
        if is_called_images(folder):
            images.setdefault(sample, []).append(path)
        elif is_called_masks(folder):
            masks.setdefault(sample, []).append(path)
    listing = list_rows(root, _rows(images, masks), [field])
    text = (
        f"field {_MASK}: the files of masks in a folder are objects of its image; a pixel has the "
        "number of its object, from 1 on in the order of the names, and 0 is none. Where objects "
        "lie on one another, the last one counts"
    )
    return replace(listing, assumed=(*listing.assumed, Assumption(text)))


def _rows(images: dict[str, list[str]], masks: dict[str, list[str]]) -> Iterator[Row]:
    """A row for each image. Both have paths by the folder of the sample."""
    for sample, paths in images.items():
        problem = None
        if len(paths) > 1:
            problem = f"expected one image in the folder of a sample, got {len(paths)}"
        elif sample not in masks:
            problem = "no mask in the folder of the sample"
        for path in paths:
            values = {_MASK: {"objects": masks.get(sample, [])}}
            yield Row(path, values, problem, path)
