"""What a user says about the source of a pack -> checked options."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from fastpipe.checks import choice
from fastpipe.errors import ConfigError, PackError, readable
from fastpipe.format.fields import KINDS, check_name
from fastpipe.packing.source.files import SourcePath, source_path

if TYPE_CHECKING:
    from fastpipe.remote.options import RemoteOptions


# Of a source; AUTO: what it certainly is.
Format = StrEnum("Format", "AUTO IMAGEFOLDER WEBDATASET PARQUET ARROW CSV JSONL COCO VOC YOLO")
_SAID = ("format", "image_column", "label_column", "split")  # what dataset.json has as it is


class FieldColumn(NamedTuple):
    """A field that a user asks for: its name, the column of the source, and its kind; None: that of the values."""

    name: str
    column: str
    kind: str | None = None

    def __str__(self) -> str:
        """As on the command line."""
        return f"--field {self.name}={self.column}" + (f":{self.kind}" if self.kind else "")


@dataclass(frozen=True)
class SourceOptions:
    """How a source is read.

    Attributes:
        format: a Format; "auto": what the source is, where that is certain.
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

    def __post_init__(self) -> None:
        choice("--format", self.format, tuple(each.value for each in Format))
        for name in ("image_column", "label_column", "split", "image_root"):
            value = getattr(self, name)
            if not isinstance(value, (str, type(None))):
                expected = "the path of a folder" if name == "image_root" else "a text"
                raise ConfigError(f"--{name.replace('_', '-')}: expected {expected}, got {value!r}")

    def root_of_images(self) -> SourcePath | None:
        """The folder that the user names; None: none is named."""
        return None if self.image_root is None else source_path(self.image_root, self.remote)

    def recorded(self) -> dict[str, Any]:
        """For dataset.json: what differs from the defaults. Not the image root: it may be elsewhere next time."""
        said = {name: value for name in _SAID if (value := getattr(self, name)) not in (None, "auto")}
        return said if self.fields is None else {**said, "fields": [list(field) for field in self.fields]}


def recorded_options(said: Mapping[str, Any], image_root: str | None = None) -> SourceOptions:
    """The options that dataset.json has of a source: see `SourceOptions.recorded`."""
    fields = None if said.get("fields") is None else tuple(FieldColumn(*field) for field in said["fields"])
    others = {name: said[name] for name in _SAID if name in said}
    return SourceOptions(**others, fields=fields, image_root=image_root)


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
    return SourceOptions(fields=None if fields is None else tuple(_fields(fields)), image_root=root, **others)


def _fields(fields: object) -> Iterable[FieldColumn]:
    given: Any = fields.items() if isinstance(fields, Mapping) else None
    if given is None and isinstance(fields, Iterable) and not isinstance(fields, (str, bytes)):
        texts = list(fields)
        if all(isinstance(each, str) for each in texts):
            given = [(name, column if said else name) for name, said, column in (each.partition("=") for each in texts)]
    if given is None:
        raise ConfigError(
            "fields: expected names of fields and their columns, such as {'caption': 'text'} or ['caption=text'], got "
            f"{fields!r}"
        )
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
        yield FieldColumn(name, before, kind) if colon and kind in KINDS else FieldColumn(name, column)


def pick_split(split: str | None, there: Collection[str], root: SourcePath, what: str = "the splits") -> str:
    """The split that a user names, or the only one there is; "" is what says none. PackError: neither is there."""
    for each in there:
        if each == split or (split is None and len(there) == 1):
            return each
    names = ", ".join(readable(name) or "(files that say none)" for name in sorted(there)) or "(none)"
    asked = "" if split is None else f"--split {split}: "
    raise PackError(f"{asked}{readable(str(root))} has {what} {names}: --split picks one")
