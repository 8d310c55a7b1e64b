"""Tables with images for the tests of packing: Parquet as anybody may write it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from support.sources.listed import paths_of as paths_of
from support.sources.pack_sources import jpeg_bytes

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def jpegs(count: int, size: tuple[int, int] = (40, 30)) -> list[bytes]:
    """So many JPEGs, none like another."""
    return [jpeg_bytes((size[0] + number % 7, size[1]), seed=number) for number in range(count)]


def write_table(
    file: Path,
    images: Sequence[bytes | None],
    *,
    rows_per_group: int = 4,
    image: str = "image",
    **columns: Any,
) -> Path:
    """A Parquet file with Hugging Face's struct of images, and further columns: lists, or arrays with a type."""
    file.parent.mkdir(parents=True, exist_ok=True)
    cells = [None if data is None else {"bytes": data, "path": None} for data in images]
    table = pa.table({image: pa.array(cells, IMAGE), **columns})
    pq.write_table(table, file, row_group_size=rows_per_group, compression="none")
    return file
