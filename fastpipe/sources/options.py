"""What a user says about a source -> checked options; with its columns -> those of image, label and fields."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from fastpipe.errors import ConfigError, PackError, choice, readable, whole
from fastpipe.format.fields import KINDS, RESERVED, Field, check_name, member
from fastpipe.sources.class_names import ClassNames
from fastpipe.sources.files import SourcePath, source_path
from fastpipe.sources.listing import SHOWN, STORED, SourceField
from fastpipe.store.remote.options import RemoteOptions

# Of a source; AUTO: what it certainly is.
Format = StrEnum(
    "Format", "AUTO IMAGEFOLDER WEBDATASET PARQUET ARROW CSV JSONL COCO VOC YOLO MASKS"
)
COORDINATES = (SHOWN, STORED)
# What the numbers of a box are, as torchvision.ops.box_convert calls it: left, top, right, bottom; left, top, width,
# height; centre, width, height.
BOX_FORMATS = ("xyxy", "xywh", "cxcywh")
# What dataset.json has as it is.
_SAID = (
    *("format", "image_column", "label_column", "split", "coordinates", "first_label"),
    *("separator", "box_format", "unlisted", "encoding"),
)
DROP, KEEP = "drop", "keep"
UNLISTED = (DROP, KEEP)  # what becomes of images in the folders of a table that have no row in it


class FieldColumn(NamedTuple):
    """A field that a user asks for: its name, the column of the source, and its kind; None: that of the values."""

    name: str
    column: str
    kind: str | None = None

    def columns_of(self, there: Iterable[str]) -> tuple[str, ...]:
        """The columns of a table that it is made of; of kind "classes" several of 0 and 1, as "a,b", or a pattern."""
        known = list(there)
        if self.column in known or self.kind != "classes":
            return (self.column,)
        found: list[str] = []
        for part in map(str.strip, self.column.split(",")):
            found += [
                column for column in known if column == part or fnmatchcase(column, part)
            ] or [part]
        return tuple(dict.fromkeys(found))

    def __str__(self) -> str:
        return f"--field {self.name}={self.column}" + (f":{self.kind}" if self.kind else "")


@dataclass(frozen=True)
class SourceOptions:
    """How a source is read."""

    format: str = "auto"  # a Format; "auto": what the source is, where that is certain
    image_column: str | None = (
        None  # the column with images or their paths; None: the only one there is
    )
    label_column: str | None = None  # the column with labels; None: "label", if there is one
    fields: tuple[FieldColumn, ...] | None = None  # of the samples; None: all that the source has
    image_root: str | None = (
        None  # the folder that paths of images are relative to; None: that of their file
    )
    split: str | None = (
        None  # the part of the source that is packed, such as "train"; None: it has one
    )
    coordinates: str | None = (
        None  # SHOWN or STORED; None: as the sizes in the annotations say, else the format
    )
    first_label: int | None = None  # the number of the first class in label files of YOLO; None: 0
    classes: ClassNames | None = (
        None  # names of the classes by number; None: those of the source, as it numbers them
    )
    separator: str | None = (
        None  # between the classes of a picture in a text; None: what the column has
    )
    box_format: str | None = (
        None  # what four numbers of a box are: one of BOX_FORMATS; None: what the columns say
    )
    unlisted: str | None = (
        None  # of images without a row: one of UNLISTED; None: DROP, and this is said
    )
    encoding: str | None = (
        None  # of the text of a table; None: UTF-8, or UTF-16 where its first bytes say so
    )
    remote: RemoteOptions | None = None  # how a URL is read; None: as by default

    def __post_init__(self) -> None:
        choice("--format", self.format, tuple(each.value for each in Format))
        if self.coordinates is not None:
            choice("--coordinates", self.coordinates, COORDINATES)
        if self.first_label is not None:
            whole("--first-label", self.first_label, least=0, most=1)
        if self.box_format is not None:
            choice("--box-format", self.box_format, BOX_FORMATS)
        if self.unlisted is not None:
            choice("--unlisted", self.unlisted, UNLISTED)
        if self.separator == "":
            raise ConfigError("--separator: expected the text between classes, such as '|'; got ''")
        for name in (
            "image_column",
            "label_column",
            "split",
            "image_root",
            "separator",
            "encoding",
        ):
            value = getattr(self, name)
            if not isinstance(value, (str, type(None))):
                expected = "the path of a folder" if name == "image_root" else "a text"
                raise ConfigError(f"--{name.replace('_', '-')}: expected {expected}, got {value!r}")
        if self.encoding is not None and not _is_encoding(self.encoding):
            raise ConfigError(
                f"--encoding: expected an encoding of text that Python knows, such as cp1252 or utf-16; got "
                f"{self.encoding!r}"
            )

    def root_of_images(self) -> SourcePath | None:
        return None if self.image_root is None else source_path(self.image_root, self.remote)

    def recorded(self) -> dict[str, Any]:
        """For dataset.json: what differs from the defaults. Not the image root: it may be elsewhere next time."""
        said: dict[str, Any] = {
            name: value for name in _SAID if (value := getattr(self, name)) not in (None, "auto")
        }
        if self.fields is not None:
            said["fields"] = [list(field) for field in self.fields]
        if self.classes is not None:
            said["classes_from"] = self.classes.recorded()
        return said


def _is_encoding(name: str) -> bool:
    """Whether Python can decode text with it; "hex" or "rot13" decode no text."""
    try:
        "a".encode(name).decode(name)
    except (LookupError, ValueError):
        return False
    return True


def recorded_options(said: Mapping[str, Any], image_root: str | None = None) -> SourceOptions:
    fields = (
        None
        if said.get("fields") is None
        else tuple(FieldColumn(*field) for field in said["fields"])
    )
    classes = ClassNames.of_recorded(said["classes_from"]) if "classes_from" in said else None
    others = {name: said[name] for name in _SAID if name in said}
    return SourceOptions(**others, fields=fields, image_root=image_root, classes=classes)


def source_options(
    *,
    fields: Mapping[str, str] | Sequence[str] | None = None,
    image_root: str | os.PathLike[str] | None = None,
    **others: Any,
) -> SourceOptions:
    """The options as users give them, checked: fields are name -> COLUMN or COLUMN:KIND, or texts NAME=COLUMN,
    NAME=COLUMN:KIND or NAME. ConfigError: a value is wrong.
    """
    root = os.fspath(image_root) if isinstance(image_root, os.PathLike) else image_root
    return SourceOptions(
        fields=None if fields is None else tuple(_fields(fields)), image_root=root, **others
    )


def _fields(fields: object) -> Iterable[FieldColumn]:
    given: Any = fields.items() if isinstance(fields, Mapping) else None
    if given is None and isinstance(fields, Iterable) and not isinstance(fields, (str, bytes)):
        texts = list(fields)
        if all(isinstance(each, str) for each in texts):
            given = [
                (name, column if said else name)
                for name, said, column in (each.partition("=") for each in texts)
            ]
    if given is None:
        expected = (
            "names of fields and their columns, such as {'caption': 'text'} or ['caption=text']"
        )
        raise ConfigError(f"fields: expected {expected}, got {fields!r}")
    seen = set()
    for name, column in given:
        try:
            check_name(name)
            if name in seen:
                raise ValueError("expected each name of a field once, got it twice")
            if not isinstance(column, str):
                raise ValueError(f"expected the name of a column, got {column!r}")
        except ValueError as problem:
            raise ConfigError(f"--field {name}={column}: {problem}") from None
        seen.add(name)
        before, colon, kind = column.rpartition(":")
        yield (
            FieldColumn(name, before, kind)
            if colon and kind in KINDS
            else FieldColumn(name, column)
        )


def pick_split(split: str | None, there: Collection[str], root: SourcePath) -> str:
    """The split that a user names, or the only one there is; "" is what says none. PackError: neither is there."""
    for each in there:
        if each == split or (split is None and len(there) == 1):
            return each
    names = (
        ", ".join(readable(name) or "(files that say none)" for name in sorted(there)) or "(none)"
    )
    asked = "" if split is None else f"--split {split}: "
    raise PackError(f"{asked}{readable(str(root))} has the splits {names}: --split picks one")


MOST_FIELDS = 64  # with more endings, they are parts of names, as in photo.v1.2.jpg, and no fields
NOTE = "json"
_MOST_CHARACTERS = 64  # of a field's name
_MOST_SHOWN = 20  # names in a message

_ENDINGS = "jpg jpeg jpe jfif png apng webp bmp dib tif tiff gif avif jp2 j2k ppm pgm pbm pnm tga ico heic heif fpc"
PICTURES = frozenset(_ENDINGS.split())


def is_picture(name: str) -> bool:
    """Whether a file is called like a picture, by the ending of its name."""
    return os.path.splitext(name)[1][1:].lower() in PICTURES


# By the last part of the ending; of other members the bytes are kept.
_KINDS = {
    **dict.fromkeys(("txt", "text", "transcript", "caption"), "text"),
    "json": "json",
    "png": "mask",
    **dict.fromkeys(("jpg", "jpeg", "webp", "tif", "tiff", "bmp", "ppm", "pgm"), "image"),
}
_OF_MEMBERS = ("text", "json", "bytes", "mask", "image")

# Columns with the path of an image, if there is no --image-column; with its id, if there is none of the first.
_IMAGES = "path file_name filename file filepath file_path image image_path image_file img img_path"
_IMAGE_IDS = (
    "image_id imageid image_name imagename img_name img_id image_index image_filename filepaths "
    "filenames fname"
)
IMAGE_COLUMNS = frozenset(_IMAGES.split())
_ID_COLUMNS = frozenset(_IMAGE_IDS.split())
FILE_NAME = "file_name"
_LABEL = "label"


def fields_of(endings: Collection[str]) -> tuple[SourceField, ...]:
    """The fields of members that are neither image nor label: KEY.txt is a text "txt", KEY.seg.png a mask "seg". Where
    two endings would give one name, the whole ending is the name: KEY.note.txt is "note_txt" beside KEY.note.json.
    """
    short = {ending: _field_name(ending.rpartition(".")[0] or ending) for ending in sorted(endings)}
    taken = Counter(short.values())
    found: dict[str, SourceField] = {}
    for ending, name in short.items():
        name = _field_name(
            name if taken[name] == 1 else ending, found
        )  # such as a-b.txt and a_b.txt
        found[name] = SourceField(
            name, _KINDS.get(ending.rpartition(".")[2], "bytes"), column=ending
        )
    return tuple(found.values())


def fields_asked(asked: Iterable[FieldColumn], endings: Collection[str]) -> tuple[SourceField, ...]:
    kinds = {field.column: field.kind for field in fields_of(endings)}
    found = []
    for field in asked:
        if field.column not in kinds:
            raise PackError(
                f"{field}: no sample has a member with the ending {field.column}; there are {named(kinds)}"
            )
        if field.kind is not None and field.kind not in _OF_MEMBERS:
            expected = f"expected one of the kinds {', '.join(_OF_MEMBERS)} for a member of a tar"
            raise PackError(
                f"{field}: {expected}. Store other values as json, or write them with fastpipe.Writer"
            )
        found.append(
            SourceField(field.name, field.kind or kinds[field.column], column=field.column)
        )
    return tuple(found)


def field_of_dataset(field: Field) -> SourceField:
    """A field of a packed dataset, as its shards hold it."""
    ending = member(field)
    return SourceField(
        field.name, field.kind, ending is None, field.names, field.flip_pairs, ending or NOTE
    )


def _field_name(like: str, taken: Container[str] = ()) -> str:
    """A field's name like a column or ending; with _ or a number behind it where another field is called so."""
    name = re.sub(r"[^a-z0-9_]", "_", like)[:60]
    if not name[:1].isalpha():
        name = f"field_{name}"[:60]
    free, number = name, 1
    while free in taken or free in RESERVED:
        number += 1
        free = f"{free}_" if len(free) < _MOST_CHARACTERS else f"{name[:55]}_{number}"
    return free


class ColumnChoice(NamedTuple):
    """What is read of a table: the columns with images, labels and fields."""

    image: str
    label: str | None
    fields: tuple[SourceField, ...]
    has_paths: bool = True  # not bytes of images
    classes: tuple[str, ...] | None = None  # names of the label's numbers; None: nothing says them

    def read(self) -> list[str]:
        """Names of the columns that a sample is made of; its label is known before."""
        of_fields = (column for field in self.fields for column in field.columns or [field.column])
        return list(dict.fromkeys([self.image, *of_fields]))


def choose_columns(
    table: str,
    columns: Collection[str],
    how: SourceOptions,
    images: Collection[str],
    kind_of: Callable[[str], str],
    further: str = "",
    are_flags: Callable[[str], bool] = lambda _: True,
    hint: str = "",
) -> ColumnChoice:
    """Finds the columns that are asked for, or that are certain; PackError: it is for the user to choose.

    `images` are those that may hold the images. `kind_of` tells the kind of field for a column, where the user says
    none. `further` is an ending of columns with further images, which their fields' names do not have. `are_flags`
    tells whether a column has 0 and 1, or -1 and 1: those are the columns that a pattern names. `hint`: what else to
    do where there is no column with images.
    """
    image, label = how.image_column, how.label_column
    said = [(f"--image-column {image}", image), (f"--label-column {label}", label)]
    parts = {each: each.columns_of(columns) for each in how.fields or ()}
    said += [(str(each), column) for each, found in parts.items() for column in found]
    for option, column in said:
        if column is not None and column not in columns:
            raise PackError(
                f"{option}: {table} has no such column; expected one of {named(columns)}"
            )
    if image is None and images:
        image, *others = images
        if others:
            several = f"several columns that may hold the images: {named(images)}"
            raise PackError(f"{table} has {several}. --image-column picks one")
    elif image is None:
        expected = f"a column with images, or with paths such as {FILE_NAME if further else 'path, file_name or image'}"
        raise PackError(
            f"{table}: expected {expected}; got {named(columns)}. --image-column names it{hint}"
        )
    claimed = {image, *(column for found in parts.values() for column in found if len(found) == 1)}
    if label is None and _LABEL in columns and _LABEL not in claimed:
        label = _LABEL
    asked = how.fields
    if asked is None:
        names: dict[str, str] = {}  # A-b and a_b give a_b and a_b_
        for column in columns:
            if column not in (image, label):
                names[_field_name(column.removesuffix(further).lower(), names)] = column
        asked = tuple(FieldColumn(*each) for each in names.items())
    fields = []
    for each in asked:
        flags = _flags(each, parts.get(each, ()), {image, label}, are_flags)
        kind = "classes" if flags else each.kind or kind_of(each.column)
        fields.append(SourceField(each.name, kind, names=flags, column=each.column, columns=flags))
    return ColumnChoice(image, label, tuple(fields))


def _flags(
    field: FieldColumn,
    columns: tuple[str, ...],
    others: Collection[str | None],
    are_flags: Callable[[str], bool],
) -> tuple[str, ...]:
    """The columns of 0 and 1 that a field of classes is made of; none where it is made of one column."""
    if columns in ((), (field.column,)):
        return ()
    by_name = set(map(str.strip, field.column.split(",")))
    wrong = [column for column in columns if column in by_name and not are_flags(column)]
    found = tuple(column for column in columns if column not in others and are_flags(column))
    if wrong or not found:
        got = f"{readable(wrong[0])} has others" if wrong else "no column that fits has"
        raise PackError(
            f"{field}: expected columns of 0 and 1, or -1 and 1, a column a class; {got}"
        )
    return found


def named_as_image(columns: Iterable[str], how: SourceOptions) -> list[str]:
    """The columns that are called as if they held the paths of the images; one that is a field does not."""
    taken = {each.column for each in how.fields or ()}
    free = {name: re.sub(r"[ -]", "_", name.lower()) for name in columns if name not in taken}
    paths = [name for name, plain in free.items() if plain in IMAGE_COLUMNS]
    return paths or [name for name, plain in free.items() if plain in _ID_COLUMNS]


def named(columns: Iterable[str]) -> str:
    shown = sorted(columns)
    return (
        ", ".join(map(readable, shown[:_MOST_SHOWN])) + (" ..." if len(shown) > _MOST_SHOWN else "")
        or "none"
    )
