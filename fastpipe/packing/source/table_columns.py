"""The columns of a table, and what a user says -> image, label and fields; a batch of its rows -> their cells."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from fastpipe.errors import PackError
from fastpipe.packing.source.field_names import Columns, choose_columns, named_as_image
from fastpipe.packing.source.options import SourceOptions

_PICTURES = ("image", "mask")
_CHOOSE = "Choose the columns to store with --field NAME=COLUMN"
# Each type's name -> the kind of field that its values are, and its tests. Times, dates and decimals are kept as text.
_TYPES: Mapping[str, tuple[str | None, tuple[Callable[[pa.DataType], bool], ...]]] = {
    "text": ("text", (types.is_string, types.is_large_string, types.is_string_view)),
    "bytes": ("bytes", (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)),
    "time": ("text", (types.is_timestamp, types.is_date, types.is_time, types.is_decimal)),
    "int": ("int", (types.is_integer,)),
    "bool": ("int", (types.is_boolean,)),
    "float": ("floats", (types.is_floating,)),
    "list": (None, (types.is_list, types.is_large_list, types.is_fixed_size_list)),
    "struct": (None, (types.is_struct,)),
    "null": (None, (types.is_null,)),
}


def columns_of_table(schema: pa.Schema, how: SourceOptions, file: str) -> Columns:
    """See `choose_columns`; what Hugging Face's datasets says of the columns counts, too."""
    _check_names(schema, file)
    held = {each.name: _held(each.type) for each in schema}
    features = _features(schema)

    def of_type(wanted: str) -> list[str]:
        return [name for name, type_name in held.items() if type_name == wanted]

    def kind_of(column: str) -> str:
        if (kind := _kind(schema.field(column).type, features.get(column))) is not None:
            return kind
        raise _wrong(schema, file, column, f"a type that a field can hold. {_CHOOSE}")

    def check(column: str, allowed: Collection[str], expected: str) -> None:
        if held[column] not in allowed:
            raise _wrong(schema, file, column, expected)

    images = [name for name in held if _is_feature(features.get(name), "Image")] or of_type("file") or of_type("bytes")
    images = images or named_as_image(of_type("text"), how)
    image, label, asked, *_ = choose_columns(file, schema.names, how, images, kind_of)
    has_paths = held[image] == "text"
    check(image, ("text", "bytes", "file"), "images, as bytes, a struct of bytes and path, or paths")
    if label is not None:
        others = f"Name another column with --label-column, or store this one as a field: --field labels={label}"
        check(label, ("text", "int", "null"), f"labels, as whole numbers or names. {others}")
    types_, what = (("text",), "paths, as the images are") if has_paths else (("bytes", "file"), "bytes")
    for each in asked:
        if each.kind in _PICTURES:
            check(each.column, types_, f"{what}, for --field {each.name}={each.column}:{each.kind}")
    fields = (
        each._replace(names=_class_names(_items(features.get(each.column))) or ()) if each.kind == "classes" else each
        for each in asked
    )
    classes = None if label is None or held[label] == "text" else _class_names(features.get(label))
    return Columns(image, label, tuple(fields), has_paths, classes)


def columns_of_rows(schema: pa.Schema, how: SourceOptions, file: str) -> list[str]:
    """The columns of a table whose values can stand in a manifest, as JSON has them."""
    _check_names(schema, file)
    odd = [each.name for each in schema if _kind(each.type, None) in (None, "bytes", "image")]
    asked = {how.image_column, how.label_column, *(each.column for each in how.fields or ())}
    if wrong := [name for name in odd if how.fields is None or name in asked]:
        raise _wrong(schema, file, wrong[0], f"values that JSON can hold, in metadata of images. {_CHOOSE}")
    return [name for name in schema.names if name not in odd]


def _check_names(schema: pa.Schema, file: str) -> None:
    if twice := [name for name in schema.names if schema.names.count(name) > 1]:
        raise PackError(f"{file}: expected each column once, got {twice[0]!r} several times")


def _wrong(schema: pa.Schema, file: str, column: str, expected: str) -> PackError:
    return PackError(f"{file}: column {column!r} is {_storage(schema.field(column).type)}; expected {expected}")


def _storage(kind: pa.DataType) -> pa.DataType:
    """The type that holds a column's values: not an extension's, nor a dictionary's."""
    if isinstance(kind, pa.BaseExtensionType):
        return _storage(kind.storage_type)
    return _storage(kind.value_type) if types.is_dictionary(kind) else kind


def _held(kind: pa.DataType) -> str:
    """What values of a type are: "file" is the struct that Hugging Face's Image is stored as; "": none of `_TYPES`."""
    kind = _storage(kind)
    name = next((name for name, (_, tests) in _TYPES.items() if any(test(kind) for test in tests)), "")
    parts = {part.name: part.type for part in kind} if name == "struct" else {}
    is_file = "bytes" in parts and parts.keys() <= {"bytes", "path"} and _held(parts["bytes"]) == "bytes"
    return "file" if is_file else name


def _kind(kind: pa.DataType, feature: Any) -> str | None:
    """The kind of field that a column's values are; None: of none."""
    held = _held(kind)
    if held == "file" or _is_feature(feature, "Image"):
        return "image"
    items = _held(_storage(kind).value_type) if held == "list" else ""
    if items == "float":
        return "floats"
    if items == "int" and _class_names(_items(feature)) is not None:
        return "classes"
    found, _ = _TYPES.get(held, (None, ()))
    return found or ("json" if _is_json(kind) else None)


def _is_json(kind: pa.DataType) -> bool:
    kind = _storage(kind)
    held = _held(kind)
    if held == "struct":
        return all(_is_json(part.type) for part in kind)
    return _is_json(kind.value_type) if held == "list" else held in ("null", "bool", "int", "float", "text")


def _features(schema: pa.Schema) -> Mapping[str, Any]:
    """What Hugging Face's datasets says of the columns."""
    try:
        return {**json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]}
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}


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


class Cells:
    """Rows that follow one another, as columns; `sizes` are the bytes of each image, 0 where there is none."""

    def __init__(self, batch: pa.RecordBatch, columns: Columns) -> None:
        self._images, self._paths = _files(batch.column(columns.image))
        self.sizes: list[int] = pc.fill_null(pc.binary_length(self._images), 0).to_pylist()
        self._fields = [
            _files(batch.column(each.column))[0] if each.kind in _PICTURES else _values(batch.column(each.column))
            for each in columns.fields
        ]

    def image(self, at: int) -> bytes | None:
        return cast("bytes | None", self._images[at].as_py())

    def image_start(self, at: int, size_bytes: int) -> bytes:
        """The first bytes of the image of a row, which has one; without a copy of the others."""
        return bytes(self._images[at].as_buffer()[:size_bytes])

    def path(self, at: int) -> str | None:
        """What the table calls the image of a row; None: nothing."""
        try:
            return None if self._paths is None else cast("str | None", self._paths[at].as_py())
        except UnicodeDecodeError:
            return None

    def value(self, field: int, at: int) -> Any:
        """The value of a field in a row, as Python has it; ValueError: there is none, such as text that is no UTF-8."""
        return self._fields[field][at].as_py()


def column_values(column: pa.Array) -> list[Any]:
    """The values of a column as Python has them; times and decimals as text."""
    return cast("list[Any]", _values(column).to_pylist())


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
    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    wide = pa.string() if _held(column.type) == "time" else views.get(column.type)
    return column if wide is None else column.cast(wide)
