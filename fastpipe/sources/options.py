"""Options of a source, as users give them -> checked options."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from fastpipe.dataset.format.folder import scheme_of
from fastpipe.errors import ConfigError, PackError, choice, readable, whole
from fastpipe.sources.annotations.run_lengths import RUN_ORDERS
from fastpipe.sources.class_names import ClassNames
from fastpipe.sources.field_columns import FieldColumn, parse_fields
from fastpipe.sources.files import SourcePath, source_path
from fastpipe.sources.folders.splits import SplitChoiceError, describe_splits
from fastpipe.sources.listing import SHOWN, STORED
from fastpipe.sources.path_labels import compile_label_pattern
from fastpipe.store.remote.options import RemoteOptions

# The formats of sources. AUTO: the one that the source certainly has.
Format = StrEnum(
    "Format",
    "AUTO IMAGEFOLDER WEBDATASET PARQUET ARROW CSV JSONL COCO VOC YOLO MASKS ANNOTATIONS",
)
COORDINATES = (SHOWN, STORED)
# What the numbers of a box are, as torchvision.ops.box_convert calls it: left, top, right, bottom;
# left, top, width, height; centre, width, height.
BOX_FORMATS = ("xyxy", "xywh", "cxcywh")
# What becomes of images in the folders of a table that have no row in it.
DROP = "drop"
KEEP = "keep"
UNLISTED = (DROP, KEEP)
# What becomes of an image with a box that does not lie inside it, or that cannot be read: the image
# is rejected, the box is cut at the border, or it is dropped. What clip cannot cut, it drops.
REJECT = "reject"
CLIP = "clip"
BAD_BOXES = (REJECT, CLIP, DROP)
# Behind the reason why such an image is rejected.
KEEP_IMAGE = "--bad-boxes clip or drop packs the image all the same"
# Options that dataset.json records unchanged.
_RECORDED = (
    "format",
    "image_column",
    "label_column",
    "label_pattern",
    "split",
    "split_list",
    "coordinates",
    "first_label",
    "first_pixel",
    "separator",
    "box_format",
    "run_order",
    "unlisted",
    "bad_boxes",
    "encoding",
)
_TEXTS = (
    "image_column",
    "label_column",
    "label_pattern",
    "split",
    "split_list",
    "image_root",
    "separator",
    "encoding",
)


@dataclass(frozen=True)
class SourceOptions:
    """How a source is read.

    Attributes:
        format: a Format; "auto": that of the source, if it is certain.
        image_column: the column with images or their paths; None: the only one there is.
        label_column: the column with labels; None: "label", if there is one.
        label_pattern: finds the class in the path of an image, see Note [labels in paths]; None: the
            path says none.
        fields: of the samples; None: all that the source has.
        image_root: the folder that paths of images are relative to; None: that of their file.
        split: the part of the source that is packed, such as "train"; None: there is only one.
        split_list: the file that says the images of a split; None: the source itself says them.
            Note [lists of splits]
        coordinates: SHOWN or STORED; None: as the sizes in the annotations say, else by the rule of
            the format.
        first_label: the number of the first class in label files of YOLO and in tables; None: 0.
        first_pixel: the number of the first pixel in annotations of VOC, 0 or 1; None: 0 if a box
            begins at 0, else 1.
        classes: names of the classes by number; None: those of the source, as it numbers them.
        separator: between the classes of a picture in a text; None: the one that the column has.
        box_format: of four numbers of a box, one of BOX_FORMATS; None: what the columns say.
        run_order: of the pixels in run lengths, one of RUN_ORDERS; None: what the sizes of some
            pictures show. Note [order of runs]
        unlisted: of images that are not listed, one of UNLISTED; None: DROP, with an assumption.
        bad_boxes: of boxes that do not lie inside their image or cannot be read, one of BAD_BOXES;
            None: REJECT.
        encoding: of the text of a table; None: UTF-8, or UTF-16 if its first bytes say so.
        remote: how a URL is read; None: by the defaults.
    """

    format: str = "auto"
    image_column: str | None = None
    label_column: str | None = None
    label_pattern: str | None = None
    fields: tuple[FieldColumn, ...] | None = None
    image_root: str | None = None
    split: str | None = None
    split_list: str | None = None
    coordinates: str | None = None
    first_label: int | None = None
    first_pixel: int | None = None
    classes: ClassNames | None = None
    separator: str | None = None
    box_format: str | None = None
    run_order: str | None = None
    unlisted: str | None = None
    bad_boxes: str | None = None
    encoding: str | None = None
    remote: RemoteOptions | None = None

    def __post_init__(self) -> None:
        choice("format", self.format, tuple(known.value for known in Format))
        if self.coordinates is not None:
            choice("coordinates", self.coordinates, COORDINATES)
        if self.first_label is not None:
            whole("first_label", self.first_label, least=0, most=1)
        if self.first_pixel is not None:
            whole("first_pixel", self.first_pixel, least=0, most=1)
        if self.box_format is not None:
            choice("box_format", self.box_format, BOX_FORMATS)
        if self.run_order is not None:
            choice("run_order", self.run_order, RUN_ORDERS)
        if self.unlisted is not None:
            choice("unlisted", self.unlisted, UNLISTED)
        if self.bad_boxes is not None:
            choice("bad_boxes", self.bad_boxes, BAD_BOXES)
        self._check_texts()

    def _check_texts(self) -> None:
        """Raises ConfigError if an option is no text, or a text that it cannot be."""
        for name in _TEXTS:
            value = getattr(self, name)
            if value is None or isinstance(value, str):
                continue
            expected = "a text"
            if name == "image_root":
                expected = "the path of a folder"
            elif name == "split_list":
                expected = "the path of a file"
            raise ConfigError(f"expected {expected}, got {value!r}", option=name)
        if self.label_pattern is not None:
            compile_label_pattern(self.label_pattern)
            if self.label_column is not None:
                raise ConfigError(
                    "does not go with label_column (--label-column), for an image has one label; leave out "
                    "one of them",
                    option="label_pattern",
                )
        # With "" no text would be split, and nobody would notice.
        if self.separator == "":
            raise ConfigError(
                "expected the text between classes, such as '|'; got ''",
                option="separator",
            )
        if self.encoding is not None and not _is_encoding(self.encoding):
            raise ConfigError(
                "expected an encoding of text that Python knows, such as cp1252 or utf-16; got "
                f"{self.encoding!r}",
                option="encoding",
            )

    @property
    def keeps_images(self) -> bool:
        """Whether images with boxes that cannot be read are packed without these boxes."""
        return self.bad_boxes in (CLIP, DROP)

    @property
    def field_columns(self) -> set[str]:
        """The columns that the user names as fields; empty if the source chooses the fields."""
        return {field.column for field in self.fields or ()}

    def root_of_images(self) -> SourcePath | None:
        """The path of `image_root`; None if the user does not name one."""
        if self.image_root is None:
            return None
        return source_path(self.image_root, self.remote)

    def path_of_split_list(self) -> SourcePath | None:
        """The path of `split_list`; None if the user does not name one."""
        if self.split_list is None:
            return None
        return source_path(self.split_list, self.remote)

    def without_listed_split(self) -> SourceOptions:
        """The options for the source itself: with a list of splits, `split` is one of the list."""
        if self.split_list is None:
            return self
        return replace(self, split=None)

    def recorded(self) -> dict[str, Any]:
        """The options for dataset.json that differ from the defaults.

        The image root is not among them: it may be elsewhere next time.
        """
        entry: dict[str, Any] = {}
        for name in _RECORDED:
            value = getattr(self, name)
            if value not in (None, "auto"):
                entry[name] = value
        if self.fields is not None:
            entry["fields"] = [list(field) for field in self.fields]
        if self.classes is not None:
            entry["classes_from"] = self.classes.recorded()
        return entry


def _is_encoding(name: str) -> bool:
    """Whether Python can decode text with it: "hex" or "rot13" cannot."""
    try:
        "a".encode(name).decode(name)
    except (LookupError, ValueError):
        return False
    return True


def read_recorded_options(
    recorded: Mapping[str, Any], image_root: str | None = None
) -> SourceOptions:
    """The options that `SourceOptions.recorded` has given."""
    options: dict[str, Any] = {}
    for name in _RECORDED:
        # An option that was left at its default is not in the record.
        if name in recorded:
            options[name] = recorded[name]
    if recorded.get("fields") is not None:
        options["fields"] = tuple(FieldColumn(*field) for field in recorded["fields"])
    if "classes_from" in recorded:
        options["classes"] = ClassNames.of_recorded(recorded["classes_from"])
    return SourceOptions(**options, image_root=image_root)


def parse_source_options(
    *,
    fields: Mapping[str, str] | Sequence[str] | None = None,
    image_root: str | os.PathLike[str] | None = None,
    split_list: str | os.PathLike[str] | None = None,
    **others: Any,
) -> SourceOptions:
    """The options as users give them, checked. ConfigError: a value is wrong.

    Args:
        fields: name -> COLUMN or COLUMN:KIND; or texts NAME=COLUMN, NAME=COLUMN:KIND or NAME.
        image_root, split_list: see `SourceOptions`; also paths.
        **others: see `SourceOptions`.
    """
    # SourceOptions takes a text, and refuses all else.
    if isinstance(image_root, os.PathLike):
        image_root = os.fspath(image_root)
    if isinstance(split_list, os.PathLike):
        split_list = os.fspath(split_list)
    # It is recorded, and `fastpipe add` may run in another folder.
    if isinstance(split_list, str) and not scheme_of(split_list):
        split_list = os.path.abspath(split_list)
    parsed_fields = None
    if fields is not None:
        parsed_fields = parse_fields(fields)
    return SourceOptions(
        fields=parsed_fields, image_root=image_root, split_list=split_list, **others
    )


def pick_split(
    split: str | None, splits: Collection[str], root: SourcePath, more: str = ""
) -> str:
    """The split that a user names, or the only one; "" is that of files that say none.

    `more`: the end of the message where the user has to name a split.

    PackError: the source has no such split, or several.
    """
    if split is None and len(splits) == 1:
        return next(iter(splits))
    if split is not None and split in splits:
        return split
    names = sorted(name for name in splits if name)
    shown = readable(root)
    if not names:
        raise PackError(f"{shown} has no splits; leave it out", option="split")
    problem = describe_splits(names, split)
    if "" in splits:
        problem = f"{problem} (some files say none)"
    raise SplitChoiceError(f"{shown} {problem}{more}", names)


def quote_for_shell(text: str) -> str:
    """The text as a shell needs it."""
    # shlex quotes letters outside ASCII, too, which no shell needs: --label-column étiquette.
    if re.fullmatch(r"[\w.,:=-]+", text):
        return text
    return shlex.quote(text)
