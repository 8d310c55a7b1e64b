"""The schema of a Parquet or Arrow file -> its columns with images, labels and fields.

Hugging Face's datasets keeps its own description of the columns, the features, in the schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from fastpipe.dataset.format.fields import PICTURE_KINDS
from fastpipe.errors import PackError
from fastpipe.sources.annotations.detections import CATEGORIES
from fastpipe.sources.column_choice import (
    ColumnChoice,
    choose_columns,
    find_image_like_columns,
)
from fastpipe.sources.column_names import describe_columns, field_name
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.tables.likely import Known

# Pandas writes the numbers of rows so.
_PANDAS_INDEX = re.compile(r"__index_level_[0-9]+__")
_CHOOSE = "Choose the columns to store with --field NAME=COLUMN"
# The name of a type here -> pyarrow's tests for it. Arrow has several types for one kind of value.
_TYPE_TESTS = {
    "text": (types.is_string, types.is_large_string, types.is_string_view),
    "bytes": (
        types.is_binary,
        types.is_large_binary,
        types.is_fixed_size_binary,
        types.is_binary_view,
    ),
    "time": (types.is_timestamp, types.is_date, types.is_time, types.is_decimal),
    "int": (types.is_integer,),
    "bool": (types.is_boolean,),
    "float": (types.is_floating,),
    "list": (types.is_list, types.is_large_list, types.is_fixed_size_list),
    "struct": (types.is_struct,),
    "null": (types.is_null,),
}
# The kinds of fields for values of these types. Times, dates and decimals are kept as text.
_FIELD_KINDS = {
    "text": "text",
    "bytes": "bytes",
    "time": "text",
    "int": "int",
    "bool": "int",
    "float": "floats",
    "file": "image",
}


def choose_table_columns(
    schema: pa.Schema,
    options: SourceOptions,
    file: str,
    are_masks: Callable[[str], bool],
    name_pictures: Callable[[Sequence[str]], Sequence[str]],
) -> ColumnChoice:
    """Chooses the columns of a table as `choose_columns` does, also by the features of Hugging
    Face's datasets.

    Args:
        schema: of the table.
        options: the user's options.
        file: its name, for messages.
        are_masks: whether the first pictures of a column look like masks; only for messages.
        name_pictures: those of some columns of texts that name pictures near the table; only for
            messages.
    """
    _check_names(schema, file)
    type_names = {column.name: type_name(column.type) for column in schema}
    features = _features(schema)
    image_columns = _image_columns(type_names, features, options)
    choice = choose_columns(
        file,
        schema.names,
        options,
        image_columns,
        kind_of=lambda column: _field_kind_of_column(schema, features, file, column),
        are_flags=lambda column: type_names[column] in ("int", "bool", "float"),
        hint=_hint_for_images(image_columns, type_names, options, name_pictures),
        pick=_tell_masks(image_columns, type_names, options, are_masks),
        needs_image=not any(_has_picture_lists(column.type) for column in schema),
    )

    def check(column: str, allowed: Collection[str], expected: str) -> None:
        if type_names[column] not in allowed:
            raise _wrong_type(schema, file, column, expected)

    has_paths = False
    if choice.image:
        expected_images = "images, as bytes, a struct of bytes and path, or paths"
        check(choice.image, ("text", "bytes", "file"), expected_images)
        has_paths = type_names[choice.image] == "text"
    label = choice.label
    classes = None
    if label is not None:
        is_picture = type_names[label] in ("bytes", "file")
        kind = ":mask" if is_picture and are_masks(label) else ""
        check(
            label,
            ("text", "int", "null"),
            "labels, as whole numbers or names. Name another column with --label-column, or store "
            f"this one as a field: --field labels={label}{kind}",
        )
        if type_names[label] != "text":
            classes = _class_names(features.get(label))

    fields = []
    for field in choice.fields:
        if field.kind in PICTURE_KINDS:
            # Images and masks of a row are read in one way: from files, or from the table.
            option = f"--field {field.name}={field.column}:{field.kind}"
            if has_paths:
                expected = f"paths, as the images are, for {option}"
                check(field.column, ("text",), expected)
            else:
                check(field.column, ("bytes", "file"), f"bytes, for {option}")
        if field.kind == "classes" and not field.columns:
            names = _class_names(_feature_of_items(features.get(field.column)))
            field = field._replace(names=names or (), source_names=names or ())
        fields.append(field)
    return ColumnChoice(choice.image, label, tuple(fields), has_paths, classes)


def _image_columns(
    type_names: Mapping[str, str], features: Mapping[str, Any], options: SourceOptions
) -> list[str]:
    """The columns that may hold the images or their paths, of the most certain sort."""
    columns = []
    columns_by_type: dict[str, list[str]] = {}
    for column, name in type_names.items():
        columns_by_type.setdefault(name, []).append(column)
        if _is_feature(features.get(column), "Image"):
            columns.append(column)
    if columns:
        return columns
    for name in ("file", "bytes"):
        if name in columns_by_type:
            return columns_by_type[name]
    return find_image_like_columns(columns_by_type.get("text", ()), options)


def _hint_for_images(
    columns: Sequence[str],
    type_names: Mapping[str, str],
    options: SourceOptions,
    name_pictures: Callable[[Sequence[str]], Sequence[str]],
) -> str:
    """Names the columns with names of pictures, where no column is called like them; or ""."""
    if columns or options.image_column is not None:
        return ""
    texts = [column for column, name in type_names.items() if name == "text"]
    named = name_pictures(texts)
    if not named:
        return ""
    return f" (--image-column {' or '.join(map(quote_for_shell, named))})"


def _tell_masks(
    columns: Sequence[str],
    type_names: Mapping[str, str],
    options: SourceOptions,
    are_masks: Callable[[str], bool],
) -> str:
    """The options where one of several columns has images, and the others have masks; or ""."""
    if options.image_column is not None or options.fields is not None:
        return ""
    if len(columns) < 2 or any(type_names[column] == "text" for column in columns):
        return ""
    masks = [column for column in columns if are_masks(column)]
    if len(masks) != len(columns) - 1:
        return ""
    (image,) = set(columns) - set(masks)
    picks = f"--image-column {quote_for_shell(image)}"
    names: set[str] = set()
    for column in masks:
        name = "labels" if column == "label" else field_name(column.lower(), names)
        names.add(name)
        picks += f" --field {quote_for_shell(f'{name}={column}:mask')}"
    return f"By its images, {describe_columns(masks)} has masks: pass {picks}"


def choose_json_columns(
    schema: pa.Schema, options: SourceOptions, file: str
) -> list[str]:
    """Chooses the columns of a table of metadata whose values can stand in JSON.

    Raises:
        PackError: the user names a column with other values, or the table has one and the user
            does not name the columns.
    """
    _check_names(schema, file)
    wanted = {options.image_column, options.label_column, *options.field_columns}
    columns = []
    for column in schema:
        if _field_kind(column.type, None) not in (None, "bytes", "image"):
            columns.append(column.name)
        elif options.fields is None or column.name in wanted:
            expected = f"values that JSON can hold, in metadata of images. {_CHOOSE}"
            raise _wrong_type(schema, file, column.name, expected)
    return columns


def known_columns(schema: pa.Schema) -> dict[str, Known]:
    """The columns that may hold classes for each row: numbers, texts and lists of texts."""
    columns = {}
    for column in schema:
        if _PANDAS_INDEX.fullmatch(column.name):
            continue
        name = type_name(column.type)
        if name in ("int", "text", "bool"):
            columns[column.name] = Known()
        elif has_text_lists(column.type):
            columns[column.name] = Known(are_lists=True)
    return columns


def class_columns(schema: pa.Schema) -> list[str]:
    """The columns with a class for each row whose names the features have."""
    features = _features(schema)
    columns = []
    for column in schema.names:
        if _class_names(features.get(column)) is not None:
            columns.append(column)
    return columns


def detection_names(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Columns whose values are objects with "bbox", or lists of these -> the names of their
    classes, by the features.
    """
    features = _features(schema)
    names = {}
    for column in schema:
        data_type = storage_type(column.type)
        if type_name(data_type) == "list":
            data_type = storage_type(data_type.value_type)
        if type_name(data_type) != "struct":
            continue
        if any(part.name == "bbox" for part in data_type):
            names[column.name] = _names_of_categories(features.get(column.name))
    return names


def _names_of_categories(feature: Any) -> tuple[str, ...]:
    """The names of the classes of boxes. `feature`: of an object with boxes, or of a list."""
    parts = _feature_of_items(feature) or feature
    if not isinstance(parts, dict):
        return ()
    for name in CATEGORIES:
        part = parts.get(name)
        class_names = _class_names(part) or _class_names(_feature_of_items(part))
        if class_names:
            return class_names
    return ()


def _check_names(schema: pa.Schema, file: str) -> None:
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise PackError(
                f"{file}: expected each column once, got {name!r} several times"
            )


def _wrong_type(schema: pa.Schema, file: str, column: str, expected: str) -> PackError:
    data_type = storage_type(schema.field(column).type)
    return PackError(f"{file}: column {column!r} is {data_type}; expected {expected}")


def storage_type(data_type: pa.DataType) -> pa.DataType:
    """The type that values have without extensions and dictionaries."""
    if isinstance(data_type, pa.BaseExtensionType):
        return storage_type(data_type.storage_type)
    if types.is_dictionary(data_type):
        return storage_type(data_type.value_type)
    return data_type


def type_name(data_type: pa.DataType) -> str:
    """The name in _TYPE_TESTS for a type; "" for any other type.

    "file" stands for the struct of bytes and path that Hugging Face's Image is stored as.
    """
    data_type = storage_type(data_type)
    for name, tests in _TYPE_TESTS.items():
        if any(test(data_type) for test in tests):
            if name == "struct" and _is_file(data_type):
                return "file"
            return name
    return ""


def _is_file(struct: pa.DataType) -> bool:
    parts = {part.name: part.type for part in struct}
    has_bytes = "bytes" in parts and type_name(parts["bytes"]) == "bytes"
    return has_bytes and parts.keys() <= {"bytes", "path"}


def _field_kind_of_column(
    schema: pa.Schema, features: Mapping[str, Any], file: str, column: str
) -> str:
    kind = _field_kind(schema.field(column).type, features.get(column))
    if kind is None:
        raise _wrong_type(
            schema, file, column, f"a type that a field can hold. {_CHOOSE}"
        )
    return kind


def _field_kind(data_type: pa.DataType, feature: Any) -> str | None:
    """The kind of field for the values of a column; None if no field can hold them."""
    if _is_feature(feature, "Image"):
        return "image"
    if _has_picture_lists(data_type):
        return "images"
    name = type_name(data_type)
    if name == "list":
        item_name = type_name(storage_type(data_type).value_type)
        if item_name == "float":
            return "floats"
        if item_name == "int" and _class_names(_feature_of_items(feature)) is not None:
            return "classes"
    if name in _FIELD_KINDS:
        return _FIELD_KINDS[name]
    if _is_json(data_type):
        return "json"
    return None


def _has_picture_lists(data_type: pa.DataType) -> bool:
    """Whether the values are lists of pictures, as Hugging Face's List(Image) is stored."""
    data_type = storage_type(data_type)
    return type_name(data_type) == "list" and type_name(data_type.value_type) == "file"


def has_text_lists(data_type: pa.DataType) -> bool:
    """Whether the values are lists of texts."""
    data_type = storage_type(data_type)
    return type_name(data_type) == "list" and type_name(data_type.value_type) == "text"


def _is_json(data_type: pa.DataType) -> bool:
    """Whether JSON can hold values of a type."""
    data_type = storage_type(data_type)
    name = type_name(data_type)
    if name == "list":
        return _is_json(data_type.value_type)
    if name == "struct":
        return all(_is_json(part.type) for part in data_type)
    return name in ("null", "bool", "int", "float", "text")


def _features(schema: pa.Schema) -> dict[str, Any]:
    """Hugging Face's description of the columns, by name; empty if there is none."""
    metadata = schema.metadata or {}
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}
    # Other programs may write something else under this name.
    if not isinstance(features, dict):
        return {}
    return features


def _is_feature(feature: Any, name: str) -> bool:
    return isinstance(feature, dict) and feature.get("_type") == name


def _class_names(feature: Any) -> tuple[str, ...] | None:
    """The names of a ClassLabel; None if it is another feature."""
    if not _is_feature(feature, "ClassLabel"):
        return None
    names = feature.get("names")
    # A ClassLabel may say only how many classes there are.
    if not isinstance(names, list) or not names:
        return None
    return tuple(map(str, names))


def _feature_of_items(feature: Any) -> Any:
    """The feature of the items of a list; None if it is no list.

    The datasets library has written lists as [ITEM], as a Sequence and as a List.
    """
    if isinstance(feature, list) and len(feature) == 1:
        return feature[0]
    if isinstance(feature, dict):
        return feature.get("feature")
    return None
