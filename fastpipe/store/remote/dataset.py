"""The URL of a packed dataset -> an Index of it.

Its small files are fetched at once, its shards when they are needed.
"""

from __future__ import annotations

import os
import sys
import uuid
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from fastpipe.dataset.format.description import (
    description_folder,
    file_hash,
    fingerprint,
    parse_info,
    read_self_checksum,
)
from fastpipe.dataset.format.fields import FIELDS_FOLDER, sidecars
from fastpipe.dataset.format.folder import Place, Url
from fastpipe.dataset.format.index import Index
from fastpipe.dataset.format.joined_index import JoinedIndex
from fastpipe.dataset.format.layout import (
    DATASET_FILE,
    INDEX_FILE,
    REJECTED_FILE,
    SOURCES_FILE,
    version_folder,
)
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError, DatasetError
from fastpipe.store.remote.blocks import Blocks
from fastpipe.store.remote.cache import Cache, Caches
from fastpipe.store.remote.cache_root import Hold, make_root
from fastpipe.store.remote.missing import describe_missing
from fastpipe.store.remote.objects import Answer, Objects, ShardError, without_cause
from fastpipe.store.remote.options import RemoteOptions
from fastpipe.store.remote.reader import Reader
from fastpipe.store.remote.requests import request_thread
from fastpipe.store.remote.retry import ATTEMPTS, kind_of_failure

_GZIP = b"\x1f\x8b"


class RemoteIndex(PackedIndex):
    """The description of a dataset behind a URL. Its folder is that of the cache; see Index."""

    restored_by = "open the dataset again, which fetches this file of the cache anew"

    def __init__(
        self,
        url: Url,
        options: RemoteOptions,
        *,
        max_pixels: int | None = None,
        version: int | None = None,
    ) -> None:
        if sys.platform != "linux":
            raise ConfigError(
                f"{url}: datasets are read by URL on Linux only, because the cache needs its file "
                "locks; copy the dataset to this machine"
            )
        self.url = url
        self.options = options
        # The last reader of its shards, if it still lives, and the number of the first shard there.
        self.read_by: tuple[Callable[[], Reader | None], int] = (lambda: None), 0
        self._objects = Objects(url, options)
        # The files as they are behind the URL.
        self.past_cache = self._objects.apart(ShardError)

        data, info = self._description()
        if version is not None:
            folder = description_folder(url, version, info["version"])
            if folder:
                data, info = self._description(folder)

        make_root(options.cache_dir)
        self._hold = Hold(options.cache_dir, info["fingerprint"], url)
        # `cache_root.used_at` reads this time. Writing states changes it only while blocks come.
        os.utime(self._hold.descriptor)
        self._bring(DATASET_FILE, xxhash.xxh3_64_hexdigest(data), data)
        self._version_folder = version_folder(info["version"])
        self._bring(
            self._version_folder + INDEX_FILE, info.get("index", {}).get("file_xxh3_64")
        )
        super().__init__(self._hold.folder, max_pixels=max_pixels, shown_as=url)

    def fetch_columns(self, fields: Iterable[str]) -> None:
        """Fetches the files of those fields that the dataset has."""
        for name in fields:
            if name in self.fields:
                field = self.fields[name]
                for file in sidecars(field):
                    self._bring(
                        f"{self._version_folder}{FIELDS_FOLDER}/{file}",
                        field.files.get(file),
                    )

    def fetch_small(self) -> None:
        """Fetches all files but the shards."""
        self.fetch_columns(self.fields)
        self.fetch_sources()
        if self.counts["rejected"]:
            self._bring(self._version_folder + REJECTED_FILE, None)

    def fetch_sources(self) -> None:
        self._bring(
            self._version_folder + SOURCES_FILE, self.info["sources"]["file_xxh3_64"]
        )

    def find_beside(self, name: str) -> bytes | None:
        # It may change at any time, so the cache does not keep it.
        answer = self._objects.find_optional(name)
        if answer is None:
            return None
        return bytes(answer.data)

    def file_beside(self, name: str, hash_text: str) -> Path:
        self._bring(name, hash_text)
        return self._hold.folder / name

    def reader(self, mixture: Index | None = None) -> Reader:
        """Returns a reader of its shards, or of those of a mixture that it is part of.

        Raises:
            EngineError: this is a forked child.
            DatasetError: the cache cannot be written.
        """
        index: Index = self if mixture is None else mixture
        if isinstance(index, JoinedIndex):
            parts = index.parts
        else:
            parts = (index,)
        sizes_of_parts = [part.shard_sizes for part in parts]
        blocks = Blocks(np.concatenate(sizes_of_parts))

        caches: list[Cache] = []
        first_shards: list[tuple[RemoteIndex, int]] = []
        first_shard = 0
        for part in parts:
            if isinstance(part, RemoteIndex):
                cache = part._cache(blocks, first_shard)
                caches.append(cache)
                first_shards.append((part, first_shard))
            first_shard += len(part.shards)

        reader = Reader(index, Caches(blocks, caches))
        for remote_part, first_shard in first_shards:
            remote_part.read_by = weakref.ref(reader), first_shard
        return reader

    def _cache(self, blocks: Blocks, first_shard: int) -> Cache:
        # A forked child is refused here, before it touches the locks that it shares.
        request_thread()
        return Cache(
            hold=Hold(self.options.cache_dir, self.fingerprint, self.url),
            names=[shard.name for shard in self.shards],
            blocks=blocks,
            first_shard=first_shard,
            objects=self._objects.apart(),
            limit=self.options.cache_limit,
            beside=self._hold,
        )

    def open_shard(self, number: int) -> RemoteShard:
        """Opens a shard to read notes in it. The cache has those of samples in use."""
        reader_of, first_shard = self.read_by
        reader = reader_of()
        if reader is None:
            reader = self.reader()
            _, first_shard = self.read_by
        return RemoteShard(
            self.path / self.shards[number].name, first_shard + number, reader
        )

    def _description(self, folder: str = "") -> tuple[bytes, dict[str, Any]]:
        """The bytes and the content of dataset.json, by default of the newest version."""
        name = folder + DATASET_FILE
        info: dict[str, Any] | None = None

        def check(answer: Answer) -> str | None:
            # Bytes may be garbled on their way. Then they are fetched again.
            nonlocal info
            try:
                info = _checked(name, bytes(answer.data))
            except DatasetError as problem:
                return str(problem)
            return None

        try:
            request = self._objects.fetch(name, 0, None, check=check)
            answer = self._objects.wait(request)
        except DatasetError as problem:
            if kind_of_failure(problem) != "missing":
                raise without_cause(problem) from None
            message = describe_missing(self.url, self.options, self._objects)
            raise DatasetError(message) from None
        data = bytes(answer.data)
        if info is None:
            # The bytes stay wrong: this raises the error.
            info = _checked(str(self.url / name), data)
        return data, info

    def _bring(
        self, name: str, expected: str | None, data: bytes | None = None
    ) -> None:
        """Fetches a file that the cache keeps in any case, also beyond cache_limit=.

        Other processes see all of the file or nothing.

        Args:
            name: the file's name.
            expected: its XXH3-64; None if that is not recorded.
            data: its bytes if they are there already.
        """
        file = self._hold.folder / name
        with suppress(OSError):
            if expected is not None and file_hash(file) == expected:
                return
        # No other thread, process or container has a file of this name.
        partial_name = f".{file.name}.{uuid.uuid4().hex}"
        partial = file.with_name(partial_name)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            for _ in range(ATTEMPTS):
                pieces: Iterable[bytes | memoryview] = (
                    [data] if data is not None else []
                )
                if data is None:
                    pieces = self._objects.fetch_pieces(name)
                try:
                    digest = _write_pieces(partial, pieces)
                except DatasetError as problem:
                    if kind_of_failure(problem) != "missing":
                        raise without_cause(problem) from None
                    raise DatasetError(
                        f"{self.url} has {DATASET_FILE}, but {name} is missing (HTTP 404): the upload "
                        "of the dataset is incomplete. Upload all its files again, and "
                        f"{DATASET_FILE} last"
                    ) from None
                if expected in (None, digest):
                    os.replace(partial, file)
                    return
        except OSError as problem:
            raise DatasetError(
                f"the cache cannot keep {file}: {problem.strerror or problem}. It keeps this file "
                "of the dataset whatever cache_limit= is. Make room, or pass another cache_dir="
            ) from problem
        finally:
            partial.unlink(missing_ok=True)
        raise DatasetError(
            f"{self.url / name} has been changed: expected XXH3-64 {expected}, as {DATASET_FILE} "
            f"has it, got {digest}, after {ATTEMPTS} attempts. Upload the dataset again"
        )


def _write_pieces(path: Path, pieces: Iterable[bytes | memoryview]) -> str:
    """Writes a file. Returns the XXH3-64 of its bytes."""
    digest = xxhash.xxh3_64()
    with open(path, "wb") as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


@dataclass(frozen=True)
class RemoteShard:
    """A shard behind a URL, as a ReadableShard."""

    path: Place
    # The shard's number in the reader.
    number: int
    # The index has no reader of its own: the two would keep each other alive, and files open.
    reader: Reader

    def read(self, offset_bytes: int, size_bytes: int) -> bytes:
        """Reads a range. DatasetError: it cannot be fetched."""
        return self.reader.read(self.number, offset_bytes, offset_bytes + size_bytes)


def _checked(file: str, data: bytes) -> dict[str, Any]:
    """The content of dataset.json.

    Its fingerprint names the dataset's folder in the cache. It is computed here, so that whoever
    serves a dataset cannot choose whose folder it gets.

    Raises:
        DatasetError: the file is damaged or compressed.
    """
    if data.startswith(_GZIP):
        raise DatasetError(
            f"{file} comes compressed by gzip; expected the file that `fastpipe pack` wrote. Turn "
            "the server's compression off, or upload the dataset without Content-Encoding"
        )
    info = parse_info(data, file)
    self_checksum = read_self_checksum(data)
    if self_checksum is not None:
        expected_hash, carried_hash = self_checksum
        _check_hash(file, "hash that it carries", expected_hash, carried_hash)
    try:
        expected_fingerprint = fingerprint(info)
    except (KeyError, TypeError, ValueError) as problem:
        raise DatasetError(
            f"{file} has a missing or invalid field ({problem!r}). Upload the dataset again"
        ) from problem
    recorded = info.get("fingerprint")
    _check_hash(file, "fingerprint of its content", expected_fingerprint, recorded)
    return info


def _check_hash(file: str, hash_name: str, expected: str, got: object) -> None:
    if got != expected:
        raise DatasetError(
            f"{file} has been changed: expected the {hash_name}, {expected}, got {got!r:.80}. Upload "
            "the dataset again"
        )
