"""The kind of a source, once it is recognised, and the options that mean something for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_folders import FolderPair
from fastpipe.sources.file_formats import MANIFESTS
from fastpipe.sources.files import Names, SourcePath
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.unused_split_lists import describe_list_of_split

_TABLE_OPTIONS = (
    "image_column",
    "label_column",
    "fields",
    "image_root",
    "split",
    "split_list",
    "coordinates",
    "separator",
    "unlisted",
    "box_format",
    "bad_boxes",
)
_MANIFEST_OPTIONS = (
    *_TABLE_OPTIONS,
    "label_pattern",
    "first_label",
    "run_order",
    "encoding",
)
# Format -> the options of `SourceOptions` that mean something for it.
OPTIONS_OF_FORMAT: dict[str, tuple[str, ...]] = {
    "dataset": (),
    "imagefolder": ("label_pattern", "split_list", "fields", "coordinates"),
    "webdataset": (
        "image_column",
        "label_column",
        "fields",
        "split",
        "split_list",
        "coordinates",
        "bad_boxes",
    ),
    "metadata": _MANIFEST_OPTIONS,
    "csv": _MANIFEST_OPTIONS,
    "jsonl": _MANIFEST_OPTIONS,
    "parquet": _TABLE_OPTIONS,
    "arrow": _TABLE_OPTIONS,
    "coco": (
        "fields",
        "image_root",
        "split",
        "split_list",
        "coordinates",
        "unlisted",
        "box_format",
        "bad_boxes",
    ),
    "voc": (
        "split",
        "split_list",
        "coordinates",
        "unlisted",
        "first_pixel",
        "bad_boxes",
    ),
    "yolo": (
        "fields",
        "split",
        "split_list",
        "coordinates",
        "first_label",
        "bad_boxes",
    ),
    "masks": ("fields", "label_pattern", "split", "split_list", "coordinates"),
    "annotations": (
        "fields",
        "image_root",
        "split",
        "split_list",
        "coordinates",
        "unlisted",
        "bad_boxes",
    ),
}
_ALL_OPTIONS = (*_MANIFEST_OPTIONS, "first_pixel")
# Formats of which one file may have several splits.
_SPLITS_IN_FILE = (
    "parquet",
    "arrow",
    "webdataset",
    "metadata",
    "annotations",
    *MANIFESTS,
)
# Format -> what such a source is called in messages.
_KINDS = {
    "dataset": "a packed dataset",
    "imagefolder": "a folder of images",
    "webdataset": "tars",
    "metadata": "a folder with a table of its images",
    "csv": "a table",
    "jsonl": "a JSONL file",
    "parquet": "Parquet files",
    "arrow": "Arrow files",
    "coco": "COCO annotations",
    "voc": "Pascal VOC annotations",
    "yolo": "YOLO labels",
    "masks": "a folder of images and masks",
    "annotations": "annotations of this kind",
}
_NO_NAMES = Names([], [], [])


@dataclass(frozen=True)
class Recognised:
    """A source, recognised.

    Attributes:
        format: as of --format; or "dataset" for one of ours, "metadata" for ImageFolder's.
        root: the file or folder; of a split with a folder of its own, this folder.
        names: the names in the folder; none if it is a file.
        is_file: whether `root` is a file.
        files: the files that list its images, of COCO, manifests and annotations; of these also
            folders of such files.
        list_name: of these, the split that they are about, or their name.
        other_files: as `files`, of the other splits, by split.
        split: the split that it is; "" if it is all of the source.
        splits: the folders of all splits of the source, if they have folders.
        top: the folder that holds `splits`.
        tars: the tars of all splits, if these lie in one folder.
        pair: the folders of images and of labels or masks.
    """

    format: str
    root: SourcePath
    names: Names = _NO_NAMES
    is_file: bool = False
    files: Sequence[SourcePath] = ()
    list_name: str = ""
    other_files: Mapping[str, Sequence[SourcePath]] = field(default_factory=dict)
    split: str = ""
    splits: Mapping[str, SourcePath] = field(default_factory=dict)
    top: SourcePath | None = None
    tars: Mapping[str, Sequence[str]] = field(default_factory=dict)
    pair: FolderPair | None = None


def check_options(recognised: Recognised, options: SourceOptions) -> None:
    """Raises PackError if an option has no meaning for a source."""
    format_name = recognised.format
    for name in _ALL_OPTIONS:
        if getattr(options, name) is None or (name == "split" and recognised.split):
            continue
        has_no_splits = recognised.is_file and format_name not in _SPLITS_IN_FILE
        # Without files beside its images, a folder has nothing that lies on them.
        has_no_fields = format_name == "imagefolder" and not options.fields
        is_known = name in OPTIONS_OF_FORMAT[format_name]
        if name == "coordinates" and has_no_fields:
            is_known = False
        if name == "split" and has_no_splits:
            is_known = False
        if not is_known:
            raise PackError(_describe_no_effect(name, recognised, options), option=name)


def _describe_no_effect(
    name: str, recognised: Recognised, options: SourceOptions
) -> str:
    """Says that an option has no meaning for a source, and what to do."""
    root = readable(recognised.root)
    is_image_folder = recognised.format == "imagefolder"
    if name == "split":
        list_of_split = ""
        if is_image_folder and options.split:
            list_of_split = describe_list_of_split(
                recognised.root,
                options.split,
                are_labels_known=options.label_pattern is not None,
            )
        return f"{root} has no splits; {list_of_split or 'leave it out'}"
    place = f"{_KINDS[recognised.format]} ({root})"
    if name == "label_column" and is_image_folder:
        return f"it has no effect on {place}: the names of class folders are the labels. Leave it out"
    return f"it has no effect on {place}; leave it out"
