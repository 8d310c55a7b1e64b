"""A folder with metadata.jsonl, metadata.csv or metadata.parquet, as Hugging Face's ImageFolder has it -> a listing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fastpipe.errors import PackError, readable
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.source.listing import Listing
from fastpipe.packing.source.manifest import CsvFile, JsonLines, Manifest, Record
from fastpipe.packing.source.manifest_rows import list_manifest
from fastpipe.packing.source.options import SourceOptions
from fastpipe.packing.source.table_splits import PARQUET
from fastpipe.packing.source.tables import table_opener

METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")


class ParquetRows(Manifest):
    """A Parquet file of values and paths, read as a stream. Times and decimals are texts; NaN is a missing value."""

    def __init__(self, path: SourcePath, how: SourceOptions) -> None:
        super().__init__(path)
        self._how = how

    def __iter__(self) -> Iterator[Record]:
        number = 0
        with table_opener(PARQUET)(self.path) as file:
            from fastpipe.packing.source.table_cells import column_values
            from fastpipe.packing.source.table_columns import columns_of_rows

            names = columns_of_rows(file.schema, self._how, readable(str(self.path)))
            for group, _ in file.scan(None):
                for batch in file.read(group, names):
                    with file.reading(f"rows from {number:,} on"):
                        columns = [column_values(batch.column(name)) for name in names]
                    for cells in zip(*columns, strict=True):
                        values = (None if cell != cell else cell for cell in cells)
                        yield Record(number, dict(zip(names, values, strict=True)))
                        number += 1


def metadata_in(folder: SourcePath) -> list[str]:
    """The names of the metadata files of a folder."""
    return [name for name in METADATA if (folder / name).is_file()]


def list_metadata(path: SourcePath, how: SourceOptions) -> Listing:
    """Lists the images of a metadata file; files beside it that have no row are told.

    Raises:
        PackError: there is more than one such file, or it is damaged.
    """
    found = metadata_in(path.parent)
    if len(found) > 1:
        raise PackError(
            f"{readable(str(path.parent))} holds {' and '.join(found)}; expected one of them. Pass the file with "
            f"--format {'csv' if 'metadata.csv' in found else 'jsonl'} to pack what it lists"
        )
    root = how.root_of_images() or path.parent
    return list_manifest(
        manifest_of(path, how), how, root, metadata=True, stray=lambda taken: _without_row(root, taken)
    )


def manifest_of(path: SourcePath, how: SourceOptions) -> Manifest:
    """The records of a file, by its ending."""
    ending = path.suffix.lower()
    if ending == ".parquet":
        return ParquetRows(path, how)
    return CsvFile(path) if ending in (".csv", ".tsv", ".tab") else JsonLines(path)


def _without_row(root: SourcePath, taken: set[str]) -> list[str]:
    """The files in a folder that no row names, without the metadata files."""
    if not isinstance(root, Path):
        below = sorted(root.files_below()) if root.objects.has_lists else []
        return [path for path in below if path not in taken and path.rpartition("/")[2] not in METADATA]
    stray = []
    for folder, folders, files in os.walk(root):
        folders.sort()
        inner = os.path.relpath(folder, root).replace(os.sep, "/")
        for file in sorted(files):
            path = file if inner == "." else f"{inner}/{file}"
            if path not in taken and file not in METADATA:
                stray.append(path)
    return stray
