"""COCO's panoptic annotations -> a listing of images with a mask of the category of each pixel.

Format: https://cocodataset.org/#format-data: each image has a PNG in a folder that is called like
the file. Red + 256 green + 65536 blue of a pixel is the id of its segment, and 0 is none;
segments_info has the category of each id, of things and of stuff.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.sources.annotations.coco_annotations import Annotation, Annotations, Entry
from fastpipe.sources.annotations.coco_paths import find_image_folder, use_image_root
from fastpipe.sources.listing import Assumption, Listing, SourceField
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.list_rows import list_rows
from fastpipe.sources.tables.rows import Row

_MASK = "mask"
_SEGMENTS = "segments_info"
_MAX_ID = (1 << 24) - 1
# The number of pixels without a segment.
_NO_SEGMENT = 0


def list_panoptic(annotations: Annotations, options: SourceOptions) -> Listing:
    """Lists the images of a panoptic file, in no order.

    Raises:
        PackError: the folder of the masks is not beside the file, or the user asks for other
            fields.
    """
    file = annotations.paths[0]
    if not isinstance(file, Path):
        raise PackError(
            f"{readable(str(file))}: COCO's panoptic annotations are not read by URL: copy them "
            "to a folder of this machine"
        )
    if options.unlisted is not None:
        raise PackError(
            "panoptic annotations have no such option; leave it out", option="unlisted"
        )
    if _NO_SEGMENT in annotations.categories:
        raise PackError(
            f"{readable(str(file))}: category {_NO_SEGMENT} has the number of pixels without a "
            "segment; expected categories from 1 on"
        )
    field = SourceField(_MASK, _MASK, names=annotations.category_names)
    for column in options.fields or ():
        if column.column != _SEGMENTS or column.kind not in (None, _MASK):
            raise PackError(f"{column}: panoptic annotations have {_SEGMENTS} alone")
        field = field._replace(name=column.name)

    root = options.root_of_images()
    if root is None:
        # The name of the file says the split, such as panoptic_val2017.
        folder = find_image_folder(annotations, None)
    else:
        folder = use_image_root(annotations, root)
    images = Path(os.path.abspath(str(folder.root)))
    masks = _find_mask_folder(file)
    top = Path(os.path.commonpath([images, masks]))
    rows = _rows(
        annotations,
        field,
        images.relative_to(top).as_posix(),
        masks.relative_to(top).as_posix(),
    )
    listing = list_rows(top, rows, [field])
    text = (
        f"field {field.name}: the category of each pixel, of things and of stuff, and 0 where "
        "there is no segment. Objects of one category are not told apart; the instances file has "
        "their boxes and polygons"
    )
    assumed = (*listing.assumed, *folder.assumed, Assumption(text))
    return replace(listing, assumed=assumed)


def _find_mask_folder(file: Path) -> Path:
    """The folder that is called like the file, beside it or beside its folder."""
    folders = [file.parent / file.stem, file.parent.parent / file.stem]
    for folder in folders:
        # A zip file often unpacks into one more folder of the name.
        for candidate in (folder / file.stem, folder):
            if candidate.is_dir():
                return Path(os.path.abspath(candidate))
    raise PackError(
        f"{readable(str(file))} has COCO's panoptic annotations, whose masks are PNGs; expected "
        f"them in the folder {readable(str(folders[0]))} or {readable(str(folders[1]))}"
    )


def _rows(
    annotations: Annotations, field: SourceField, images: str, masks: str
) -> Iterator[Row]:
    """A row for each image. `images`, `masks`: their folders, below the root of the listing."""
    for image_id, image in annotations.images.items():
        values: dict[str, Any] = {}
        problem = image.problem
        try:
            entry = _only_entry(annotations.read_annotations(image_id))
            values[field.name] = {
                "path": f"{masks}/{entry['file_name']}",
                "segments": _read_segments(annotations, entry),
            }
        except ImageError as error:
            problem = problem or f"field {field.name}: {error}"
        path = image.path
        if path and images != ".":
            path = f"{images}/{path}"
        yield image._replace(values=values, problem=problem, path=path)
    yield from annotations.rows_without_image()


def _only_entry(image_annotations: list[Annotation]) -> Entry:
    if len(image_annotations) != 1:
        raise ImageError(
            f"expected one panoptic annotation of the image, got {len(image_annotations)}"
        )
    entry = image_annotations[0].entry
    if not isinstance(entry.get("file_name"), str):
        raise ImageError(f"expected a file_name, got {entry.get('file_name')!r:.60}")
    return entry


def _read_segments(annotations: Annotations, entry: Entry) -> list[tuple[int, int]]:
    """Id and category of each segment. ImageError: they are something else."""
    segments: list[tuple[int, int]] = []
    infos = entry.get(_SEGMENTS)
    if not isinstance(infos, list):
        raise ImageError(f"expected {_SEGMENTS} as a list, got {infos!r:.60}")
    for info in infos:
        segment_id = info.get("id") if isinstance(info, dict) else None
        if type(segment_id) is not int or not 0 < segment_id <= _MAX_ID:
            raise ImageError(
                f"expected a segment with an id of 1 to {_MAX_ID:,}, got {info!r:.60}"
            )
        segments.append((segment_id, annotations.read_category(info)))
    return segments
