"""A file with a row for each image, and what a user says of its columns -> the listing of these images."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from fastpipe.errors import PackError, readable
from fastpipe.packing.source.column_kinds import Seen
from fastpipe.packing.source.field_names import FILE_NAME, MOST_FIELDS, choose_columns, named_as_image
from fastpipe.packing.source.files import SourcePath, files_below
from fastpipe.packing.source.listing import Listing
from fastpipe.packing.source.manifest import METADATA, MOST_COLUMNS, csv_records, json_records
from fastpipe.packing.source.options import SourceOptions
from fastpipe.packing.source.rows import Record, list_rows, rows_of
from fastpipe.packing.source.tables import metadata_rows

_FURTHER = f"_{FILE_NAME}"  # of images, in metadata


def list_manifest(path: SourcePath, kind: str, how: SourceOptions, *, metadata: bool = False) -> Listing:
    """Lists the images that a file names, in no order. It is read twice: to see what its columns hold, and to list it.

    Args:
        path: of the file.
        kind: "csv", "jsonl" or "parquet".
        how: which columns count.
        metadata: it is that of Hugging Face's ImageFolder: file_name is the image, *_file_name are further ones, and
            files beside it that have no row are told.

    Raises:
        PackError: there is no such column, or it is not certain which one is meant.
    """
    name, typed = readable(str(path)), kind != "csv"
    of_text = csv_records if kind == "csv" else json_records
    records = metadata_rows(path, how) if kind == "parquet" else lambda: of_text(path)
    seen = _seen(records(), name, typed=typed)
    images, such_as = named_as_image(seen, how), "path, file_name or image"
    if metadata:
        asked = {each.column for each in how.fields or ()}
        further = [column for column in seen if column.endswith(_FURTHER) and column not in asked]
        images, such_as = [FILE_NAME] if FILE_NAME in seen else further, FILE_NAME

    def kind_of(column: str) -> str:
        return "image" if metadata and column.endswith(_FURTHER) else seen[column].kind

    columns = choose_columns(
        name,
        seen,
        how,
        images,
        kind_of,
        expected=f"with the paths of the images, such as {such_as}",
        further=_FURTHER if metadata else "",
    )
    if how.fields is None and len(columns.fields) > MOST_FIELDS:
        raise PackError(
            f"{name} has {len(columns.fields)} columns besides image and label; expected at most {MOST_FIELDS}. "
            "--field NAME=COLUMN picks those to store"
        )
    for each in columns.fields:
        if each.kind == "bytes":
            raise PackError(
                f"--field {each.name}={each.column}:bytes: {name} holds no bytes; text or json can hold its values"
            )
    numbered = None
    if columns.label is not None and not typed:
        numbered = _numbered(name, columns.label, seen[columns.label].labels)
    root = how.root_of_images() or path.parent

    def without_row(taken: Container[str]) -> list[str]:
        if not isinstance(root, Path) and not root.objects.has_lists:
            return []
        beside = (each for each in files_below(root) if each not in taken)
        return sorted(each for each in beside if each.rpartition("/")[2] not in METADATA)

    rows = rows_of(records(), columns, typed=typed, numbered=numbered)
    return list_rows(root, rows, columns.fields, numbered=numbered, stray=without_row if metadata else None)


def _seen(records: Iterable[Record], name: str, *, typed: bool) -> dict[str, Seen]:
    """The values of the columns."""
    seen: dict[str, Seen] = {}
    rows, problem = 0, None
    for record in records:
        if record.values is None:
            problem = problem or f"{record.where}: {record.problem}"
            continue
        rows += 1
        for column, value in record.values.items():
            if column not in seen:
                if len(seen) == MOST_COLUMNS:
                    raise PackError(f"{name}: expected at most {MOST_COLUMNS} columns, got more")
                seen[column] = Seen(typed=typed)
            seen[column].add(value, record.where)
    for each in seen.values():
        if each.count < rows:
            each.add(None, "")  # a record without the key says the same as one with null
    if not seen:
        first = f" that can be read; the first: {problem}" if problem else "; expected a row for each image"
        raise PackError(f"{name} holds no rows{first}")
    return seen


def _numbered(name: str, column: str, looks: Mapping[str, str]) -> bool | None:
    """Whether the labels of a CSV file are numbers; None: there are none."""
    there = {look: where for look, where in looks.items() if look != "none"}
    if not there:
        return None
    if there.keys() <= {"int", "whole"}:
        return True
    if "int" not in there or there.keys() <= {"int", "padded"}:
        return False
    other = next(where for look, where in there.items() if look not in ("int", "whole"))
    raise PackError(
        f"{name}: the labels in column {column} are numbers ({there['int']}) and names ({other}); expected only one of "
        'both. JSONL tells the number 7 from the name "7"'
    )
