"""Values of fields, shard by shard -> parts in the work folder -> the sidecar files in DST/fields.

Note [parts]
The values of a shard's samples are written as they come, each column into a file of its own, so memory does not grow
with the samples. These parts get their names before the shard's entry in the journal. When all shards are there, the
parts of a column are strung together behind a header, as the records are to index.npy.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xxhash

from fastpipe.format.fields import FIELDS_FOLDER, Field, sidecars
from fastpipe.format.sample_layout import Stored
from fastpipe.packing.fields.columns import LENGTHS, Column, columns, parts_of, piece
from fastpipe.packing.output.files import PARTIAL, no_link, publish, sync_folder, whole_file

_CHUNK_BYTES = 1 << 20
_ENDINGS = (".npy", ".bytes.npy", ".offsets.npy", ".labels.npy")


def part_file(folder: Path, number: int, name: str, part: str) -> Path:
    """Where the part of a shard and column is, in the work folder."""
    return folder / f"shard-{number:06d}.{name}.{part}"


class Parts:
    """The parts of one shard, being written. Note [parts]

    Args:
        folder: the work folder.
        number: of the shard.
        kinds: name -> kind of the fields.
    """

    def __init__(self, folder: Path, number: int, kinds: Mapping[str, str]) -> None:
        self._kinds = kinds
        self._files: dict[tuple[str, str], BinaryIO] = {}
        self._finals: dict[tuple[str, str], Path] = {}
        try:
            for name in kinds:
                for part in parts_of(kinds[name]):
                    final = part_file(folder, number, name, part)
                    self._finals[name, part] = final
                    self._files[name, part] = open(  # noqa: SIM115 (held until finish or discard)
                        final.with_name(final.name + PARTIAL), "wb", opener=no_link
                    )
        except BaseException:
            self.discard()
            raise

    def add(self, values: Sequence[Stored], offsets: Sequence[int]) -> None:
        """Appends the values of a sample.

        Args:
            values: one a field.
            offsets: of the first byte of each one's member in the shard; 0 where it has none.
        """
        for (name, kind), value, offset in zip(self._kinds.items(), values, offsets, strict=True):
            found = piece(kind, value, offset)
            for part in parts_of(kind):
                self._files[name, part].write(found[part])

    def finish(self) -> dict[str, int]:
        """Gives the parts their names in the work folder.

        Returns:
            The size of each file in bytes.
        """
        sizes: dict[str, int] = {}
        for key, file in self._files.items():
            file.flush()
            os.fsync(file.fileno())
            sizes[self._finals[key].name] = file.tell()
            file.close()
            publish(Path(file.name), self._finals[key])
        self._files.clear()
        return sizes

    def discard(self) -> None:
        """Removes what has no name yet."""
        for file in self._files.values():
            with contextlib.suppress(OSError):  # a full disk refuses what is left in the buffer, too
                file.close()
            with contextlib.suppress(OSError):  # what made us discard it is to be told
                Path(file.name).unlink(missing_ok=True)
        self._files.clear()


def write_sidecars(
    destination: Path, work: Path, fields: Iterable[Field], shards: int, samples: int
) -> dict[str, dict[str, str]]:
    """Strings the parts of all shards together.

    Args:
        destination: the dataset's folder.
        work: the work folder, with the parts.
        fields: what to write.
        shards, samples: of the dataset.

    Returns:
        For each field its files and their XXH3-64 in hex.
    """
    folder = destination / FIELDS_FOLDER
    folder.mkdir(exist_ok=True)
    sync_folder(destination)
    hashes: dict[str, dict[str, str]] = {}
    for field in fields:
        hashes[field.name] = {}
        for name, column in zip(sidecars(field), columns(field), strict=True):
            parts = [part_file(work, number, field.name, column.part) for number in range(shards)]
            with whole_file(folder / name, work) as file:
                hashes[field.name][name] = write_column(file, column, parts, samples)
    return hashes


def write_column(file: BinaryIO, column: Column, parts: Sequence[Path], samples: int) -> str:
    """Writes one sidecar file; returns its XXH3-64 in hex."""
    digest = xxhash.xxh3_64()
    for data in _column(column, parts, samples):
        digest.update(data)
        file.write(data)
    return digest.hexdigest()


def _column(column: Column, parts: Sequence[Path], samples: int) -> Iterator[bytes]:
    if column.part == LENGTHS:
        yield _head(column.dtype, (samples + 1,))
        total = 0
        yield total.to_bytes(8, "little")
        for data in _read(parts):
            ends = total + np.cumsum(np.frombuffer(data, "<i8"))
            total = int(ends[-1])
            yield ends.tobytes()
        return
    each = column.dtype.itemsize * int(np.prod(column.width, dtype=np.int64))
    rows = sum(part.stat().st_size for part in parts) // each if each else 0
    yield _head(column.dtype, (rows, *column.width))
    yield from _read(parts)


def _read(parts: Sequence[Path]) -> Iterator[bytes]:
    for part in parts:
        with open(part, "rb") as file:
            while data := file.read(_CHUNK_BYTES):
                yield data


def _head(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    head = io.BytesIO()
    described = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(head, {"descr": described, "fortran_order": False, "shape": shape})
    return head.getvalue()


def remove_sidecars(destination: Path, names: Iterable[str]) -> None:
    """Removes the sidecar files of fields, and their folder if nothing else is in it."""
    folder = destination / FIELDS_FOLDER
    for name in names:
        for ending in _ENDINGS:
            (folder / f"{name}{ending}").unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()
