"""Records with columns, and the columns that a user names -> rows, and the fields of their samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastpipe.errors import PackError, readable
from fastpipe.packing.source.column_kinds import Seen, field_value, is_no_label
from fastpipe.packing.source.field_names import FILE_NAME, MOST_FIELDS, label_column, named_as_image, own_fields
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.source.listing import Listing, SourceField
from fastpipe.packing.source.manifest import MOST_COLUMNS, Manifest
from fastpipe.packing.source.options import SourceOptions
from fastpipe.packing.source.rows import Row, list_rows, row_name

_EXPECTED_IMAGE = "path, file_name or image"


@dataclass
class _Columns:
    """What the columns of a manifest are.

    Attributes:
        image: the column with paths.
        label: the column with labels; None: there is none.
        fields: each with its column.
    """

    image: str
    label: str | None
    fields: list[tuple[SourceField, str]] = field(default_factory=list)


def list_manifest(
    manifest: Manifest,
    how: SourceOptions,
    image_root: SourcePath,
    *,
    metadata: bool = False,
    stray: Callable[[set[str]], list[str]] | None = None,
) -> Listing:
    """Lists the images that a manifest names, in no order.

    Args:
        manifest: the records.
        how: which columns count.
        image_root: the folder that paths are relative to.
        metadata: Hugging Face's ImageFolder: file_name is the image, *_file_name are further ones.
        stray: gets the paths that the rows name, and says which other files there are.

    Raises:
        PackError: there is no such column, or it is not certain which one is meant.
    """
    seen: dict[str, Seen] = {}
    records = 0
    problem = None
    for record in manifest:
        if problem is None and record.problem is not None:
            problem = f"{row_name(manifest.path.name, record.number)}: {record.problem}"
        records += record.values is not None
        for name, value in (record.values or {}).items():
            if name not in seen:
                if len(seen) == MOST_COLUMNS:
                    raise PackError(f"{_called(manifest)}: expected at most {MOST_COLUMNS} columns, got more")
                seen[name] = Seen(typed=manifest.typed)
            seen[name].add(value, record.number)
    for column in seen.values():
        if column.count < records:
            column.add(None, 0)  # a record without the key says the same as one with null
    if not seen and problem is not None:
        raise PackError(f"{_called(manifest)} holds no row that can be read; the first: {problem}")
    image = _image_column(manifest, seen, how, metadata=metadata)
    columns = _Columns(image, _label_column(manifest, seen, how, image))
    columns.fields = _fields(manifest, seen, how, columns, metadata=metadata)
    numbered = None
    if columns.label is not None and not manifest.typed:
        numbered = _numbered(manifest, columns.label, seen[columns.label].labels)
    rows = _rows(manifest, columns, numbered=numbered)
    return list_rows(image_root, rows, [each for each, _ in columns.fields], numbered=numbered, stray=stray)


def _rows(manifest: Manifest, columns: _Columns, *, numbered: bool | None) -> Iterator[Row]:
    for record in manifest:
        where = row_name(manifest.path.name, record.number)
        if record.values is None:
            yield Row("", problem=record.problem, where=where)
            continue
        path = record.values.get(columns.image)
        if not isinstance(path, str) or not path:
            got = "none" if path in (None, "") else repr(path)[:60]
            yield Row("", problem=f"column {columns.image}: expected the path of an image, got {got}", where=where)
            continue
        label = record.values.get(columns.label) if columns.label is not None else None
        if isinstance(label, str) and not label.strip():
            label = None
        elif label is not None and not manifest.typed:
            label = label.strip()
            if is_no_label(label):
                label = None
            elif numbered:
                label = int(label.partition(".")[0])
        values: dict[str, Any] = {}
        problem = None
        for each, column in columns.fields:
            try:
                values[each.name] = field_value(record.values.get(column), each.kind, typed=manifest.typed)
            except ValueError as wrong:
                problem = f"field {each.name}: {wrong}"
        yield Row(path, label, values, problem, where)


def _called(manifest: Manifest) -> str:
    return readable(str(manifest.path))


def _names(columns: Iterable[str]) -> str:
    named = sorted(columns)
    return ", ".join(map(readable, named[:20])) + (" ..." if len(named) > 20 else "") or "no columns"


def _image_column(manifest: Manifest, seen: Mapping[str, Seen], how: SourceOptions, *, metadata: bool) -> str:
    if how.image_column is not None:
        if how.image_column not in seen:
            raise PackError(f"--image-column {how.image_column}: {_called(manifest)} has {_names(seen)}")
        return how.image_column
    if not seen:
        raise PackError(f"{_called(manifest)} holds no rows; expected a row for each image")
    found = named_as_image(seen, how, metadata=metadata)
    if len(found) == 1:
        return found[0]
    if found:
        raise PackError(
            f"{_called(manifest)} has several columns that may hold the images: {_names(found)}. "
            "--image-column picks one"
        )
    expected = FILE_NAME if metadata else _EXPECTED_IMAGE
    raise PackError(
        f"{_called(manifest)}: expected a column with the paths of the images, such as {expected}; got {_names(seen)}. "
        "--image-column names it"
    )


def _label_column(manifest: Manifest, seen: Mapping[str, Seen], how: SourceOptions, image: str) -> str | None:
    if how.label_column is not None and how.label_column not in seen:
        raise PackError(f"--label-column {how.label_column}: {_called(manifest)} has {_names(seen)}")
    return label_column(seen, how, image)


def _numbered(manifest: Manifest, column: str, looks: Mapping[str, int]) -> bool | None:
    """Whether the labels of a CSV file are numbers; None: there are none."""
    there = {look: number for look, number in looks.items() if look != "none"}
    if not there:
        return None
    if there.keys() <= {"int", "whole"}:
        return True
    if "int" not in there or there.keys() <= {"int", "padded"}:
        return False
    other = next(number for look, number in there.items() if look not in ("int", "whole"))
    raise PackError(
        f"{_called(manifest)}: the labels in column {column} are numbers (line {there['int']}) and names (line "
        f"{other}); "
        'expected only one of both. JSONL tells the number 7 from the name "7"'
    )


def _fields(
    manifest: Manifest, seen: Mapping[str, Seen], how: SourceOptions, columns: _Columns, *, metadata: bool
) -> list[tuple[SourceField, str]]:
    if how.fields is None:
        others = (name for name in seen if name not in (columns.image, columns.label))
        wanted = own_fields(others, metadata=metadata)
        if len(wanted) > MOST_FIELDS:
            raise PackError(
                f"{_called(manifest)} has {len(wanted)} columns besides image and label; expected at most "
                f"{MOST_FIELDS}. --field NAME=COLUMN picks those to store"
            )
    else:
        wanted = list(how.fields)
    found = []
    for name, column, kind in wanted:
        if column not in seen:
            raise PackError(f"--field {name}={column}: {_called(manifest)} has {_names(seen)}")
        if kind == "bytes":
            raise PackError(
                f"--field {name}={column}:bytes: {_called(manifest)} holds no bytes; text or json can hold its values"
            )
        if kind is None:
            further = metadata and column.endswith("_" + FILE_NAME)
            kind = "image" if further else seen[column].kind
        found.append((SourceField(name, kind, True), column))
    return found
