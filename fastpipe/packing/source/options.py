"""What a user says about the source of a pack -> checked options."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from fastpipe.checks import choice
from fastpipe.errors import ConfigError
from fastpipe.format.fields import KINDS, check_name
from fastpipe.packing.source.files import SourcePath, source_path

if TYPE_CHECKING:
    from fastpipe.remote.options import RemoteOptions


class Format(StrEnum):
    """What a source is; "auto": what it certainly is."""

    AUTO = "auto"
    IMAGEFOLDER = "imagefolder"
    WEBDATASET = "webdataset"
    PARQUET = "parquet"
    ARROW = "arrow"
    CSV = "csv"
    JSONL = "jsonl"
    COCO = "coco"
    VOC = "voc"
    YOLO = "yolo"


FORMATS = tuple(each.value for each in Format)

_FIELD = re.compile(r"(?P<column>.*?)(?::(?P<kind>[a-z]+))?", re.DOTALL)


class FieldColumn(NamedTuple):
    """A field that a user asks for.

    Attributes:
        name: of the field.
        column: of the source.
        kind: of the field; None: that of the column's values.
    """

    name: str
    column: str
    kind: str | None = None


@dataclass(frozen=True)
class SourceOptions:
    """How a source is read.

    Attributes:
        format: one of FORMATS; "auto": what the source is, where that is certain.
        image_column: the column with images or their paths; None: the only one there is.
        label_column: the column with labels; None: "label", if there is one.
        fields: of the samples; None: all that the source has.
        image_root: the folder that paths of images are relative to; None: that of the file they stand in.
        split: the part of the source that is packed, such as "train"; None: it has one.
        remote: how a URL is read; None: as by default.
    """

    format: str = "auto"
    image_column: str | None = None
    label_column: str | None = None
    fields: tuple[FieldColumn, ...] | None = None
    image_root: str | None = None
    split: str | None = None
    remote: RemoteOptions | None = None

    def root_of_images(self) -> SourcePath | None:
        """The folder that the user names; None: none is named."""
        return None if self.image_root is None else source_path(self.image_root, self.remote)

    def recorded(self) -> dict[str, Any]:
        """For dataset.json: what differs from the defaults. Not the image root: it may be elsewhere next time."""
        said = {name: getattr(self, name) for name in ("format", "image_column", "label_column", "split")}
        said = {name: value for name, value in said.items() if value not in (None, "auto")}
        return said if self.fields is None else {**said, "fields": [list(field) for field in self.fields]}


def recorded_options(
    said: Mapping[str, Any], image_root: str | None = None, remote: RemoteOptions | None = None
) -> SourceOptions:
    """The options that dataset.json has of a source: see `SourceOptions.recorded`."""
    fields = said.get("fields")
    taken = None if fields is None else tuple(FieldColumn(*field) for field in fields)
    others = {name: said[name] for name in ("format", "image_column", "label_column", "split") if name in said}
    return SourceOptions(**others, fields=taken, image_root=image_root, remote=remote)


def source_options(
    *,
    format: str = "auto",
    image_column: str | None = None,
    label_column: str | None = None,
    fields: Mapping[str, str] | Sequence[str] | None = None,
    image_root: str | os.PathLike[str] | None = None,
    split: str | None = None,
    remote: RemoteOptions | None = None,
) -> SourceOptions:
    """The options of a source, checked.

    Args:
        fields: name of the field -> COLUMN or COLUMN:KIND; or texts NAME=COLUMN, NAME=COLUMN:KIND or NAME.

    Raises:
        ConfigError: a value is wrong.
    """
    if not isinstance(image_root, (str, os.PathLike, type(None))):
        raise ConfigError(f"--image-root: expected the path of a folder, got {image_root!r}")
    given = None if fields is None else _columns(fields)
    return SourceOptions(
        format=choice("--format", format, FORMATS),
        image_column=_text("--image-column", image_column),
        label_column=_text("--label-column", label_column),
        fields=None if given is None else tuple(_field(*each) for each in given.items()),
        image_root=None if image_root is None else os.fspath(image_root),
        split=_text("--split", split),
        remote=remote,
    )


def _columns(fields: object) -> dict[str, str]:
    """Name -> COLUMN or COLUMN:KIND, not yet checked."""
    if isinstance(fields, Mapping):
        return dict(fields)
    listed = list(fields) if isinstance(fields, Iterable) and not isinstance(fields, (str, bytes)) else None
    if listed is None or not all(isinstance(each, str) for each in listed):
        raise ConfigError(
            "fields: expected names of fields and their columns, such as {'caption': 'text'} or ['caption=text'], got "
            f"{fields!r}"
        )
    columns: dict[str, str] = {}
    for name, column in map(_split, listed):
        if name in columns:
            raise ConfigError(
                f"--field {name}={column}: the field {name} is {columns[name]} already; expected each name once"
            )
        columns[name] = column
    return columns


def _split(text: str) -> tuple[str, str]:
    name, separator, column = text.partition("=")
    return name, column if separator else name


def _field(name: str, column: str) -> FieldColumn:
    try:
        check_name(name)
    except ValueError as problem:
        raise ConfigError(f"--field {name}={column}: {problem}") from None
    if not isinstance(column, str):
        raise ConfigError(f"--field {name}: expected the name of a column, got {column!r}")
    match = _FIELD.fullmatch(column)
    assert match is not None  # it matches any text
    kind = match["kind"]
    return FieldColumn(name, column) if kind not in KINDS else FieldColumn(name, match["column"], kind)


def _text(name: str, value: str | None) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{name}: expected a text, got {value!r}")
    return value
