"""A folder with metadata.jsonl, metadata.csv or metadata.parquet, as Hugging Face's ImageFolder has it -> a listing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fastpipe.errors import PackError, readable
from fastpipe.packing.source.files import SourcePath, open_binary
from fastpipe.packing.source.listing import Listing
from fastpipe.packing.source.manifest import CsvFile, JsonLines, Record
from fastpipe.packing.source.manifest_rows import Manifest, list_manifest
from fastpipe.packing.source.options import SourceOptions

METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")


class ParquetRows:
    """A Parquet file of values and paths, read a batch of rows at a time.

    Attributes:
        path: of the file.
        typed: True: its values have types.
    """

    typed = True

    def __init__(self, path: SourcePath) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Record]:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as problem:
            raise PackError(
                f"{readable(str(self.path))} needs pyarrow ({problem}): pip install 'fastpipe[parquet]'"
            ) from problem
        number = 0
        try:
            with open_binary(self.path) as opened, pyarrow.parquet.ParquetFile(opened) as file:
                for batch in file.iter_batches(batch_size=1000):
                    for values in batch.to_pylist():
                        yield Record(number, values)
                        number += 1
        except (pyarrow.ArrowException, OSError) as problem:
            raise PackError(
                f"{readable(str(self.path))} is no sound Parquet file, found at row {number}: {problem}"
            ) from problem


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
    return list_manifest(manifest_of(path), how, root, metadata=True, stray=lambda taken: _without_row(root, taken))


def manifest_of(path: SourcePath) -> Manifest:
    """The records of a file, by its ending."""
    ending = path.suffix.lower()
    if ending == ".parquet":
        return ParquetRows(path)
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
