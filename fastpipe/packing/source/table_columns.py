"""The columns of a table, and what a user says of them -> the image, the label and the fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as types

from fastpipe.errors import PackError
from fastpipe.packing.source.field_names import label_column, named_as_image, own_fields
from fastpipe.packing.source.listing import SourceField
from fastpipe.packing.source.options import SourceOptions

_PICTURES = ("image", "mask")


class TableField(NamedTuple):
    """A column that is stored.

    Attributes:
        name, kind: of the field.
        column: of the table.
        names: of the classes that its numbers stand for.
    """

    name: str
    kind: str
    column: str
    names: tuple[str, ...] = ()

    def as_source_field(self) -> SourceField:
        """As a listing has it."""
        return SourceField(self.name, self.kind, names=self.names)


class TableColumns(NamedTuple):
    """What is read of a table.

    Attributes:
        image: column with the images.
        has_paths: it holds paths of files, not their bytes.
        label: column with the labels; None: there is none.
        classes: names of the classes that the label's numbers stand for; None: nothing says it.
        named: labels are names.
        fields: columns that are stored.
    """

    image: str
    has_paths: bool
    label: str | None
    classes: tuple[str, ...] | None
    named: bool
    fields: tuple[TableField, ...]

    def read(self) -> list[str]:
        """Names of the columns that a sample is made of; its label is known before."""
        return list(dict.fromkeys([self.image, *(field.column for field in self.fields)]))


def choose_columns(schema: pa.Schema, how: SourceOptions, file: str) -> TableColumns:
    """Finds the columns that are asked for, or that are certain.

    Raises:
        PackError: a column is missing, or there is a choice that only the user can make.
    """
    _check_names(schema, file)
    features = _features(schema)
    image = how.image_column if how.image_column is not None else _only_image(schema, features, how, file)
    kind = storage(_type(schema, image, "--image-column", file))
    if not (_is_text(kind) or _is_binary(kind) or _is_file(kind)):
        raise PackError(
            f"{file}: --image-column {image}: expected bytes, a struct of bytes and path, or paths; the column is "
            f"{kind}"
        )
    label = label_column(schema.names, how, image)
    classes, named = None, False
    if label is not None:
        held = storage(_type(schema, label, "--label-column", file))
        named = _is_text(held)
        if not (named or types.is_integer(held) or types.is_null(held)):
            raise PackError(
                f"{file}: the labels in column {label!r} are {held}; expected whole numbers or names. Name another "
                f"column with --label-column, or store this one as a field: --field labels={label}"
            )
        classes = None if named else _class_names(features.get(label))
    has_paths = _is_text(kind)
    fields = _fields(schema, features, how, {image, label}, file, has_paths=has_paths)
    return TableColumns(image, has_paths, label, classes, named, fields)


def columns_of_rows(schema: pa.Schema, how: SourceOptions, file: str) -> list[str]:
    """The columns of a table whose values can stand in a manifest, as JSON has them.

    Raises:
        PackError: another one is asked for.
    """
    _check_names(schema, file)
    odd = [each.name for each in schema if _kind(storage(each.type), None) in (None, "bytes", "image")]
    asked = {how.image_column, how.label_column, *(each.column for each in how.fields or ())}
    if wrong := [name for name in odd if how.fields is None or name in asked]:
        raise PackError(
            f"{file}: column {wrong[0]!r} is {schema.field(wrong[0]).type}, which metadata of images cannot hold. "
            "Choose the columns to store with --field NAME=COLUMN"
        )
    return [name for name in schema.names if name not in odd]


def storage(kind: pa.DataType) -> pa.DataType:
    """The type that holds a column's values: not an extension's, nor a dictionary's."""
    if isinstance(kind, pa.BaseExtensionType):
        return storage(kind.storage_type)
    return storage(kind.value_type) if types.is_dictionary(kind) else kind


def is_shown_as_text(kind: pa.DataType) -> bool:
    """Times, dates and decimals: kept as text."""
    return bool(types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind) or types.is_decimal(kind))


def _check_names(schema: pa.Schema, file: str) -> None:
    if twice := [name for name in schema.names if schema.names.count(name) > 1]:
        raise PackError(f"{file}: expected each column once, got {twice[0]!r} several times")


def _type(schema: pa.Schema, column: str, option: str, file: str) -> pa.DataType:
    if column not in schema.names:
        raise PackError(f"{file}: {option} {column}: no such column; expected one of {', '.join(schema.names)}")
    return schema.field(column).type


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
    if not _is_feature(feature, "ClassLabel"):
        return None
    names = feature.get("names")
    return tuple(map(str, names)) if isinstance(names, list) and names else None


def _only_image(schema: pa.Schema, features: Mapping[str, Any], how: SourceOptions, file: str) -> str:
    said: list[str] = [name for name in schema.names if _is_feature(features.get(name), "Image")]
    held: list[str] = [name for name in schema.names if _is_file(storage(schema.field(name).type))]
    bare: list[str] = [name for name in schema.names if _is_binary(storage(schema.field(name).type))]
    texts: list[str] = [name for name in schema.names if _is_text(storage(schema.field(name).type))]
    found = said or held or bare or named_as_image(texts, how)
    if len(found) == 1:
        return found[0]
    if found:
        raise PackError(f"{file}: several columns hold images: {', '.join(found)}. Choose one with --image-column")
    raise PackError(
        f"{file}: expected a column with images, as bytes or as a struct of bytes and path; got the columns "
        f"{', '.join(schema.names) or '(none)'}. If one holds the paths of images, name it with --image-column"
    )


def _fields(
    schema: pa.Schema,
    features: Mapping[str, Any],
    how: SourceOptions,
    taken: set[str | None],
    file: str,
    *,
    has_paths: bool,
) -> tuple[TableField, ...]:
    asked = how.fields
    if asked is None:
        asked = tuple(own_fields(name for name in schema.names if name not in taken))
    found = []
    for name, column, kind in asked:
        held = storage(_type(schema, column, f"--field {name}={column}", file))
        feature = features.get(column)
        kind = kind or _kind(held, feature)
        if kind is None:
            raise PackError(
                f"{file}: column {column!r} is {held}, which no field can hold. Choose the columns to store with "
                "--field NAME=COLUMN"
            )
        if has_paths and kind == "bytes":
            raise PackError(
                f"{file}: column {column!r} holds bytes, which a table of paths cannot store. Choose the columns to "
                "store with --field NAME=COLUMN"
            )
        fits = _is_text(held) if has_paths else _is_binary(held) or _is_file(held)
        if kind in _PICTURES and not fits:
            expected = "paths, as the images are" if has_paths else "bytes"
            raise PackError(f"{file}: --field {name}={column}:{kind}: expected {expected}, the column is {held}")
        names = _class_names(_items(feature)) if kind == "classes" else None
        found.append(TableField(name, kind, column, names or ()))
    return tuple(found)


def _items(feature: Any) -> Any:
    """The feature of a list's items: datasets has written lists in three ways."""
    if isinstance(feature, list) and len(feature) == 1:
        return feature[0]
    return feature.get("feature") if isinstance(feature, dict) else None


def _kind(kind: pa.DataType, feature: Any) -> str | None:
    """The kind of field that a column's values are; None: of none."""
    if _is_feature(feature, "Image") or _is_file(kind):
        return "image"
    if _is_binary(kind):
        return "bytes"
    if _is_text(kind) or is_shown_as_text(kind):
        return "text"
    if types.is_integer(kind) or types.is_boolean(kind):
        return "int"
    if types.is_floating(kind):
        return "floats"
    if _is_list(kind):
        items = storage(kind.value_type)
        if types.is_floating(items):
            return "floats"
        if types.is_integer(items) and _class_names(_items(feature)) is not None:
            return "classes"
    return "json" if _is_json(kind) else None


def _is_json(kind: pa.DataType) -> bool:
    kind = storage(kind)
    if types.is_struct(kind):
        return all(_is_json(kind.field(at).type) for at in range(kind.num_fields))
    if _is_list(kind):
        return _is_json(kind.value_type)
    plain = types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    return bool(plain or _is_text(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    fixed = types.is_fixed_size_binary(kind) or types.is_binary_view(kind)
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or fixed)


def _is_file(kind: pa.DataType) -> bool:
    """Whether it is the struct that Hugging Face's Image is stored as."""
    if not types.is_struct(kind):
        return False
    parts = {kind.field(at).name: kind.field(at).type for at in range(kind.num_fields)}
    return "bytes" in parts and parts.keys() <= {"bytes", "path"} and _is_binary(storage(parts["bytes"]))
