"""The columns of a table, and what a user says -> image, label and fields; a batch of its rows -> their cells."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from fastpipe.errors import PackError
from fastpipe.packing.source.field_names import Columns, choose_columns, named_as_image
from fastpipe.packing.source.options import SourceOptions

_PICTURES = ("image", "mask")
_CHOOSE = "Choose the columns to store with --field NAME=COLUMN"
# Each type's name -> its test; times, dates and decimals are kept as text.
_TYPES: Mapping[str, Sequence[Callable[[pa.DataType], bool]]] = {
    "text": (types.is_string, types.is_large_string, types.is_string_view),
    "bytes": (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view),
    "time": (types.is_timestamp, types.is_date, types.is_time, types.is_decimal),
    "int": (types.is_integer,),
    "bool": (types.is_boolean,),
    "float": (types.is_floating,),
    "list": (types.is_list, types.is_large_list, types.is_fixed_size_list),
    "struct": (types.is_struct,),
    "null": (types.is_null,),
}
# The kind of field that values of a type are; of others, see `_kind`.
_KINDS = {
    "file": "image",
    "bytes": "bytes",
    "text": "text",
    "time": "text",
    "int": "int",
    "bool": "int",
    "float": "floats",
}


def columns_of_table(schema: pa.Schema, how: SourceOptions, file: str) -> Columns:
    """Finds the columns that are asked for, or that are certain.

    Raises:
        PackError: a column is missing, or there is a choice that only the user can make.
    """
    _check_names(schema, file)
    held = {each.name: _held(each.type) for each in schema}
    features = _features(schema)
    bearing: list[list[str]] = [
        [name for name in held if _is_feature(features.get(name), "Image")],
        [name for name, kind in held.items() if kind == "file"],
        [name for name, kind in held.items() if kind == "bytes"],
        named_as_image([name for name, kind in held.items() if kind == "text"], how),
    ]

    def kind_of(column: str) -> str:
        kind = _kind(schema.field(column).type, features.get(column))
        if kind is None:
            raise PackError(f"{file}: column {column!r} is {_type(column)}, which no field can hold. {_CHOOSE}")
        return kind

    def _type(column: str) -> pa.DataType:
        return _storage(schema.field(column).type)

    chosen = choose_columns(
        file,
        schema.names,
        how,
        next(filter(None, bearing), []),
        kind_of,
        expected="with images, as bytes or as a struct of bytes and path, or with their paths",
    )
    image, label = chosen.image, chosen.label
    if held[image] not in ("text", "bytes", "file"):
        raise PackError(
            f"{file}: --image-column {image}: expected bytes, a struct of bytes and path, or paths; the column is "
            f"{_type(image)}"
        )
    if label is not None and held[label] not in ("text", "int", "null"):
        raise PackError(
            f"{file}: the labels in column {label!r} are {_type(label)}; expected whole numbers or names. Name another "
            f"column with --label-column, or store this one as a field: --field labels={label}"
        )
    has_paths = held[image] == "text"
    fields = []
    for each in chosen.fields:
        if each.kind in _PICTURES and held[each.column] not in (("text",) if has_paths else ("bytes", "file")):
            expected = "paths, as the images are" if has_paths else "bytes"
            raise PackError(
                f"{file}: --field {each.name}={each.column}:{each.kind}: expected {expected}, the column is "
                f"{_type(each.column)}"
            )
        names = _class_names(_items(features.get(each.column))) if each.kind == "classes" else None
        fields.append(each._replace(names=names or ()))
    classes = None if label is None or held[label] == "text" else _class_names(features.get(label))
    return Columns(image, label, tuple(fields), has_paths, classes)


def columns_of_rows(schema: pa.Schema, how: SourceOptions, file: str) -> list[str]:
    """The columns of a table whose values can stand in a manifest, as JSON has them.

    Raises:
        PackError: another one is asked for.
    """
    _check_names(schema, file)
    odd = [each.name for each in schema if _kind(each.type, None) in (None, "bytes", "image")]
    asked = {how.image_column, how.label_column, *(each.column for each in how.fields or ())}
    if wrong := [name for name in odd if how.fields is None or name in asked]:
        raise PackError(
            f"{file}: column {wrong[0]!r} is {schema.field(wrong[0]).type}, which metadata of images cannot hold. "
            f"{_CHOOSE}"
        )
    return [name for name in schema.names if name not in odd]


def _check_names(schema: pa.Schema, file: str) -> None:
    if twice := [name for name in schema.names if schema.names.count(name) > 1]:
        raise PackError(f"{file}: expected each column once, got {twice[0]!r} several times")


def _storage(kind: pa.DataType) -> pa.DataType:
    """The type that holds a column's values: not an extension's, nor a dictionary's."""
    if isinstance(kind, pa.BaseExtensionType):
        return _storage(kind.storage_type)
    return _storage(kind.value_type) if types.is_dictionary(kind) else kind


def _held(kind: pa.DataType) -> str:
    """What values of a type are: "file" is the struct that Hugging Face's Image is stored as; "": none of `_TYPES`."""
    kind = _storage(kind)
    name = next((name for name, tests in _TYPES.items() if any(test(kind) for test in tests)), "")
    if name == "struct":
        parts = {part.name: part.type for part in kind}
        if "bytes" in parts and parts.keys() <= {"bytes", "path"} and _held(parts["bytes"]) == "bytes":
            return "file"
    return name


def _kind(kind: pa.DataType, feature: Any) -> str | None:
    """The kind of field that a column's values are; None: of none."""
    held = "file" if _is_feature(feature, "Image") else _held(kind)
    if held == "list":
        items = _held(_storage(kind).value_type)
        if items == "float":
            return "floats"
        if items == "int" and _class_names(_items(feature)) is not None:
            return "classes"
    return _KINDS.get(held) or ("json" if _is_json(kind) else None)


def _is_json(kind: pa.DataType) -> bool:
    kind = _storage(kind)
    held = _held(kind)
    if held == "struct":
        return all(_is_json(part.type) for part in kind)
    return _is_json(kind.value_type) if held == "list" else held in ("null", "bool", "int", "float", "text")


def _features(schema: pa.Schema) -> Mapping[str, Any]:
    """What Hugging Face's datasets says of the columns."""
    try:
        found = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_feature(feature: Any, name: str) -> bool:
    return isinstance(feature, dict) and feature.get("_type") == name


def _class_names(feature: Any) -> tuple[str, ...] | None:
    names = feature.get("names") if _is_feature(feature, "ClassLabel") else None
    return tuple(map(str, names)) if isinstance(names, list) and names else None


def _items(feature: Any) -> Any:
    """The feature of a list's items: datasets has written lists in three ways."""
    if isinstance(feature, list) and len(feature) == 1:
        return feature[0]
    return feature.get("feature") if isinstance(feature, dict) else None


@dataclass(frozen=True)
class Cells:
    """Rows that follow one another, as columns.

    Attributes:
        sizes: bytes of each image; 0 where there is none.
        images: the images' bytes.
        paths: what the table calls the images; None: it does not.
        fields: the columns of the fields.
    """

    sizes: Sequence[int]
    images: pa.Array
    paths: pa.Array | None
    fields: tuple[pa.Array, ...]

    def image(self, at: int) -> bytes | None:
        """The image of a row."""
        data: bytes | None = self.images[at].as_py()
        return data

    def image_start(self, at: int, size_bytes: int) -> bytes:
        """The first bytes of the image of a row, which has one; without a copy of the others."""
        return bytes(self.images[at].as_buffer()[:size_bytes])

    def path(self, at: int) -> str | None:
        """What the table calls the image of a row."""
        try:
            name: str | None = None if self.paths is None else self.paths[at].as_py()
        except UnicodeDecodeError:
            return None
        return name

    def value(self, field: int, at: int) -> Any:
        """The value of a field in a row, as Python has it.

        Raises:
            ValueError: it cannot be one, such as text that is no UTF-8.
        """
        return self.fields[field][at].as_py()


def cells(batch: pa.RecordBatch, columns: Columns) -> Cells:
    """The cells of a batch.

    Raises:
        pyarrow.ArrowException: a value of its type cannot be shown as text.
    """
    images, paths = _files(batch.column(columns.image))
    fields = [
        _files(batch.column(each.column))[0] if each.kind in _PICTURES else _values(batch.column(each.column))
        for each in columns.fields
    ]
    return Cells(pc.fill_null(pc.binary_length(images), 0).to_pylist(), images, paths, tuple(fields))


def column_values(column: pa.Array) -> list[Any]:
    """The values of a column as Python has them; times and decimals as text."""
    found: list[Any] = _values(column).to_pylist()
    return found


def _files(column: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Bytes and paths of a column with images."""
    column = _values(column)
    if not types.is_struct(column.type):
        return column, None
    parts = dict(zip([part.name for part in column.type], column.flatten(), strict=True))
    return _values(parts["bytes"]), _values(parts["path"]) if "path" in parts else None


def _values(column: pa.Array) -> pa.Array:
    """A column in a type that holds its values; times and decimals as text."""
    if isinstance(column, pa.ExtensionArray):
        return _values(column.storage)
    if types.is_dictionary(column.type):
        return _values(column.dictionary_decode())
    wide = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(column.type)
    if wide is None and _held(column.type) == "time":
        wide = pa.string()
    return column if wide is None else column.cast(wide)
