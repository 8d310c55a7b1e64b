"""Options of a source, as users give them -> checked; then the columns that they choose."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from fastpipe.dataset.format.fields import KINDS, RESERVED, Field, check_name, member
from fastpipe.errors import (
    ConfigError,
    PackError,
    choice,
    first_names,
    option_name,
    readable,
    whole,
)
from fastpipe.sources.class_names import ClassNames
from fastpipe.sources.files import SourcePath, source_path
from fastpipe.sources.listing import SHOWN, STORED, SourceField
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
# Options that dataset.json records unchanged.
_RECORDED = (
    "format",
    "image_column",
    "label_column",
    "split",
    "coordinates",
    "first_label",
    "separator",
    "box_format",
    "unlisted",
    "encoding",
)
_TEXTS = (
    "image_column",
    "label_column",
    "split",
    "image_root",
    "separator",
    "encoding",
)


class FieldColumn(NamedTuple):
    """A field that a user asks for.

    Attributes:
        name: of the field.
        column: of the source.
        kind: of the values; None: as the source has them.
    """

    name: str
    column: str
    kind: str | None = None

    def columns_of(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The columns of a table that make the field.

        A field of kind "classes" may have several columns of 0 and 1, as "a,b", or a pattern.
        """
        known = list(columns)
        if self.column in known or self.kind != "classes":
            return (self.column,)
        chosen = []
        for part in self.column.split(","):
            pattern = part.strip()
            matches = [
                name for name in known if name == pattern or fnmatchcase(name, pattern)
            ]
            # A name that no column has stays, so that it is refused.
            chosen += matches or [pattern]
        return tuple(dict.fromkeys(chosen))

    def __str__(self) -> str:
        text = f"--field {self.name}={self.column}"
        return f"{text}:{self.kind}" if self.kind else text


@dataclass(frozen=True)
class SourceOptions:
    """How a source is read.

    Attributes:
        format: a Format; "auto": that of the source, if it is certain.
        image_column: the column with images or their paths; None: the only one there is.
        label_column: the column with labels; None: "label", if there is one.
        fields: of the samples; None: all that the source has.
        image_root: the folder that paths of images are relative to; None: that of their file.
        split: the part of the source that is packed, such as "train"; None: there is only one.
        coordinates: SHOWN or STORED; None: as the sizes in the annotations say, else by the rule of
            the format.
        first_label: the number of the first class in label files of YOLO; None: 0.
        classes: names of the classes by number; None: those of the source, as it numbers them.
        separator: between the classes of a picture in a text; None: the one that the column has.
        box_format: of four numbers of a box, one of BOX_FORMATS; None: what the columns say.
        unlisted: of images without a row, one of UNLISTED; None: DROP, with an assumption.
        encoding: of the text of a table; None: UTF-8, or UTF-16 if its first bytes say so.
        remote: how a URL is read; None: by the defaults.
    """

    format: str = "auto"
    image_column: str | None = None
    label_column: str | None = None
    fields: tuple[FieldColumn, ...] | None = None
    image_root: str | None = None
    split: str | None = None
    coordinates: str | None = None
    first_label: int | None = None
    classes: ClassNames | None = None
    separator: str | None = None
    box_format: str | None = None
    unlisted: str | None = None
    encoding: str | None = None
    remote: RemoteOptions | None = None

    def __post_init__(self) -> None:
        choice("--format", self.format, tuple(known.value for known in Format))
        if self.coordinates is not None:
            choice("--coordinates", self.coordinates, COORDINATES)
        if self.first_label is not None:
            whole("--first-label", self.first_label, least=0, most=1)
        if self.box_format is not None:
            choice("--box-format", self.box_format, BOX_FORMATS)
        if self.unlisted is not None:
            choice("--unlisted", self.unlisted, UNLISTED)
        for name in _TEXTS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                expected = "the path of a folder" if name == "image_root" else "a text"
                raise ConfigError(
                    f"{option_name(name)}: expected {expected}, got {value!r}"
                )
        if self.separator == "":
            raise ConfigError(
                "--separator: expected the text between classes, such as '|'; got ''"
            )
        if self.encoding is not None and not _is_encoding(self.encoding):
            raise ConfigError(
                "--encoding: expected an encoding of text that Python knows, such as cp1252 or "
                f"utf-16; got {self.encoding!r}"
            )

    def root_of_images(self) -> SourcePath | None:
        return (
            None
            if self.image_root is None
            else source_path(self.image_root, self.remote)
        )

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


def recorded_options(
    recorded: Mapping[str, Any], image_root: str | None = None
) -> SourceOptions:
    """The options that `SourceOptions.recorded` has given."""
    options = {name: recorded[name] for name in _RECORDED if name in recorded}
    if recorded.get("fields") is not None:
        options["fields"] = tuple(FieldColumn(*field) for field in recorded["fields"])
    if "classes_from" in recorded:
        options["classes"] = ClassNames.of_recorded(recorded["classes_from"])
    return SourceOptions(**options, image_root=image_root)


def source_options(
    *,
    fields: Mapping[str, str] | Sequence[str] | None = None,
    image_root: str | os.PathLike[str] | None = None,
    **others: Any,
) -> SourceOptions:
    """The options as users give them, checked. ConfigError: a value is wrong.

    Args:
        fields: name -> COLUMN or COLUMN:KIND; or texts NAME=COLUMN, NAME=COLUMN:KIND or NAME.
        image_root: see `SourceOptions`; also a path.
        **others: see `SourceOptions`.
    """
    root = os.fspath(image_root) if isinstance(image_root, os.PathLike) else image_root
    parsed = None if fields is None else _parse_fields(fields)
    return SourceOptions(fields=parsed, image_root=root, **others)


def _parse_fields(fields: object) -> tuple[FieldColumn, ...]:
    parsed: dict[str, FieldColumn] = {}
    for name, column in _names_and_columns(fields):
        try:
            check_name(name)
            if name in parsed:
                raise ValueError("expected each name of a field once, got it twice")
            if not isinstance(column, str):
                raise ValueError(f"expected the name of a column, got {column!r}")
        except ValueError as problem:
            raise ConfigError(f"--field {name}={column}: {problem}") from None
        # The name of a column may have a colon in it.
        before, colon, kind = column.rpartition(":")
        has_kind = colon and kind in KINDS
        parsed[name] = (
            FieldColumn(name, before, kind) if has_kind else FieldColumn(name, column)
        )
    return tuple(parsed.values())


def _names_and_columns(fields: object) -> list[tuple[Any, Any]]:
    if isinstance(fields, Mapping):
        return list(fields.items())
    texts: list[Any] | None = None
    if isinstance(fields, Iterable) and not isinstance(fields, (str, bytes)):
        texts = list(fields)
    if texts is None or not all(isinstance(text, str) for text in texts):
        raise ConfigError(
            "fields: expected names of fields and their columns, such as {'caption': 'text'} or "
            f"['caption=text'], got {fields!r}"
        )
    pairs = []
    for text in texts:
        name, equals, column = text.partition("=")
        pairs.append((name, column if equals else name))
    return pairs


def pick_split(split: str | None, splits: Collection[str], root: SourcePath) -> str:
    """The split that a user names, or the only one; "" is that of files that say none.

    PackError: the source has no such split, or several.
    """
    if split is None and len(splits) == 1:
        return next(iter(splits))
    if split is not None and split in splits:
        return split
    names = [readable(name) or "(files that say none)" for name in sorted(splits)]
    option = "" if split is None else f"--split {split}: "
    raise PackError(
        f"{option}{readable(str(root))} has the splits {', '.join(names) or '(none)'}: --split "
        "picks one"
    )


# With more endings, they are parts of names, as in photo.v1.2.jpg, and no fields.
MOST_FIELDS = 64
NOTE = "json"
_MAX_NAME_CHARACTERS = 64  # of a field
_MAX_NAMES_SHOWN = 20  # in a message

_PICTURE_ENDINGS = (
    "jpg jpeg jpe jfif png apng webp bmp dib tif tiff gif avif jp2 j2k ppm pgm pbm pnm tga ico "
    "heic heif fpc"
)
PICTURES = frozenset(_PICTURE_ENDINGS.split())


def is_picture(name: str) -> bool:
    """Whether a file is called like a picture, by the ending of its name."""
    return os.path.splitext(name)[1][1:].lower() in PICTURES


# The kind of a member by the last part of its ending; of other members the bytes are kept.
_KINDS_OF_MEMBERS = {
    "txt": "text",
    "text": "text",
    "transcript": "text",
    "caption": "text",
    "json": "json",
    "png": "mask",
    "jpg": "image",
    "jpeg": "image",
    "webp": "image",
    "tif": "image",
    "tiff": "image",
    "bmp": "image",
    "ppm": "image",
    "pgm": "image",
}
_POSSIBLE_KINDS = ("text", "json", "bytes", "mask", "image")  # of members

# Columns with the path of an image, if there is no --image-column.
_PATHS = "path file_name filename file filepath file_path image image_path image_file img img_path"
IMAGE_COLUMNS = frozenset(_PATHS.split())
# If there is none of these, columns with the id of an image.
_IDS = (
    "image_id imageid image_name imagename img_name img_id image_index image_filename filepaths "
    "filenames fname"
)
_ID_COLUMNS = frozenset(_IDS.split())
FILE_NAME = "file_name"
_LABEL = "label"


def fields_of(endings: Collection[str]) -> tuple[SourceField, ...]:
    """The fields of members that are neither image nor label.

    KEY.txt is a text "txt", KEY.seg.png a mask "seg". If two endings would give one name, the whole
    ending is the name: KEY.note.txt is "note_txt" beside KEY.note.json.
    """
    stems = {ending: ending.rpartition(".")[0] or ending for ending in sorted(endings)}
    name_counts = Counter(_field_name(stem) for stem in stems.values())
    fields: dict[str, SourceField] = {}
    for ending, stem in stems.items():
        is_unique = name_counts[_field_name(stem)] == 1
        # The whole endings a-b.txt and a_b.txt give one name, too.
        name = _field_name(stem if is_unique else ending, fields)
        kind = _KINDS_OF_MEMBERS.get(ending.rpartition(".")[2], "bytes")
        fields[name] = SourceField(name, kind, column=ending)
    return tuple(fields.values())


def fields_asked(
    asked: Iterable[FieldColumn], endings: Collection[str]
) -> tuple[SourceField, ...]:
    """The fields that a user asks for, of members with these endings. PackError: one is missing."""
    kinds = {field.column: field.kind for field in fields_of(endings)}
    fields = []
    for field in asked:
        if field.column not in kinds:
            raise PackError(
                f"{field}: no sample has a member with the ending {field.column}; there are "
                f"{named(kinds)}"
            )
        if field.kind is not None and field.kind not in _POSSIBLE_KINDS:
            raise PackError(
                f"{field}: expected one of the kinds {', '.join(_POSSIBLE_KINDS)} for a member of "
                "a tar. Store other values as json, or write them with fastpipe.Writer"
            )
        kind = field.kind or kinds[field.column]
        fields.append(SourceField(field.name, kind, column=field.column))
    return tuple(fields)


def field_of_dataset(field: Field) -> SourceField:
    """A field of a packed dataset, as its shards hold it."""
    ending = member(field)
    return SourceField(
        field.name,
        field.kind,
        in_note=ending is None,
        names=field.names,
        flip_pairs=field.flip_pairs,
        column=ending or NOTE,
    )


def _field_name(column: str, taken: Container[str] = ()) -> str:
    """The name of a field that is called like a column or ending.

    If another field has the name, or it means something else, _ or a number follows it.
    """
    name = re.sub(r"[^a-z0-9_]", "_", column)[:60]
    if not name[:1].isalpha():
        name = f"field_{name}"[:60]
    free_name = name
    number = 1
    while free_name in taken or free_name in RESERVED:
        number += 1
        if len(free_name) < _MAX_NAME_CHARACTERS:
            free_name = f"{free_name}_"
        else:
            free_name = f"{name[:55]}_{number}"
    return free_name


class ColumnChoice(NamedTuple):
    """What is read of a table.

    Attributes:
        image: the column with images or their paths.
        label: the column with labels; None: there are none.
        fields: of the samples.
        has_paths: images are paths; else bytes.
        classes: names of the label's numbers; None: nothing says them.
    """

    image: str
    label: str | None
    fields: tuple[SourceField, ...]
    has_paths: bool = True
    classes: tuple[str, ...] | None = None

    def read(self) -> list[str]:
        """Names of the columns that a sample is made of; its label is known before."""
        columns = [self.image]
        for field in self.fields:
            columns += field.columns or [field.column]
        return list(dict.fromkeys(columns))


def choose_columns(
    table: str,
    columns: Collection[str],
    options: SourceOptions,
    images: Collection[str],
    kind_of: Callable[[str], str],
    further: str = "",
    are_flags: Callable[[str], bool] = lambda _: True,
    hint: str = "",
) -> ColumnChoice:
    """Finds the columns that are asked for, or that are certain.

    Args:
        table: its name, for messages.
        columns: of the table.
        options: the user's options.
        images: columns that may hold the images.
        kind_of: returns the kind of field for a column, if the user has not said it.
        further: ending of columns with further images; their fields have names without it.
        are_flags: whether a column has 0 and 1, or -1 and 1; a pattern names only such columns.
        hint: what else to do if there is no column with images.

    Raises:
        PackError: a column is missing, or the user has to choose.
    """
    columns_by_field = {
        field: field.columns_of(columns) for field in options.fields or ()
    }
    _check_columns(table, columns, options, columns_by_field)
    image = options.image_column
    if image is None:
        if not images:
            example = FILE_NAME if further else "path, file_name or image"
            raise PackError(
                f"{table}: expected a column with images, or with paths such as {example}; got "
                f"{named(columns)}. --image-column names it{hint}"
            )
        if len(images) > 1:
            raise PackError(
                f"{table} has several columns that may hold the images: {named(images)}. "
                "--image-column picks one"
            )
        image = next(iter(images))

    label = options.label_column
    # A column that alone makes a field is no label, unless the user says so.
    claimed = {image}
    for field_columns in columns_by_field.values():
        if len(field_columns) == 1:
            claimed.update(field_columns)
    if label is None and _LABEL in columns and _LABEL not in claimed:
        label = _LABEL

    chosen = options.fields
    if chosen is None:
        others = [column for column in columns if column not in (image, label)]
        chosen = _name_fields(others, further)
    fields = []
    for field in chosen:
        flags = _flag_columns(
            field, columns_by_field.get(field, ()), (image, label), are_flags
        )
        kind = "classes" if flags else field.kind or kind_of(field.column)
        fields.append(
            SourceField(
                field.name, kind, names=flags, column=field.column, columns=flags
            )
        )
    return ColumnChoice(image, label, tuple(fields))


def _check_columns(
    table: str,
    columns: Collection[str],
    options: SourceOptions,
    columns_by_field: Mapping[FieldColumn, Sequence[str]],
) -> None:
    """Raises PackError if a user asks for a column that the table does not have."""
    chosen = [
        (f"--image-column {options.image_column}", options.image_column),
        (f"--label-column {options.label_column}", options.label_column),
    ]
    for field, field_columns in columns_by_field.items():
        chosen += [(str(field), column) for column in field_columns]
    for option, column in chosen:
        if column is not None and column not in columns:
            raise PackError(
                f"{option}: {table} has no such column; expected one of {named(columns)}"
            )


def _name_fields(columns: Iterable[str], further: str) -> tuple[FieldColumn, ...]:
    """A field for each column, called like it; see `choose_columns`."""
    fields: dict[str, FieldColumn] = {}
    for column in columns:
        # A-b and a_b give a_b and a_b_.
        name = _field_name(column.removesuffix(further).lower(), fields)
        fields[name] = FieldColumn(name, column)
    return tuple(fields.values())


def _flag_columns(
    field: FieldColumn,
    columns: tuple[str, ...],
    others: Collection[str | None],
    are_flags: Callable[[str], bool],
) -> tuple[str, ...]:
    """The columns of 0 and 1 that a field of classes is made of; () if it is made of one column."""
    if columns in ((), (field.column,)):
        return ()
    # A pattern leaves out other columns that it fits. A column that is named must have flags.
    by_name = {name.strip() for name in field.column.split(",")}
    wrong = [
        column for column in columns if column in by_name and not are_flags(column)
    ]
    flags = tuple(
        column for column in columns if column not in others and are_flags(column)
    )
    if wrong or not flags:
        got = f"{readable(wrong[0])} has others" if wrong else "no column that fits has"
        raise PackError(
            f"{field}: expected columns of 0 and 1, or -1 and 1, a column a class; {got}"
        )
    return flags


def find_image_like_columns(
    columns: Iterable[str], options: SourceOptions
) -> list[str]:
    """The columns that are called as if they held the paths of images, and are no fields."""
    of_fields = {field.column for field in options.fields or ()}
    paths = []
    ids = []
    for column in columns:
        if column not in of_fields:
            name = re.sub(r"[ -]", "_", column.lower())
            if name in IMAGE_COLUMNS:
                paths.append(column)
            elif name in _ID_COLUMNS:
                ids.append(column)
    return paths or ids


def named(columns: Iterable[str]) -> str:
    """The names of columns for a message, sorted."""
    names = [readable(column) for column in sorted(columns)]
    if not names:
        return "none"
    return first_names(names, _MAX_NAMES_SHOWN)


def quoted(text: str) -> str:
    """The text as a shell needs it."""
    return text if re.fullmatch(r"[\w.,:=-]+", text) else shlex.quote(text)
