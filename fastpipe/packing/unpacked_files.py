"""JPEGs with their keys and labels -> files in class folders, or WebDataset shards."""

from __future__ import annotations

import errno
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from fastpipe.errors import PackError
from fastpipe.format import tar_writer as tar
from fastpipe.format.index import Index
from fastpipe.format.layout import NO_LABEL
from fastpipe.format.sample_layout import before_jpeg
from fastpipe.packing.output.files import no_link, whole_file


@dataclass(frozen=True)
class UnpackedSample:
    """A sample of a dataset with its image as a JPEG.

    Attributes:
        shard: its number.
        key, label: its own.
        jpeg: the image.
        others: the members behind the image, as they are in the shard.
        stored_bytes: of the image in the shard.
    """

    shard: int
    key: str
    label: int
    jpeg: bytes
    others: bytes
    stored_bytes: int


class ClassFolders:
    """Writes CLASS/KEY.jpg; images without a class lie beside the folders."""

    def __init__(self, index: Index, destination: Path) -> None:
        self._index = index
        self._destination = destination
        self._folders: dict[int, Path] = {NO_LABEL: destination}

    def write(self, sample: UnpackedSample) -> None:
        """Writes one image."""
        folder = self._folders.get(sample.label)
        if folder is None:
            name = self._index.class_name(sample.label)
            folder = self._destination / folder_name(name)
            try:
                folder.mkdir()
            except OSError as problem:
                if problem.errno not in (errno.EEXIST, errno.ENAMETOOLONG):
                    raise
                raise PackError(
                    f"the class {name!r} cannot have a folder of its own, {folder}: {problem.strerror}. Unpack into a "
                    "new folder with --format webdataset, which makes none"
                ) from problem
            self._folders[sample.label] = folder
        with open(folder / f"{sample.key}.jpg", "xb", opener=no_link) as file:
            file.write(sample.jpeg)

    def finish(self) -> None:
        """After the last one."""


class JpegShards:
    """Writes shards of the dataset's names; each appears when it is whole."""

    def __init__(self, index: Index, destination: Path) -> None:
        self._index = index
        self._destination = destination
        self._open = ExitStack()
        self._file: BinaryIO | None = None
        self._shard = -1

    def write(self, sample: UnpackedSample) -> None:
        """Writes one sample; those of a shard come one after the other."""
        if self._file is None or sample.shard != self._shard:
            self.finish()
            name = self._index.shards[sample.shard].name
            self._file = self._open.enter_context(whole_file(self._destination / name, self._destination))
            self._shard = sample.shard
        self._file.write(before_jpeg(sample.key, sample.label, len(sample.jpeg)))
        self._file.write(sample.jpeg + tar.padding(len(sample.jpeg)) + sample.others)

    def finish(self) -> None:
        """Ends the last shard."""
        if self._file is not None:
            self._file.write(tar.end(self._file.tell()))
            self._file = None
            self._open.close()


def folder_name(name: str) -> str:
    """A class's name as the name of a folder: what leads elsewhere becomes %XX, and no name at all a single %."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe="") if "/" in name or "\0" in name else name or "%"
