"""The URL of a packed dataset -> an Index of it: its small files are here, its shards come when they are needed."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from fastpipe.errors import ConfigError, DatasetError
from fastpipe.format.description import described_in, file_hash, fingerprint, info_in, read_self_checksum
from fastpipe.format.fields import FIELDS_FOLDER, sidecars
from fastpipe.format.folder import Place, Url
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE, INDEX_FILE, REJECTED_FILE, SOURCES_FILE, version_folder
from fastpipe.format.mixed_index import MixedIndex
from fastpipe.remote.cache import Cache
from fastpipe.remote.cache_root import Hold, make_root, unfinished
from fastpipe.remote.caches import Caches, Remote
from fastpipe.remote.client import refuse_forked
from fastpipe.remote.objects import Answer, Objects, ShardError
from fastpipe.remote.options import RemoteOptions
from fastpipe.remote.reader import Reader
from fastpipe.remote.retry import ATTEMPTS

_GZIP = b"\x1f\x8b"


class RemoteIndex(Index):
    """The description of a dataset behind a URL. Its folder is that of the cache.

    Args:
        url: of the dataset's folder.
        options: how it is read.
        max_pixels, version: as of Index.

    Attributes:
        url: as given.
        options: as given.
        read_by: the last reader of its shards, if it still lives, and which number the first shard has there.
        past_cache: its files as they are behind the URL; one that does not come is a ShardError.
    """

    restored_by = "open the dataset again, which fetches this file of the cache anew"

    def __init__(
        self, url: Url, options: RemoteOptions, *, max_pixels: int | None = None, version: int | None = None
    ) -> None:
        if sys.platform != "linux":
            raise ConfigError(
                f"{url}: datasets are read by URL on Linux only, because the cache needs its file locks; copy the "
                "dataset to this machine"
            )
        self.url, self.options = url, options
        self.read_by: tuple[Callable[[], Reader | None], int] = (lambda: None), 0
        self._objects = Objects(url, options)
        self.past_cache = self._objects.apart(ShardError)
        data, info = self._description()
        if version is not None and (at := described_in(url, version, info["version"])):
            data, info = self._description(at)
        make_root(options.cache_dir)
        self._hold = Hold(options.cache_dir, info["fingerprint"], url)
        self._hold.touch()
        description = self._hold.folder / DATASET_FILE
        with self._replacing(description) as new:
            if not (description.exists() and description.read_bytes() == data):
                new.write_bytes(data)
                os.replace(new, description)
        self._at = version_folder(info["version"])
        self._bring(self._at + INDEX_FILE, info.get("index", {}).get("file_xxh3_64"))
        super().__init__(self._hold.folder, max_pixels=max_pixels, shown_as=url)

    def fetch_columns(self, fields: Iterable[str]) -> None:
        """Brings the files of fields, as far as the dataset has these.

        Raises:
            DatasetError: a file cannot be fetched, or has another hash.
        """
        for name in fields:
            field = self.fields.get(name)
            for file in sidecars(field) if field is not None else ():
                assert field is not None
                self._bring(f"{self._at}{FIELDS_FOLDER}/{file}", field.files.get(file))

    def fetch_small(self) -> None:
        """Brings all files beside the shards."""
        self.fetch_columns(self.fields)
        self.fetch_sources()
        if self.counts["rejected"]:
            self._bring(self._at + REJECTED_FILE, None)

    def fetch_sources(self) -> None:
        """Brings sources.npy."""
        self._bring(self._at + SOURCES_FILE, self.info["sources"]["file_xxh3_64"])

    def reader(self, of: Index | None = None) -> Reader:
        """What brings its shards' bytes, in this process, or those of a mixture with this dataset in it.

        Raises:
            EngineError: this is a forked child of the process that opened the dataset.
            DatasetError: the cache cannot be written.
        """
        return _reader_of(self if of is None else of)

    def remote(self) -> Remote:
        """The dataset for one more reader; errors as of `reader`."""
        refuse_forked()
        options = self.options
        names = [shard.name for shard in self.shards]
        hold = Hold(options.cache_dir, self.fingerprint, self.url)
        cache = Cache(hold, names, self.shard_sizes, options.cache_limit, beside=self._hold)
        return Remote(cache, self._objects.apart(), names)

    def open_shard(self, number: int) -> RemoteShard:
        """A shard, to read notes in it: those of samples that are in use lie beside them."""
        reader = self.read_by[0]() or self.reader()
        return RemoteShard(self.path / self.shards[number].name, self.read_by[1] + number, reader)

    def _description(self, at: str = "") -> tuple[bytes, dict[str, Any]]:
        """The bytes of dataset.json, or of that in a version's folder, and what they say."""

        def complaint(answer: Answer) -> str | None:  # bytes may be garbled on their way
            try:
                _checked(at + DATASET_FILE, bytes(answer.data))
            except DatasetError as problem:
                return str(problem)
            return None

        try:
            work = self._objects.fetch(at + DATASET_FILE, 0, None, check=complaint)
            data = bytes(self._objects.wait(work).data)
        except DatasetError as problem:
            if not isinstance(problem.__cause__, FileNotFoundError):
                raise
            raise DatasetError(
                f"{self.url} holds no packed dataset: expected {DATASET_FILE} there, got HTTP 404. Check the URL: "
                f"it is that of the folder which `fastpipe pack` wrote. {DATASET_FILE} is to be uploaded last"
            ) from problem
        return data, _checked(str(self.url / (at + DATASET_FILE)), data)

    def _bring(self, name: str, expected: object) -> None:
        """A small file, unless the cache has it with this hash."""
        file = self._hold.folder / name
        if expected is not None and _hash_of(file) == expected:
            return
        with self._replacing(file) as new:
            for _ in range(ATTEMPTS):
                digest = xxhash.xxh3_64()
                with open(new, "wb") as out:
                    for piece in self._objects.whole(name):
                        digest.update(piece)
                        out.write(piece)
                found = digest.hexdigest()
                if expected in (None, found):
                    os.replace(new, file)
                    return
        raise DatasetError(
            f"{self.url / name} has been changed: expected XXH3-64 {expected}, as {DATASET_FILE} has it, got {found}, "
            f"after {ATTEMPTS} attempts. Upload the dataset again"
        )

    @contextmanager
    def _replacing(self, file: Path) -> Iterator[Path]:
        """A name for a file of the cache while it is written; other processes see all of it or nothing."""
        new = unfinished(file)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            yield new
        except OSError as problem:
            raise DatasetError(
                f"the cache cannot keep {file}: {problem.strerror or problem}. It keeps this file of the dataset "
                "whatever cache_limit= is. Make room, or pass another cache_dir="
            ) from problem
        finally:
            new.unlink(missing_ok=True)


def _reader_of(index: Index) -> Reader:
    """What brings the bytes of the shards of a dataset, or of a mixture of which some lie on this machine."""
    parts = index.parts if isinstance(index, MixedIndex) else (index,)
    datasets = [part.remote() if isinstance(part, RemoteIndex) else None for part in parts]
    reader = Reader(index, Caches(datasets, [part.shard_sizes for part in parts]))
    first = 0
    for part in parts:
        if isinstance(part, RemoteIndex):
            part.read_by = weakref.ref(reader), first
        first += len(part.shards)
    return reader


@dataclass(frozen=True)
class RemoteShard:
    """A shard behind a URL, as a ReadableShard.

    Attributes:
        path: its URL.
        number: of it.
        reader: of the dataset. The index has none of its own: the two would keep each other, and open files.
    """

    path: Place
    number: int
    reader: Reader

    def read(self, offset_bytes: int, size_bytes: int) -> bytes:
        """A range.

        Raises:
            DatasetError: it does not come.
        """
        return self.reader.read(self.number, offset_bytes, offset_bytes + size_bytes)


def _checked(file: str, data: bytes) -> dict[str, Any]:
    """The content of dataset.json. Its fingerprint, which names the dataset's folder in the cache, is computed: who
    serves a dataset does not choose whose folder it gets.
    """
    ours, again = "expected the file that `fastpipe pack` wrote", "Upload the dataset again"
    if data.startswith(_GZIP):
        raise DatasetError(
            f"{file} comes compressed by gzip; {ours}. Turn the server's compression off, or upload the dataset "
            "without Content-Encoding"
        )
    info, checksum = info_in(data, file), read_self_checksum(data)
    changed, found = f"{file} has been changed: expected the", info.get("fingerprint")
    if checksum is not None and checksum[0] != checksum[1]:
        raise DatasetError(f"{changed} hash {checksum[0]} that it carries, got {checksum[1]}. {again}")
    try:
        expected = fingerprint(info)
    except (KeyError, TypeError, ValueError) as problem:
        raise DatasetError(f"{file} has a missing or invalid field ({problem!r}); {ours}. {again}") from problem
    if found != expected:
        raise DatasetError(f"{changed} fingerprint {expected} of its content, got {found!r:.80}. {again}")
    return info


def _hash_of(file: Path) -> str | None:
    try:
        return file_hash(file)
    except OSError:
        return None
